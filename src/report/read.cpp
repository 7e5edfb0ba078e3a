#include "autopar/report.hpp"
#include "json/parse.hpp"
#include "report/propagation.hpp"
#include "report/unit.hpp"

namespace autopar {

namespace {

using JsonValue = nlohmann::json;

// For tables only; thrown as nlohmann's own, so that all that a report lacks is told in one way.
Mesh mesh_of(const JsonValue& list) {
  if (!list.is_array() || list.size() > static_cast<std::size_t>(kMaxMeshAxes)) {
    throw JsonValue::type_error::create(302,
                                        "a mesh must be a list of at most " +
                                            std::to_string(kMaxMeshAxes) + " axes, but is " +
                                            found_text(list),
                                        &list);
  }
  Mesh mesh;
  for (const JsonValue& axis : list) {
    Axis a;
    a.name = axis.at("name").get<std::string>();
    a.size = axis.at("size").get<std::int64_t>();
    mesh.axes.push_back(a);
  }
  return mesh;
}

void read_picked(const JsonValue& j, const std::string& cost_model, Picked& picked) {
  picked.searcher = j.at("searcher").get<std::string>();
  picked.why = j.at("why").get<std::string>();
  for (const JsonValue& t : j.at("tried")) {
    picked.tried.push_back(
        {t.at("searcher").get<std::string>(), t.at("found").get<bool>(),
         t.value(price_key("", cost_model), t.value(price_key("no_less_than", cost_model), 0.0)),
         t.value("error", std::string()), t.value("memory_bytes", Bytes{0})});
  }
}

void read_facts(const JsonValue& j, Report& r) {
  const JsonValue& model = j.at("model");
  r.model = model.at("name").get<std::string>();
  r.model_sha256 = model.at("sha256").get<std::string>();
  r.ops = model.at("ops").get<std::size_t>();
  r.parameter_count = model.at("parameters").get<double>();
  r.parameter_bytes = model.at("parameters_bytes").get<Bytes>();
  r.cluster = j.at("cluster").at("name").get<std::string>();
  r.devices = j.at("cluster").at("devices").get<std::int64_t>();
  r.searcher = j.at("searcher").get<std::string>();
  r.cost_model = j.value("cost_model", r.cost_model);
  if (j.contains("picked")) read_picked(j.at("picked"), r.cost_model, r.picked);
  r.mesh = mesh_of(j.at("mesh"));
  r.profile = j.value("profile", r.profile);
  if (j.contains("streams")) {
    const JsonValue& streams = j.at("streams");
    r.step = StepTime{j.at("cost").at("seconds").get<double>(),
                      streams.at("compute_seconds").get<double>(),
                      streams.at("communication_seconds").get<double>(),
                      streams.at("host_seconds").get<double>(),
                      {},
                      {streams.at("exposed_communication_seconds").get<double>()}};
    const JsonValue links = streams.value("links", JsonValue::object());
    for (const auto& [tier, seconds] : links.items()) {
      r.links.emplace_back(tier, seconds.get<double>());
    }
  }
  r.warnings = j.at("warnings").get<std::vector<std::string>>();
}

void read_cost(const JsonValue& j, Report& r) {
  const JsonValue& cost = j.at("cost");
  r.seconds = price_at(cost, "", r.cost_model);
  r.compute = price_at(cost, "compute", r.cost_model);
  r.communication = price_at(cost, "communication", r.cost_model);
  r.lower_bound = price_at(cost, "lower_bound", r.cost_model);
  r.unlimited_lower_bound = price_at(cost, "unlimited_lower_bound", r.cost_model);
  r.gap = cost.at("gap").get<double>();
  r.proven = cost.at("proven_optimal").get<bool>();
  r.bounded = r.lower_bound > 0 || r.seconds == 0;
  r.interrupted = cost.at("interrupted").get<bool>();
  r.bounds_own_mesh = cost.value("bounds_own_mesh", true);
  r.ended_by = cost.value("ended_by", "");
  if (j.contains("training")) {
    r.training = training_of_json(j.at("training").dump());
  }
  for (const JsonValue& trial : j.value("plans_tried", JsonValue::array())) {
    const JsonValue& cost = trial.at(unit_of(r.cost_model));
    r.tried.push_back(
        {trial.at("micro_batches").get<std::int64_t>(), trial.at("recompute").get<std::string>(),
         cost.is_null() ? 0 : cost.get<double>(), trial.at("outcome") == "nothing cheaper",
         trial.value("moving", false), trial.value("of_parts", false)});
  }
  const JsonValue& memory = j.at("memory");
  r.memory.total = memory.at("peak_bytes").get<Bytes>();
  r.memory.parameters = memory.at("parameters_bytes").get<Bytes>();
  r.memory.constants = memory.at("constants_bytes").get<Bytes>();
  r.memory.activations = memory.at("activations_bytes").get<Bytes>();
  r.memory.reshards = memory.at("reshards_bytes").get<Bytes>();
  if (memory.contains("parts")) {
    const JsonValue& parts = memory.at("parts");
    const auto bytes = [&parts](const char* key) { return parts.at(key).get<Bytes>(); };
    r.memory_parts = MemoryParts{.data = bytes("data_bytes"),
                                 .parameters = bytes("parameters_bytes"),
                                 .accumulators = bytes("accumulators_bytes"),
                                 .states = bytes("states_bytes"),
                                 .kept = bytes("kept_activations_bytes"),
                                 .temporaries = bytes("temporaries_bytes"),
                                 .constants = bytes("constants_bytes")};
  }
  r.memory_op = memory.at("peak_op").get<std::string>();
  r.recompute = memory.value("recompute", r.recompute);
  r.repeated_ops = memory.value("repeated_ops", r.repeated_ops);
  r.upper_memory = memory.value("upper_bytes", r.memory.total);
  if (!memory.at("limit_bytes").is_null()) r.memory_limit = memory.at("limit_bytes").get<Bytes>();
}

void read_alternatives(const JsonValue& j, Report& r) {
  for (const JsonValue& b : j.at("baselines")) {
    Baseline baseline;
    baseline.name = b.at("name").get<std::string>();
    baseline.found = b.at("found").get<bool>();
    if (baseline.found) {
      baseline.fits = b.at("fits").get<bool>();
      baseline.mesh = b.at("mesh").get<std::string>();
      baseline.seconds = price_at(b, "", r.cost_model);
      baseline.memory_bytes = b.at("memory_bytes").get<Bytes>();
    }
    r.baselines.push_back(std::move(baseline));
  }
  for (const JsonValue& t : j.at("meshes")) {
    MeshTrial trial;
    trial.mesh = mesh_of(t.at("mesh"));
    const std::string end = t.at("end").get<std::string>();
    for (TrialEnd e :
         {TrialEnd::kPlan, TrialEnd::kPruned, TrialEnd::kNothingFits, TrialEnd::kNothingFound,
          TrialEnd::kPinsNotKept, TrialEnd::kLookedAt, TrialEnd::kTooLarge, TrialEnd::kNotTried}) {
      if (end == name_of(e)) trial.end = e;
    }
    r.meshes_not_tried += trial.end == TrialEnd::kNotTried;
    r.meshes_left_out += trial.end == TrialEnd::kTooLarge;
    trial.stopped = t.at("stopped_early").get<bool>();
    trial.why = t.value("why", "");
    trial.cost = price_at(t, "", r.cost_model);
    trial.lower_bound = price_at(t, "lower_bound", r.cost_model);
    r.trials.push_back(std::move(trial));
  }
}

void read_details(const JsonValue& j, Report& r) {
  for (const JsonValue& c : j.at("collectives")) {
    r.collectives.push_back({c.at("kind").get<std::string>(), c.at("mesh_axes").get<std::string>(),
                             c.at("count").get<int>(), price_at(c, "", r.cost_model),
                             c.at("sent_bytes").get<double>(), c.value("exposed_seconds", 0.0)});
  }
  for (const JsonValue& op : j.at("ops")) {
    r.op_costs.push_back({op.at("name").get<std::string>(), op.at("type").get<std::string>(),
                          op.at("assignment").get<std::string>(), op.at("in_strategy").dump(),
                          price_at(op, "compute", r.cost_model),
                          price_at(op, "communication", r.cost_model)});
  }
  for (const JsonValue& s : j.at("reshards")) {
    r.reshards.push_back({s.at("tensor").get<std::string>(), s.at("reader").get<std::string>(),
                          s.at("from").get<std::string>(), s.at("to").get<std::string>(),
                          s.at("steps").get<std::vector<std::string>>(),
                          price_at(s, "", r.cost_model), s.at("sent_bytes").get<double>()});
  }
}

}  // namespace

double price_at(const JsonValue& j, const std::string& of, const std::string& cost_model) {
  const JsonValue& price = j.at(price_key(of, cost_model));
  return price.is_null() ? kInfinity : price.get<double>();
}

Result<Report> report_of_json(const std::string& text, const std::string& path) {
  AUTOPAR_TRY(j, parse_json(text, path));
  try {
    if (j.at("format") != "autopar-report" || j.at("version") != 1) {
      return input_error(path + ": expected format autopar-report, version 1");
    }
    Report report;
    read_facts(j, report);
    read_cost(j, report);
    read_alternatives(j, report);
    read_details(j, report);
    report.propagation = propagation_of(j, report.cost_model);
    return report;
  } catch (const JsonValue::exception& error) {
    return input_error(path + ": is not a report: " + message_of(error));
  }
}

}  // namespace autopar
