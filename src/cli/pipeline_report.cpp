#include "cli/pipeline_report.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "autopar/report.hpp"
#include "cli/outputs.hpp"
#include "json/parse.hpp"
#include "report/contradiction.hpp"
#include "search/bound_beside.hpp"
#include "support/counted.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostText = 100;  // of why there is no plan

using Json = nlohmann::ordered_json;

std::string mesh_text(const ChunkPlan& chunk) {
  const Mesh& mesh = chunk.planned->outcome.strategy.mesh;
  return to_text(mesh);
}

// Of a step, how long the chunk's compute waits for its collectives.
Seconds waited_of(const ChunkPlan& chunk) {
  const StrategyCost& cost = chunk.strategy_cost();
  if (!cost.step) return cost.communication();
  return std::accumulate(cost.step->exposed.begin(), cost.step->exposed.end(), Seconds{0});
}

TrainingWork work_of(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options) {
  TrainingWork work = training_work(whole.forward, whole.cluster);
  work.micro_batches = plan.schedule.micro_batches;
  work.zero = options.zero;
  return work;
}

// Others beside the plan, or the name of its template.
bool has_tried(const PipelinePlan& plan) {
  return plan.tried.size() > 1 || (plan.tried.size() == 1 && !plan.tried.front().why.empty());
}

Json report_json(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options,
                 const std::vector<std::string>& warnings = {}) {
  Json stages = Json::array();
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const ChunkPlan& chunk = plan.chunks[c];
    const StrategyCost& cost = chunk.strategy_cost();
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_chunk[c]);
    stages.push_back({{"chunk", c},
                      {"stage", stage},
                      {"first_op", chunk.first_and_last.front()},
                      {"last_op", chunk.first_and_last.back()},
                      {"mesh", mesh_text(chunk)},
                      {"recompute", to_text(levels_of(*chunk.planned->inputs))},
                      {"like", chunk.alike < 0 ? Json() : Json(chunk.alike)},
                      {"forward_seconds", chunk.cost.steady.forward},
                      {"backward_seconds", chunk.cost.steady.backward},
                      {"update_seconds", chunk.cost.reduce + chunk.cost.update},
                      {"exposed_communication_seconds", waited_of(chunk)},
                      {"send_forward_seconds", chunk.cost.send_forward},
                      {"send_backward_seconds", chunk.cost.send_backward},
                      {"idle_seconds", plan.times.idle[stage]},
                      {"in_flight", chunk.in_flight},
                      {"memory_bytes", cost.memory.total}});
  }
  const Profile& profile = whole.cluster.profile;
  Json report = {
      {"format", "autopar-report"},
      {"version", 1},
      {"model",
       {{"name", fs::path(options.model).filename().string()}, {"sha256", whole.model.sha256}}},
      {"cluster", {{"name", whole.cluster.name}, {"devices", whole.cluster.device_count()}}},
      {"cost",
       {{"seconds", plan.times.makespan},
        {"lower_bound_seconds", plan.lower_bound},
        {"gap", plan.gap()},
        {"proven_optimal", plan.lower_bound > 0 && plan.gap() <= kSameSum},
        {"interrupted", plan.interrupted}}},
      {"profile", profile.ideal() ? "ideal" : profile.name},
      {"memory", {{"peak_bytes", plan.peak_bytes}, {"upper_bytes", plan.upper_bytes}}},
      {"pipeline",
       {{"stages", plan.form.stages},
        {"chunks_per_stage", plan.form.chunks_per_stage},
        {"schedule", schedule_name(plan)},
        {"micro_batches", plan.schedule.micro_batches},
        {"bubble_rate", plan.times.bubble_rate},
        {"chunks", stages}}}};
  if (!options.train) report["model"]["path"] = path_from_folder(options);
  if (plan.has_own_passes && parse_schedule_kind(plan.form.schedule)) {
    Json& whole_passes = report["pipeline"]["whole_backward"] = Json::array();
    for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
      if (plan.chunks[c].weight_ops.empty()) whole_passes.push_back(c);
    }
  }
  if (has_tried(plan)) {
    Json tried = Json::array();
    for (const PipelineTrial& trial : plan.tried) {
      Json one = {{"stages", trial.form.stages},
                  {"chunks_per_stage", trial.form.chunks_per_stage},
                  {"schedule", trial.form.schedule}};
      if (trial.form.micro_batches > 0) one["micro_batches"] = trial.form.micro_batches;
      one["seconds"] = trial.seconds > 0 ? Json(trial.seconds) : Json();
      one["memory_bytes"] = trial.seconds > 0 ? Json(trial.peak_bytes) : Json();
      if (trial.bound > 0) one["lower_bound_seconds"] = trial.bound;
      if (!trial.why.empty()) one["why"] = trial.why;
      tried.push_back(std::move(one));
    }
    report["pipeline"]["tried"] = std::move(tried);
  }
  if (whole.forward.samples > 0) {
    report["training"] = Json::parse(training_json(
        work_of(plan, whole, options), plan.times.makespan, whole.cluster.device_count()));
  }
  report["warnings"] = warnings;
  return report;
}

// Of a message what fits into a line.
std::string first_words(const std::string& text) {
  const std::string sentence = text.substr(0, std::min(text.find_first_of(";\n"), text.find(". ")));
  return sentence.size() <= kMostText ? sentence : sentence.substr(0, kMostText - 3) + "...";
}

// Where several numbers of micro-batches were tried: of each, those without a plan in one, the one
// with the least bound first.
std::vector<PipelineTrial> joined(const std::vector<PipelineTrial>& tried) {
  std::vector<PipelineTrial> found;
  std::map<std::int64_t, std::vector<PipelineTrial>> without;
  for (const PipelineTrial& trial : tried) {
    const bool is_listed = trial.seconds > 0 || trial.form.micro_batches == 0;
    if (is_listed) {
      found.push_back(trial);
    } else {
      without[trial.form.micro_batches].push_back(trial);
    }
  }
  for (auto& [count, trials] : without) {
    std::stable_sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) {
      return std::pair(a.bound == 0, a.bound) < std::pair(b.bound == 0, b.bound);
    });
    PipelineTrial first = trials.front();
    if (trials.size() > 1) {
      first.why = first_words(first.why) + ", and " + std::to_string(trials.size() - 1) +
                  " other forms" + (first.bound > 0 ? " no less" : "");
    }
    found.push_back(std::move(first));
  }
  return found;
}

// What the report lists, without what a table does not tell.
std::vector<PipelineTrial> tried_of(const Json& pipeline) {
  std::vector<PipelineTrial> tried;
  for (const Json& one : pipeline.value("tried", Json::array())) {
    const bool found = !one.at("seconds").is_null();
    tried.push_back(
        {{one.at("stages").get<std::int64_t>(), one.at("chunks_per_stage").get<std::int64_t>(),
          one.at("schedule").get<std::string>(), one.value("micro_batches", std::int64_t{0})},
         found ? one.at("seconds").get<Seconds>() : 0,
         found ? one.at("memory_bytes").get<Bytes>() : 0,
         one.value("why", std::string()),
         one.value("lower_bound_seconds", Seconds{0})});
  }
  return tried;
}

// The quickest first, then those without a plan.
std::string tried_text(const Json& pipeline) {
  std::vector<PipelineTrial> tried = joined(tried_of(pipeline));
  if (tried.empty()) return "";
  std::stable_sort(tried.begin(), tried.end(), [](const auto& a, const auto& b) {
    return std::pair(a.seconds == 0, a.seconds) < std::pair(b.seconds == 0, b.seconds);
  });
  TextTable table;
  table.right_aligned = {false, true, true, false};
  table.rows = {{"tried", "time", "memory/device", ""}};
  for (const PipelineTrial& trial : tried) {
    const bool found = trial.seconds > 0;
    table.rows.push_back({to_text(trial.form), found ? format_seconds(trial.seconds) : "",
                          found ? format_bytes(static_cast<double>(trial.peak_bytes)) : "",
                          first_words(trial.why)});
  }
  return "\n" + to_text(table);
}

std::string bound_text(const Json& cost) {
  const auto bound = cost.at("lower_bound_seconds").get<Seconds>();
  const std::string early = cost.value("interrupted", false) ? "; stopped early" : "";
  if (bound <= 0) return "no bound" + early;
  if (!contradiction(bound, cost.at("seconds").get<Seconds>()).empty()) {
    return "BELOW ITS BOUND of " + format_seconds(bound);
  }
  return most_above_optimum(cost.at("gap").get<double>()) +
         " (no pipeline of these forms takes less than " + format_seconds(bound) + ")" + early;
}

std::string seconds_at(const Json& chunk, const char* key) {
  return format_seconds(chunk.at(key).get<Seconds>());
}

// Without B and U where no chunk has a backward pass: of a model that is not trained.
std::string chunks_text(const Json& chunks) {
  const bool is_trained = std::any_of(chunks.begin(), chunks.end(), [](const Json& chunk) {
    return chunk.at("backward_seconds").get<Seconds>() > 0;
  });
  TextTable table;
  table.rows = {{"stage", "chunk", "ops", "mesh", "F"}};
  if (is_trained) table.rows[0].insert(table.rows[0].end(), {"B", "U"});
  table.rows[0].insert(table.rows[0].end(), {"exposed", "idle", "memory/device"});
  table.right_aligned.assign(table.rows[0].size(), true);
  table.right_aligned[2] = table.right_aligned[3] = false;
  for (const Json& chunk : chunks) {
    std::vector<std::string> row = {
        std::to_string(chunk.at("stage").get<std::int64_t>()),
        std::to_string(chunk.at("chunk").get<std::int64_t>()),
        chunk.at("first_op").get<std::string>() + " to " + chunk.at("last_op").get<std::string>(),
        chunk.at("mesh").get<std::string>(), seconds_at(chunk, "forward_seconds")};
    if (is_trained) {
      row.push_back(seconds_at(chunk, "backward_seconds"));
      row.push_back(seconds_at(chunk, "update_seconds"));
    }
    row.push_back(seconds_at(chunk, "exposed_communication_seconds"));
    row.push_back(seconds_at(chunk, "idle_seconds"));
    row.push_back(format_bytes(chunk.at("memory_bytes").get<double>()));
    table.rows.push_back(std::move(row));
  }
  return to_text(table);
}

// Of a schedule with backward passes in two parts.
std::string whole_text(const Json& pipeline) {
  if (!pipeline.contains("whole_backward")) return "";
  const std::size_t chunks = pipeline.at("chunks").size();
  const std::size_t whole = pipeline.at("whole_backward").size();
  return "  the backward passes of " + std::to_string(whole) + " of " + std::to_string(chunks) +
         " chunks are whole: what their two parts hand on does not fit\n";
}

// Throws Json::exception for what is no such report.
std::string table_of(const Json& report) {
  const Json& pipeline = report.at("pipeline");
  const Json& cost = report.at("cost");
  const Json& cluster = report.at("cluster");
  const auto stages = pipeline.at("stages").get<std::int64_t>();
  const auto devices = cluster.at("devices").get<std::int64_t>();
  const auto per_stage = pipeline.at("chunks_per_stage").get<std::int64_t>();
  const auto micro_batches = pipeline.at("micro_batches").get<std::int64_t>();
  const auto seconds = cost.at("seconds").get<Seconds>();
  const std::string chunks =
      per_stage == 1 ? "" : ", " + std::to_string(per_stage) + " chunks per stage";
  std::string rates;
  if (report.contains("training")) {
    rates = "  " + training_line(training_of_json(report.at("training").dump()), seconds, devices) +
            "\n";
  }
  std::string warnings;
  for (const Json& warning : report.value("warnings", Json::array())) {
    warnings += "\nwarning: " + warning.get<std::string>();
  }
  if (!warnings.empty()) warnings += "\n";
  return report.at("model").at("name").get<std::string>() + " on " +
         cluster.at("name").get<std::string>() + ": " + counted(stages, "stage") + " of " +
         counted(devices / std::max<std::int64_t>(stages, 1), "device") + ", " +
         counted(micro_batches, "micro-batch", "micro-batches") + ", schedule " +
         pipeline.at("schedule").get<std::string>() + chunks + "\n\n" +
         chunks_text(pipeline.at("chunks")) + "\n  a step takes " + format_seconds(seconds) +
         ", of which stages wait for " + format_percent(pipeline.at("bubble_rate").get<double>()) +
         "; the fullest stage takes " +
         format_bytes(report.at("memory").at("peak_bytes").get<double>()) + " per device; " +
         bound_text(cost) + "\n" + rates + whole_text(pipeline) + tried_text(pipeline) + warnings;
}

}  // namespace

std::string schedule_name(const PipelinePlan& plan) {
  return fs::path(plan.form.schedule).filename().string();
}

std::string pipeline_table(const PipelinePlan& plan, const Inputs& whole,
                           const PlanOptions& options) {
  return table_of(report_json(plan, whole, options));
}

Result<std::string> pipeline_table_of_report(const std::string& text, const std::string& path) {
  AUTOPAR_TRY(report, parse_ordered_json(text, path));
  try {
    return table_of(report);
  } catch (const nlohmann::json::exception& error) {
    return input_error(path + ": is not a report: " + message_of(error));
  }
}

bool is_pipeline_report(const std::string& text) {
  const auto report = parse_json(text, "");
  return report && report->is_object() && report->contains("pipeline");
}

std::string pipeline_report(const PipelinePlan& plan, const Inputs& whole,
                            const PlanOptions& options, const std::vector<std::string>& warnings) {
  return report_json(plan, whole, options, warnings)
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

std::string pipeline_price(const PipelinePlan& plan, const Inputs& whole,
                           const PlanOptions& options, bool json) {
  std::string text;
  Json chunks = Json::array();
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const SearchRequest& request = *plan.chunks[c].planned->request;
    const SearchOutcome& outcome = plan.chunks[c].planned->outcome;
    const Mesh& mesh = outcome.strategy.mesh;
    if (json) {
      chunks.push_back(Json::parse(
          terms_json(request.graph, mesh, plan.chunks[c].strategy_cost(), request.cost_model)));
      continue;
    }
    text += "chunk " + std::to_string(c) + ", all its passes without those of others\n\n" +
            terms_table(request.graph, mesh, plan.chunks[c].strategy_cost(), request.cost_model) +
            "\n";
  }
  if (!json) return text + pipeline_table(plan, whole, options);
  Json price = {{"format", "autopar-price"},
                {"version", 1},
                {"seconds", plan.times.makespan},
                {"memory_bytes", plan.peak_bytes},
                {"pipeline", report_json(plan, whole, options).at("pipeline")},
                {"chunks", std::move(chunks)}};
  return price.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace autopar::cli
