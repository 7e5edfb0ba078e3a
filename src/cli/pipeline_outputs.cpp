#include "cli/pipeline_outputs.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "autopar/phases.hpp"
#include "autopar/strategy_lines.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/interrupt.hpp"
#include "cli/one_device.hpp"
#include "cli/outputs.hpp"
#include "cli/pipeline_report.hpp"
#include "cli/pipeline_timeline.hpp"
#include "cli/plan_files.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/chunk_cost.hpp"
#include "report/contradiction.hpp"
#include "support/parallel.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::ordered_json;

struct PhasePart {
  StepPhase phase;
  StepPart part;
};

// The programs of a chunk.
Result<std::vector<PhasePart>> phases_of(const ChunkPlan& chunk) {
  const SearchRequest& request = *chunk.planned->request;
  const Graph& graph = request.graph;
  const std::vector<char> reduces = reduce_part(graph, chunk.reduce_ops);
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

// What several chunks make of one value, each for programs of its own, such as what they all read
// in both parts of the backward pass, has the name of the chunk behind its own in all but the
// first.
void name_apart(const PipelinePlan& plan, std::vector<std::vector<PhasePart>>& parts) {
  std::map<std::string, std::set<std::size_t>> makers;
  for (std::size_t c = 0; c < parts.size(); ++c) {
    for (const PhasePart& part : parts[c]) {
      const Graph& graph = part.part.graph;
      for (ValueId id : graph.outputs) makers[graph.value(id).name].insert(c);
    }
  }
  for (const Handed& one : plan.handed) makers.erase(one.value);
  for (std::size_t c = 0; c < parts.size(); ++c) {
    for (PhasePart& part : parts[c]) {
      for (Value& value : part.part.graph.values) {
        const auto made = makers.find(value.name);
        if (made == makers.end() || *made->second.begin() == c) continue;
        if (made->second.count(c) != 0) value.name += ".chunk" + std::to_string(c);
      }
    }
  }
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
  AUTOPAR_TRY(parts, parts_of(graph, whole.rules, unsharded_strategy(graph)));
  const bool is_trained = has_backward_pass(graph);
  programs.unsharded.emplace_back(is_trained ? StepPhase::kForwardBackward : StepPhase::kForward,
                                  unsharded(parts.pass.graph));
  if (is_trained) {
    programs.unsharded.emplace_back(StepPhase::kUpdate, unsharded(parts.update.graph));
  }
  programs.step.reference = StepReference::kPasses;
  return Ok{};
}

Result<Programs> programs_of(const PipelinePlan& plan, const Inputs& whole, int threads) {
  Programs programs;
  Step& step = programs.step;
  step.world_size = plan.form.stages * plan.stage.device_count();
  step.micro_batches = plan.schedule.micro_batches;
  step.outputs = outputs_of_step(whole);
  std::set<std::string> read, handed;
  for (const Handed& one : plan.handed) handed.insert(one.value);
  std::vector<std::vector<PhasePart>> parts(plan.chunks.size());
  AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads, parts.size(), [&](std::size_t c) -> Status {
    AUTOPAR_TRY(of_chunk, phases_of(plan.chunks[c]));
    parts[c] = std::move(of_chunk);
    return Ok{};
  }));
  name_apart(plan, parts);
  struct OfChunk {
    std::size_t chunk;
    const PhasePart* part;
  };
  std::vector<OfChunk> all;
  for (std::size_t c = 0; c < parts.size(); ++c) {
    for (const PhasePart& part : parts[c]) all.push_back({c, &part});
  }
  programs.plans.resize(all.size());
  AUTOPAR_RETURN_IF_ERROR(try_in_parallel(threads, all.size(), [&](std::size_t p) -> Status {
    const StepPart& part = all[p].part->part;
    AUTOPAR_TRY(program, partition(part.graph, part.rules, part.strategy, plan.stage,
                                   whole.gradient_bucket));
    move_groups(program.program, ranks_of(plan, all[p].chunk).front());
    programs.plans[p] = std::move(program);
    return Ok{};
  }));
  for (std::size_t c = 0; c < parts.size(); ++c) {
    for (const PhasePart& part : parts[c]) {
      for (ValueId id : part.part.graph.inputs) read.insert(part.part.graph.value(id).name);
      if (part.phase == StepPhase::kUpdate) add_told(part.part.graph, whole.loss, handed, step);
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

StrategyLines own_strategy(const PipelinePlan& plan, std::size_t c, const Inputs& whole,
                           const PlanOptions& options) {
  const ChunkPlan& chunk = plan.chunks[c];
  const SearchRequest& request = *chunk.planned->request;
  StrategyOrigin origin = origin_of(whole, fs::path(options.model).filename().string());
  origin.searcher = chunk.planned->outcome.searcher;
  take_recompute(*chunk.planned->inputs, origin);
  origin.cost = {plan.times.makespan, plan.lower_bound, plan.gap(), plan.peak_bytes, {}};
  return strategy_lines(request.graph, request.rules, chunk.planned->outcome.strategy,
                        request.cluster, origin);
}

// What a file says of the ops or the tensors of all chunks, by name. One writer writes the same of
// what is the same.
class OfAll {
 public:
  using Members = std::vector<StrategyLines::Member>;

  void add(const Members& members) {
    for (const auto& [name, text] : members) {
      if (places_.emplace(name, in_order_.size()).second) in_order_.emplace_back(name, text);
    }
  }
  const std::string* find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : &in_order_[found->second].second;
  }
  const Members& in_order() const { return in_order_; }

 private:
  Members in_order_;
  std::unordered_map<std::string, std::size_t> places_;
};

// Where the file has something else of the name, or something that the chunk has not: an op that
// hands on a hub.
Json said_otherwise(const OfAll::Members& own, const OfAll& all, const Graph& graph) {
  Json otherwise = Json::object();
  std::unordered_set<std::string> of_chunk;
  for (const auto& [name, text] : own) {
    of_chunk.insert(name);
    if (*all.find(name) != text) otherwise[name] = Json::parse(text);
  }
  for (const Value& value : graph.values) {
    const std::string name = value.name + ".hub";
    if (all.find(name) != nullptr && of_chunk.count(name) == 0) otherwise[name] = nullptr;
  }
  return otherwise;
}

// What a chunk says for itself, its mesh and what it repeats among it, and what all say.
struct Said {
  std::vector<StrategyLines> own;
  std::vector<Json> heads;
  OfAll ops, tensors;
};

Json chunk_json(const PipelinePlan& plan, std::size_t c, const Said& said) {
  const ChunkPlan& chunk = plan.chunks[c];
  Json json = {
      {"chunk", c},
      {"ops",
       {c == 0 ? chunk.first_and_last.front() : plan.cut_ops[c - 1], chunk.first_and_last.back()}},
      {"recompute", said.heads[c].value("recompute", Json("none"))}};
  if (said.heads[c].contains("recompute_from")) {
    json["recompute_from"] = said.heads[c]["recompute_from"];
  }
  const Graph& graph = chunk.planned->request->graph;
  Json otherwise = Json::object();
  Json ops = said_otherwise(said.own[c].ops, said.ops, graph);
  Json tensors = said_otherwise(said.own[c].tensors, said.tensors, graph);
  if (!ops.empty()) otherwise["ops"] = std::move(ops);
  if (!tensors.empty()) otherwise["tensors"] = std::move(tensors);
  if (!otherwise.empty()) json["otherwise"] = std::move(otherwise);
  return json;
}

Json step_json(const PipelinePlan& plan, const Said& said) {
  std::vector<Json> stages(static_cast<std::size_t>(plan.form.stages));
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    Json& stage = stages[static_cast<std::size_t>(plan.schedule.stage_of_chunk[c])];
    if (stage.is_null()) {
      stage = {{"first_rank", ranks_of(plan, c).front()},
               {"ranks", plan.stage.device_count()},
               {"mesh", said.heads[c].at("mesh")},
               {"chunks", Json::array()}};
    }
    stage["chunks"].push_back(chunk_json(plan, c, said));
  }
  Json step = {{"micro_batches", plan.schedule.micro_batches},
               {"schedule", schedule_name(plan)},
               {"stages", stages}};
  if (plan.has_own_passes || !parse_schedule_kind(plan.form.schedule)) {
    std::istringstream table(schedule_text(plan.passes));
    for (std::string line; std::getline(table, line);) step["schedule_lines"].push_back(line);
  }
  return step;
}

// One file for all stages: every op and tensor once, each by the axes of its own stage. What two
// chunks have, the later one says again where it has it otherwise.
std::string strategy_text(const PipelinePlan& plan, const Inputs& whole,
                          const PlanOptions& options) {
  Said said;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    said.own.push_back(own_strategy(plan, c, whole, options));
    said.heads.push_back(Json::parse(said.own[c].head + "}"));
    said.ops.add(said.own[c].ops);
    said.tensors.add(said.own[c].tensors);
  }
  Json head = said.heads[0];
  head.erase("mesh");
  head.erase("recompute");
  head.erase("recompute_from");
  head["step"] = step_json(plan, said);
  std::string text = head.dump(1);
  text.erase(text.rfind("\n}"));
  return to_text(StrategyLines{std::move(text), said.ops.in_order(), said.tensors.in_order()});
}

}  // namespace

Status write_pipeline(const PipelinePlan& plan, const Inputs& whole, const PlanOptions& options,
                      const CommonOptions& common) {
  end_on_interrupt();
  const int threads = threads_of_search(common);
  Result<Programs> made = Programs();
  std::string strategy;
  in_parallel(threads, 2, [&](std::size_t i) {
    if (i == 0) made = programs_of(plan, whole, threads);
    if (i == 1) strategy = strategy_text(plan, whole, options);
  });
  if (!made) return made.error();
  const Programs& programs = *made;
  const std::string folder = output_folder(options);
  AUTOPAR_TRY(earlier, earlier_plan(options));
  OutputFolder files(folder);
  AUTOPAR_RETURN_IF_ERROR(files.make());
  PlanMetadata metadata = metadata_of(*plan.chunks.front().planned->request, whole, strategy);
  // What it refers to the programs do, too.
  if (whole.has_whole_step) {
    AUTOPAR_RETURN_IF_ERROR(files.write(kTrainingFile, whole.training_bytes));
  }
  AUTOPAR_TRY(warnings, write_programs(programs, metadata, options, whole, threads, files));
  AUTOPAR_RETURN_IF_ERROR(files.write("strategy.json", strategy));
  if (!options.timeline_file.empty()) {
    AUTOPAR_RETURN_IF_ERROR(write_file_atomically(options.timeline_file,
                                                  pipeline_timeline_json(plan, options.updates)));
  }
  std::vector<std::string> told = whole.warnings;
  if (!whole.mixing_op.empty()) told.push_back(told_of_mixing(whole));
  const std::string wrong = contradiction(plan.lower_bound, plan.times.makespan);
  if (!wrong.empty()) told.push_back(wrong);
  told.insert(told.end(), warnings.begin(), warnings.end());
  const std::string report = pipeline_report(plan, whole, options, told);
  AUTOPAR_RETURN_IF_ERROR(files.write("report.json", report));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  tell_of_earlier(folder, earlier, files.written(), options.model);
  for (const std::string& warning : told) logging::warn("warning: {}", warning);
  if (common.json) {
    std::cout << report;
  } else if (!common.quiet) {
    std::cout << pipeline_table(plan, whole, options) << "\nwrote " << folder
              << "/: " << (whole.has_whole_step ? "train.onnx, " : "") << "strategy.json, "
              << names_of(programs) << ", report.json\n";
  }
  return Ok{};
}

}  // namespace autopar::cli
