#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <unordered_map>

#include "autopar/phases.hpp"
#include "autopar/report.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/pipeline_plan.hpp"
#include "cli/pipeline_timeline.hpp"
#include "cli/plan_files.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostText = 100;  // of why there is no plan

using Json = nlohmann::ordered_json;

struct PhasePart {
  StepPhase phase;
  StepPart part;
};

// The programs of a chunk. What reductions read is made by them, not by the update.
Result<std::vector<PhasePart>> phases_of(const ChunkPlan& chunk) {
  const SearchRequest& request = *chunk.planned->request;
  const Graph& graph = request.graph;
  const std::set<std::string> named(chunk.reduce_ops.begin(), chunk.reduce_ops.end());
  const auto uses = uses_of(graph);
  std::vector<char> reduces(graph.ops.size());
  for (std::size_t o = graph.ops.size(); o-- > 0;) {
    const Op& op = graph.ops[o];
    if (op.phase != Phase::kUpdate) continue;
    reduces[o] = named.count(op.name) != 0;
    for (ValueId id : op.outputs) {
      if (!id.valid()) continue;
      for (const Use& use : uses[id.index()]) reduces[o] |= reduces[use.op.index()];
    }
  }
  const auto phase_of = [&](std::size_t o) {
    const Phase phase = graph.ops[o].phase;
    if (phase == Phase::kForward) return StepPhase::kForward;
    if (phase == Phase::kUpdate) return reduces[o] != 0 ? StepPhase::kReduce : StepPhase::kUpdate;
    if (chunk.weight_ops.empty()) return StepPhase::kBackward;
    return chunk.weight_ops[o] != 0 ? StepPhase::kWeightGradients : StepPhase::kInputGradients;
  };
  std::vector<StepPhase> phases;
  std::vector<int> part_of_op(graph.ops.size());
  for (const StepPhase phase :
       {StepPhase::kForward, StepPhase::kBackward, StepPhase::kInputGradients,
        StepPhase::kWeightGradients, StepPhase::kReduce, StepPhase::kUpdate}) {
    bool any = false;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      if (phase_of(o) != phase) continue;
      part_of_op[o] = static_cast<int>(phases.size());
      any = true;
    }
    if (any) phases.push_back(phase);
  }
  AUTOPAR_TRY(parts, cut_parts(graph, request.rules, chunk.planned->outcome.strategy, part_of_op,
                               static_cast<int>(phases.size())));
  std::vector<PhasePart> found;
  for (std::size_t p = 0; p < phases.size(); ++p) found.push_back({phases[p], std::move(parts[p])});
  return found;
}

std::vector<std::int64_t> ranks_of(const PipelinePlan& plan, std::size_t chunk) {
  const std::int64_t size = plan.stage.device_count();
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), plan.schedule.stage_of_chunk[chunk] * size);
  return ranks;
}

// Groups of collectives name ranks of the world. Those of one list are moved once.
void move_groups(Graph& program, std::int64_t first_rank) {
  std::map<const std::vector<std::int64_t>*, std::pair<IntList, IntList>> moved;
  for (Op& op : program.ops) {
    const auto groups = op.attributes.find("groups");
    if (op.domain.empty() || groups == op.attributes.end() || first_rank == 0) continue;
    auto* list = std::get_if<IntList>(&groups->second);
    if (list == nullptr) continue;
    // The list stays where it is as long as the map has it.
    auto [known, is_new] = moved.try_emplace(&list->values(), std::pair(*list, IntList()));
    if (is_new) {
      std::vector<std::int64_t> ranks = list->values();
      for (std::int64_t& rank : ranks) rank += first_rank;
      known->second.second = IntList(std::move(ranks));
    }
    *list = known->second.second;
  }
}

// The passes of the step as it was before it was cut, and its update.
Status add_unsharded(const Inputs& whole, Programs& programs) {
  const Graph& graph = whole.model.graph;
  Strategy strategy;
  strategy.mesh = Mesh{{{"device", 1, 0, 1}}};
  strategy.assignments.assign(graph.ops.size(), Assignment{{-1}});
  for (const Value& value : graph.values) {
    const Spec spec = replicated(value.shape.size());
    strategy.values.push_back({spec, spec, spec});
  }
  AUTOPAR_TRY(parts, parts_of(graph, whole.rules, strategy));
  programs.unsharded.emplace_back(StepPhase::kForwardBackward, unsharded(parts.pass.graph));
  programs.unsharded.emplace_back(StepPhase::kUpdate, unsharded(parts.update.graph));
  programs.step.reference = StepReference::kPasses;
  return Ok{};
}

Result<Programs> programs_of(const PipelinePlan& plan, const Inputs& whole) {
  Programs programs;
  Step& step = programs.step;
  step.world_size = plan.form.stages * plan.stage.device_count();
  step.micro_batches = plan.schedule.micro_batches;
  step.outputs = {{whole.loss, whole.loss_combining == LossCombining::kSum    ? Combining::kSum
                               : whole.loss_combining == LossCombining::kLast ? Combining::kLast
                                                                              : Combining::kMean}};
  std::set<std::string> read, handed;
  for (const Handed& one : plan.handed) handed.insert(one.value);
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    AUTOPAR_TRY(parts, phases_of(plan.chunks[c]));
    for (PhasePart& part : parts) {
      for (ValueId id : part.part.graph.inputs) read.insert(part.part.graph.value(id).name);
      AUTOPAR_TRY(program, partition(part.part.graph, part.part.rules, part.part.strategy,
                                     plan.stage, whole.gradient_bucket));
      move_groups(program.program, ranks_of(plan, c).front());
      programs.plans.push_back(std::move(program));
      // Without an optimizer the update tells the gradients.
      for (ValueId id : part.part.graph.outputs) {
        const std::string& name = part.part.graph.value(id).name;
        const bool is_told = part.phase == StepPhase::kUpdate && name.rfind("new.", 0) != 0 &&
                             name != whole.loss && handed.count(name) == 0;
        if (is_told) step.outputs.push_back({name, Combining::kLast});
      }
      step.programs.push_back({"plan.c" + std::to_string(c) + "." + name_of(part.phase) + ".onnx",
                               static_cast<std::int64_t>(c), part.phase, ranks_of(plan, c)});
    }
  }
  for (const MicroInput& input : whole.micro_inputs) {
    if (read.count(input.name) != 0) step.micro_inputs.push_back(input);
  }
  if (!whole.mixing_op.empty()) AUTOPAR_RETURN_IF_ERROR(add_unsharded(whole, programs));
  step.lines = plan.schedule.lines;
  // A chunk without parameters has no update, and one that no gradient reaches no backward pass.
  for (StepLine& line : step.lines) {
    std::erase_if(line,
                  [&](const StepAction& action) { return program_of(step, action) == nullptr; });
  }
  AUTOPAR_RETURN_IF_ERROR(verify(step));
  return programs;
}

// A file's own name, of a table that was read.
std::string schedule_name(const PipelinePlan& plan) {
  return fs::path(plan.form.schedule).filename().string();
}

Json own_strategy(const PipelinePlan& plan, std::size_t c, const Inputs& whole,
                  const PlanOptions& options) {
  const ChunkPlan& chunk = plan.chunks[c];
  const SearchRequest& request = *chunk.planned->request;
  StrategyOrigin origin;
  origin.model_name = fs::path(options.model).filename().string();
  origin.model_sha256 = whole.model.sha256;
  origin.cluster_name = whole.cluster.name;
  origin.cluster_sha256 = whole.cluster_sha256;
  origin.searcher = chunk.planned->outcome.searcher;
  origin.recompute = name_of(chunk.planned->inputs->recompute);
  origin.training = whole.training;
  origin.gradient_bucket = whole.gradient_bucket;
  origin.cost = {plan.times.makespan, plan.lower_bound, plan.gap(), plan.peak_bytes, {}};
  return Json::parse(strategy_to_json(request.graph, request.rules, chunk.planned->outcome.strategy,
                                      request.cluster, origin));
}

// What an object has, by name: looking a name up in it goes through all of them.
using Index = std::unordered_map<std::string, const Json*>;
Index index_of(const Json& object) {
  Index index;
  for (const auto& [name, value] : object.items()) index.emplace(name, &value);
  return index;
}

// What a file says of ops and tensors, all chunks in one.
struct OfAll {
  Json json;
  std::map<std::string, std::unordered_map<std::string, Json>> pins;  // by key and name

  void add(const char* key, const std::string& name, const Json& pin) {
    if (!pins[key].emplace(name, pin).second) return;
    json[key].get_ref<Json::object_t&>().push_back({name, pin});
  }
};

// Where the file has something else of the name, or something that the chunk has not: an op that
// hands on a hub.
Json said_otherwise(const Json& own, const OfAll& all, const Graph& graph) {
  Json otherwise = Json::object();
  for (const char* key : {"ops", "tensors"}) {
    const auto& of_all = all.pins.at(key);
    const Index of_chunk = index_of(own.at(key));
    for (const auto& [name, pin] : own.at(key).items()) {
      if (of_all.at(name) != pin) otherwise[key][name] = pin;
    }
    for (const Value& value : graph.values) {
      const std::string name = value.name + ".hub";
      const bool is_absent = of_all.count(name) != 0 && of_chunk.count(name) == 0;
      if (is_absent) otherwise[key][name] = nullptr;
    }
  }
  return otherwise;
}

Json chunk_json(const PipelinePlan& plan, std::size_t c, const Json& own, const OfAll& all) {
  const ChunkPlan& chunk = plan.chunks[c];
  Json json = {
      {"chunk", c},
      {"ops",
       {c == 0 ? chunk.first_and_last.front() : plan.cut_ops[c - 1], chunk.first_and_last.back()}},
      {"recompute", own.value("recompute", Json("none"))}};
  Json otherwise = said_otherwise(own, all, chunk.planned->request->graph);
  if (!otherwise.empty()) json["otherwise"] = std::move(otherwise);
  return json;
}

Json step_json(const PipelinePlan& plan, const std::vector<Json>& own, const OfAll& all) {
  std::vector<Json> stages(static_cast<std::size_t>(plan.form.stages));
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    Json& stage = stages[static_cast<std::size_t>(plan.schedule.stage_of_chunk[c])];
    if (stage.is_null()) {
      stage = {{"first_rank", ranks_of(plan, c).front()},
               {"ranks", plan.stage.device_count()},
               {"mesh", own[c].at("mesh")},
               {"chunks", Json::array()}};
    }
    stage["chunks"].push_back(chunk_json(plan, c, own[c], all));
  }
  Json step = {{"micro_batches", plan.schedule.micro_batches},
               {"schedule", schedule_name(plan)},
               {"stages", stages}};
  if (!parse_schedule_kind(plan.form.schedule)) {
    std::istringstream table(schedule_text(plan.passes));
    for (std::string line; std::getline(table, line);) step["schedule_lines"].push_back(line);
  }
  return step;
}

// One file for all stages: every op and tensor once, each by the axes of its own stage. What two
// chunks have, the later one says again where it has it otherwise.
std::string strategy_text(const PipelinePlan& plan, const Inputs& whole,
                          const PlanOptions& options) {
  std::vector<Json> own;
  OfAll all;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    own.push_back(own_strategy(plan, c, whole, options));
    if (c == 0) {
      all.json = own[0];
      all.json.erase("mesh");
      all.json.erase("recompute");
      for (const char* key : {"ops", "tensors"}) all.json[key] = Json::object();
    }
    for (const char* key : {"ops", "tensors"}) {
      for (const auto& [name, pin] : own[c].at(key).items()) all.add(key, name, pin);
    }
  }
  all.json["step"] = step_json(plan, own, all);
  return all.json.dump(1) + "\n";
}

std::string mesh_text(const ChunkPlan& chunk) {
  const Mesh& mesh = chunk.planned->outcome.strategy.mesh;
  return to_text(mesh);
}

Json report_json(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options) {
  Json stages = Json::array();
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const ChunkPlan& chunk = plan.chunks[c];
    const StrategyCost& cost = chunk.planned->outcome.cost;
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_chunk[c]);
    stages.push_back({{"chunk", c},
                      {"stage", stage},
                      {"first_op", chunk.first_and_last.front()},
                      {"last_op", chunk.first_and_last.back()},
                      {"mesh", mesh_text(chunk)},
                      {"recompute", name_of(chunk.planned->inputs->recompute)},
                      {"like", chunk.alike < 0 ? Json() : Json(chunk.alike)},
                      {"forward_seconds", chunk.cost.steady.forward},
                      {"backward_seconds", chunk.cost.steady.backward},
                      {"update_seconds", chunk.cost.update},
                      {"send_forward_seconds", chunk.cost.send_forward},
                      {"send_backward_seconds", chunk.cost.send_backward},
                      {"idle_seconds", plan.times.idle[stage]},
                      {"in_flight", chunk.in_flight},
                      {"memory_bytes", cost.memory.total}});
  }
  Json report = {
      {"format", "autopar-report"},
      {"version", 1},
      {"model",
       {{"name", fs::path(options.model).filename().string()}, {"sha256", whole.model.sha256}}},
      {"cluster", {{"name", whole.cluster.name}, {"devices", whole.cluster.device_count()}}},
      {"cost",
       {{"seconds", plan.times.makespan},
        {"lower_bound_seconds", plan.lower_bound},
        {"gap", plan.gap()}}},
      {"memory", {{"peak_bytes", plan.peak_bytes}, {"upper_bytes", plan.upper_bytes}}},
      {"pipeline",
       {{"stages", plan.form.stages},
        {"chunks_per_stage", plan.form.chunks_per_stage},
        {"schedule", schedule_name(plan)},
        {"micro_batches", plan.schedule.micro_batches},
        {"bubble_rate", plan.times.bubble_rate},
        {"chunks", stages}}}};
  if (plan.tried.size() > 1) {
    Json tried = Json::array();
    for (const PipelineTrial& trial : plan.tried) {
      Json one = {{"stages", trial.form.stages},
                  {"chunks_per_stage", trial.form.chunks_per_stage},
                  {"schedule", trial.form.schedule}};
      one["seconds"] = trial.seconds > 0 ? Json(trial.seconds) : Json();
      one["memory_bytes"] = trial.seconds > 0 ? Json(trial.peak_bytes) : Json();
      if (!trial.why.empty()) one["why"] = trial.why;
      tried.push_back(std::move(one));
    }
    report["pipeline"]["tried"] = std::move(tried);
  }
  if (whole.forward.tokens > 0) {
    report["training"] = {
        {"tokens_per_second_per_device", whole.forward.tokens / plan.times.makespan /
                                             static_cast<double>(whole.cluster.device_count())}};
  }
  return report;
}

std::string percent(double part) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", part * 100);
  return text;
}

// Of a message what fits into a line.
std::string first_words(const std::string& text) {
  const std::string sentence = text.substr(0, std::min(text.find_first_of(";\n"), text.find(". ")));
  return sentence.size() <= kMostText ? sentence : sentence.substr(0, kMostText - 3) + "...";
}

// The quickest first, then those without a plan.
std::string tried_text(const PipelinePlan& plan) {
  if (plan.tried.size() < 2) return "";
  std::vector<PipelineTrial> tried = plan.tried;
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

std::string bound_text(const PipelinePlan& plan) {
  if (plan.lower_bound <= 0) return "no bound";
  return "at most " + percent(plan.gap()) +
         " above the optimum (no pipeline of these forms with cuts at like places takes less "
         "than " +
         format_seconds(plan.lower_bound) + ")";
}

std::string table_of(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options) {
  TextTable table;
  table.right_aligned = {true, true, false, false, true, true, true, true, true};
  table.rows = {{"stage", "chunk", "ops", "mesh", "F", "B", "U", "idle", "memory/device"}};
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const ChunkPlan& chunk = plan.chunks[c];
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_chunk[c]);
    table.rows.push_back(
        {std::to_string(stage), std::to_string(c),
         chunk.first_and_last.front() + " to " + chunk.first_and_last.back(), mesh_text(chunk),
         format_seconds(chunk.cost.steady.forward), format_seconds(chunk.cost.steady.backward),
         format_seconds(chunk.cost.update), format_seconds(plan.times.idle[stage]),
         format_bytes(static_cast<double>(chunk.planned->outcome.cost.memory.total))});
  }
  const std::string chunks =
      plan.form.chunks_per_stage == 1
          ? ""
          : ", " + std::to_string(plan.form.chunks_per_stage) + " chunks per stage";
  return fs::path(options.model).filename().string() + " on " + whole.cluster.name + ": " +
         std::to_string(plan.form.stages) + " stages of " +
         std::to_string(plan.stage.device_count()) + " devices, " +
         std::to_string(plan.schedule.micro_batches) + " micro-batches, schedule " +
         schedule_name(plan) + chunks + "\n\n" + to_text(table) + "\n  a step takes " +
         format_seconds(plan.times.makespan) + ", of which stages wait for " +
         percent(plan.times.bubble_rate) + "; the fullest stage takes " +
         format_bytes(static_cast<double>(plan.peak_bytes)) + " per device; " + bound_text(plan) +
         "\n" + tried_text(plan);
}

}  // namespace

std::string pipeline_price(const PipelinePlan& plan, const Inputs& whole,
                           const PlanOptions& options, bool json) {
  std::string text;
  Json chunks = Json::array();
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const SearchRequest& request = *plan.chunks[c].planned->request;
    const SearchOutcome& outcome = plan.chunks[c].planned->outcome;
    const Mesh& mesh = outcome.strategy.mesh;
    if (json) {
      chunks.push_back(
          Json::parse(terms_json(request.graph, mesh, outcome.cost, request.cost_model)));
      continue;
    }
    text += "chunk " + std::to_string(c) + ", all its passes without those of others\n\n" +
            terms_table(request.graph, mesh, outcome.cost, request.cost_model) + "\n";
  }
  if (!json) return text + table_of(plan, whole, options);
  Json price = {{"format", "autopar-price"},
                {"version", 1},
                {"seconds", plan.times.makespan},
                {"memory_bytes", plan.peak_bytes},
                {"pipeline", report_json(plan, whole, options).at("pipeline")},
                {"chunks", std::move(chunks)}};
  return price.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_pipeline(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options,
                      const CommonOptions& common) {
  end_on_interrupt();
  AUTOPAR_TRY(programs, programs_of(plan, whole));
  const std::string strategy = strategy_text(plan, whole, options);
  const std::string folder = output_folder(options);
  AUTOPAR_TRY(earlier, earlier_plan(folder));
  OutputFolder files(folder);
  AUTOPAR_RETURN_IF_ERROR(files.make());
  PlanMetadata metadata = metadata_of(*plan.chunks.front().planned->request, whole, strategy);
  if (whole.has_whole_batch) {
    AUTOPAR_RETURN_IF_ERROR(files.write(kTrainingFile, whole.training_bytes));
  }
  AUTOPAR_TRY(warnings, write_programs(programs, metadata, options, whole, files));
  AUTOPAR_RETURN_IF_ERROR(files.write("strategy.json", strategy));
  if (!options.timeline_file.empty()) {
    AUTOPAR_RETURN_IF_ERROR(write_file_atomically(options.timeline_file,
                                                  pipeline_timeline_json(plan, options.updates)));
  }
  const std::string report = report_json(plan, whole, options).dump(1) + "\n";
  AUTOPAR_RETURN_IF_ERROR(files.write("report.json", report));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  tell_of_earlier(folder, earlier, files.written());
  for (const std::string& warning : whole.warnings) spdlog::warn("warning: {}", warning);
  for (const std::string& warning : warnings) spdlog::warn("warning: {}", warning);
  if (common.json) {
    std::cout << report;
  } else if (!common.quiet) {
    std::cout << table_of(plan, whole, options) << "\nwrote " << folder
              << "/: " << (whole.has_whole_batch ? "train.onnx, " : "") << "strategy.json, "
              << names_of(programs) << ", report.json\n";
  }
  return Ok{};
}

}  // namespace autopar::cli
