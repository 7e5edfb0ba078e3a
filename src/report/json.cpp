#include <cmath>
#include <nlohmann/json.hpp>

#include "autopar/report.hpp"
#include "report/propagation.hpp"
#include "report/unit.hpp"

namespace autopar {

namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity; null says "none".
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json mesh_json(const Mesh& mesh) {
  Json list = Json::array();
  for (const Axis& axis : mesh.axes) list.push_back({{"name", axis.name}, {"size", axis.size}});
  return list;
}

Json memory_json(const Report& r) {
  Json memory = {{"peak_bytes", r.memory.total},
                 {"peak_op", r.memory_op},
                 {"parameters_bytes", r.memory.parameters},
                 {"constants_bytes", r.memory.constants},
                 {"activations_bytes", r.memory.activations},
                 {"reshards_bytes", r.memory.reshards}};
  if (r.memory_parts) {
    const MemoryParts& parts = *r.memory_parts;
    memory["parts"] = {{"data_bytes", parts.data},
                       {"parameters_bytes", parts.parameters},
                       {"accumulators_bytes", parts.accumulators},
                       {"states_bytes", parts.states},
                       {"kept_activations_bytes", parts.kept},
                       {"temporaries_bytes", parts.temporaries},
                       {"constants_bytes", parts.constants}};
  }
  memory["recompute"] = r.recompute;
  memory["repeated_ops"] = r.repeated_ops;
  if (r.upper_memory > r.memory.total) memory["upper_bytes"] = r.upper_memory;
  memory["limit_bytes"] = r.memory_limit > 0 ? Json(r.memory_limit) : Json();
  return memory;
}

Json picked_json(const Picked& picked, const std::string& cost_model) {
  Json tried = Json::array();
  for (const SearcherTrial& t : picked.tried) {
    Json entry = {{"searcher", t.searcher}, {"found", t.found}};
    if (t.found) {
      entry[price_key("", cost_model)] = t.cost;
    } else {
      if (t.cost > 0) entry[price_key("no_less_than", cost_model)] = t.cost;
      entry["error"] = t.error;
    }
    if (t.memory > 0) entry["memory_bytes"] = t.memory;
    tried.push_back(std::move(entry));
  }
  return {{"searcher", picked.searcher}, {"why", picked.why}, {"tried", tried}};
}

Json ops_json(const Report& r, std::size_t rows) {
  Json list = Json::array();
  for (std::size_t i = 0; i < r.op_costs.size() && (rows == 0 || i < rows); ++i) {
    const OpSummary& op = r.op_costs[i];
    list.push_back({{"name", op.name},
                    {"type", op.type},
                    {"assignment", op.assignment},
                    {"in_strategy", Json::parse(op.in_strategy)},
                    {price_key("compute", r.cost_model), op.compute},
                    {price_key("communication", r.cost_model), op.communication}});
  }
  return list;
}

Json reshards_json(const Report& r, std::size_t rows) {
  Json list = Json::array();
  for (std::size_t i = 0; i < r.reshards.size() && (rows == 0 || i < rows); ++i) {
    const ReshardSummary& s = r.reshards[i];
    list.push_back({{"tensor", s.tensor},
                    {"reader", s.reader},
                    {"from", s.from},
                    {"to", s.to},
                    {"steps", s.steps},
                    {price_key("", r.cost_model), s.seconds},
                    {"sent_bytes", s.sent_bytes}});
  }
  return list;
}

Json collective_json(const Collective& c, const Mesh& mesh) {
  Json axes = Json::array();
  for (int axis : c.axes) axes.push_back(mesh.axes[static_cast<std::size_t>(axis)].name);
  return {{"kind", name_of(c.kind)}, {"mesh_axes", axes}};
}

Json trial_json(const MeshTrial& t, const std::string& cost_model) {
  Json entry = {{"mesh", mesh_json(t.mesh)}, {"end", name_of(t.end)}};
  // Whether any plan fits is not known of a mesh that was left before one was found.
  const bool known = t.end == TrialEnd::kPlan || t.end == TrialEnd::kNothingFits;
  entry["feasible"] = known ? Json(t.end == TrialEnd::kPlan) : Json();
  entry["pruned"] = t.end == TrialEnd::kPruned;
  entry["stopped_early"] = t.stopped;
  if (!t.why.empty()) entry["why"] = t.why;
  entry[price_key("", cost_model)] = number(t.cost);
  entry[price_key("lower_bound", cost_model)] = number(t.lower_bound);
  entry["nodes"] = t.nodes;
  entry["edges"] = t.edges;
  entry["candidates"] = t.candidates;
  return entry;
}

}  // namespace

std::string to_json(const Report& r, std::size_t rows) {
  Json j = {{"format", "autopar-report"}, {"version", 1}};
  j["model"] = {{"name", r.model},
                {"sha256", r.model_sha256},
                {"ops", r.ops},
                {"parameters", r.parameter_count},
                {"parameters_bytes", r.parameter_bytes}};
  if (!r.model_path.empty()) j["model"]["path"] = r.model_path;
  j["cluster"] = {{"name", r.cluster}, {"devices", r.devices}};
  j["searcher"] = r.searcher;
  if (!r.picked.searcher.empty()) j["picked"] = picked_json(r.picked, r.cost_model);
  j["cost_model"] = r.cost_model;
  j["cost_unit"] = unit_of(r.cost_model);  // of prices, see price_key()
  const auto key = [&](const std::string& of) { return price_key(of, r.cost_model); };
  j["mesh"] = mesh_json(r.mesh);
  j["cost"] = {{key(""), r.seconds},
               {key("compute"), r.compute},
               {key("communication"), r.communication},
               {key("lower_bound"), r.lower_bound},
               {key("unlimited_lower_bound"), number(r.unlimited_lower_bound)},
               {"gap", r.gap},
               {"proven_optimal", r.proven && r.bounded},
               {"interrupted", r.interrupted},
               {"meshes_not_tried", r.meshes_not_tried},
               {"bounds_own_mesh", r.bounds_own_mesh},
               {"meshes_left_out", r.meshes_left_out},
               {"ended_by", r.ended_by}};
  j["profile"] = r.profile;
  if (r.step) {
    Seconds exposed = 0;
    for (const Seconds waited : r.step->exposed) exposed += waited;
    j["streams"] = {{"compute_seconds", r.step->compute},
                    {"communication_seconds", r.step->communication},
                    {"host_seconds", r.step->host},
                    {"exposed_communication_seconds", exposed}};
    for (const auto& [tier, seconds] : r.links) j["streams"]["links"][tier] = seconds;
  }
  j["memory"] = memory_json(r);
  if (r.training) j["training"] = Json::parse(training_json(*r.training, r.seconds, r.devices));
  for (const PlanTrial& trial : r.tried) {
    j["plans_tried"].push_back({{"micro_batches", trial.micro_batches},
                                {"recompute", trial.recompute},
                                {unit_of(r.cost_model), trial.cost > 0 ? Json(trial.cost) : Json()},
                                {"outcome", trial.cost > 0            ? "plan"
                                            : trial.only_cheaper_ones ? "nothing cheaper"
                                                                      : "nothing fits"}});
    if (trial.moving) j["plans_tried"].back()["moving"] = true;
    if (trial.of_parts) j["plans_tried"].back()["of_parts"] = true;
  }
  j["collectives"] = Json::array();
  for (const CollectiveSummary& c : r.collectives) {
    j["collectives"].push_back({{"kind", c.kind},
                                {"mesh_axes", c.axes},
                                {"count", c.count},
                                {key(""), c.seconds},
                                {"sent_bytes", c.sent_bytes}});
    if (r.step) j["collectives"].back()["exposed_seconds"] = c.exposed;
  }
  j["baselines"] = Json::array();
  for (const Baseline& b : r.baselines) {
    Json entry = {{"name", b.name}, {"found", b.found}};
    if (b.found) {
      entry[key("")] = b.seconds;
      entry["memory_bytes"] = b.memory_bytes;
      entry["fits"] = b.fits;
      entry["mesh"] = b.mesh;
    }
    j["baselines"].push_back(entry);
  }
  j["meshes"] = Json::array();
  for (const MeshTrial& t : r.trials) j["meshes"].push_back(trial_json(t, r.cost_model));
  j["ops"] = ops_json(r, rows);
  j["reshards"] = reshards_json(r, rows);
  add_propagation(r, rows, j);
  j["warnings"] = r.warnings;
  for (const auto& [phase, seconds] : r.phases) j["phase_seconds"][phase] = seconds;
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string terms_json(const Graph& graph, const Mesh& mesh, const StrategyCost& cost,
                       const std::string& cost_model) {
  Json terms = Json::array();
  for (const CostTerm& term : cost.terms) {
    Json entry;
    entry["kind"] = term.kind == CostTerm::Kind::kCompute ? "compute" : "collective";
    entry["op"] = term.op.valid() ? Json(graph.op(term.op).name) : Json();
    if (term.value.valid()) {
      entry["tensor"] = graph.value(term.value).name;
      entry["to_hub"] = term.to_hub;
    }
    if (term.kind == CostTerm::Kind::kCollective) {
      entry["collective"] = collective_json(term.collective, mesh);
      entry["sent_bytes"] = term.sent_bytes;
    }
    entry[price_key("", cost_model)] = term.seconds;
    terms.push_back(std::move(entry));
  }
  Json j = {{"format", "autopar-price"},
            {"version", 1},
            {"cost_model", cost_model},
            {"cost_unit", unit_of(cost_model)},
            {price_key("", cost_model), cost.time()},
            {price_key("compute", cost_model), cost.compute()},
            {price_key("communication", cost_model), cost.communication()},
            {"memory_bytes", cost.memory.total}};
  j["memory"] = {
      {"peak_op", graph.ops.empty()
                      ? Json()
                      : Json(graph.ops[static_cast<std::size_t>(cost.memory.time)].name)},
      {"parameters_bytes", cost.memory.parameters},
      {"constants_bytes", cost.memory.constants},
      {"activations_bytes", cost.memory.activations},
      {"reshards_bytes", cost.memory.reshards}};
  j["terms"] = std::move(terms);
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace autopar
