// A pipeline of a strategy file, without a search.
#include <map>
#include <set>

#include "planning/applied.hpp"
#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pinned_stages.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/room.hpp"
#include "search/bound_beside.hpp"

namespace autopar {

namespace {

// By chunk.
struct SaidOfChunk {
  const StrategyFile::Stage* stage = nullptr;
  const StrategyFile::Chunk* chunk = nullptr;
  std::int64_t number = 0;  // of the stage
};

std::vector<SaidOfChunk> chunks_in(const StrategyFile& file) {
  std::map<std::int64_t, SaidOfChunk> found;
  for (std::size_t s = 0; s < file.stages.size(); ++s) {
    for (const StrategyFile::Chunk& chunk : file.stages[s].chunks) {
      found[chunk.chunk] = {&file.stages[s], &chunk, static_cast<std::int64_t>(s)};
    }
  }
  std::vector<SaidOfChunk> chunks;
  for (const auto& [number, said] : found) chunks.push_back(said);
  return chunks;
}

class PipelineFile {
 public:
  PipelineFile(const StrategyFile& file, const Inputs& inputs, const PlanOptions& options,
               const CommonOptions& common)
      : file_(file), inputs_(inputs), options_(options), common_(common), said_(chunks_in(file)) {}

  Result<PipelinePlan> run() {
    AUTOPAR_RETURN_IF_ERROR(take_form());
    AUTOPAR_TRY(cuts, cuts_of());
    const Graph& step = inputs_.model.graph;
    AUTOPAR_TRY(chunks, chunks_of(step, cuts, options_.updates));
    AUTOPAR_RETURN_IF_ERROR(check_op_names(file_, inputs_.model, step));
    of_stage_ = without_graph(inputs_, plan_.stage);
    plan_.handed = std::move(chunks.handed);
    const std::vector<std::int64_t> flying = micro_batches_in_flight();
    for (std::size_t c = 0; c < chunks.chunks.size(); ++c) {
      chunks.chunks[c].graph.in_flight = flying[c];
      AUTOPAR_TRY(chunk, chunk_plan(c, std::move(chunks.chunks[c])));
      plan_.chunks.push_back(std::move(chunk));
    }
    AUTOPAR_TRY(room, room_of(plan_.stage, common_));
    AUTOPAR_RETURN_IF_ERROR(price_pipeline(inputs_.cluster, options_.updates, room, plan_));
    if (file_.cost && is_priced_alike(file_, inputs_)) {
      plan_.lower_bound = bound_of_file(file_.cost->lower_bound_seconds, plan_.times.makespan);
    }
    return std::move(plan_);
  }

 private:
  Error file_error(const std::string& what) const { return input_error(file_.path + ": " + what); }

  Status take_form() {
    const auto stages = static_cast<std::int64_t>(file_.stages.size());
    const auto chunks = static_cast<std::int64_t>(said_.size());
    plan_.form = {stages, chunks % stages == 0 ? chunks / stages : 1, file_.schedule};
    const auto stage = stage_of(inputs_.cluster, stages);
    if (!stage) {
      return file_error("is of " + std::to_string(stages) +
                        " stages, whose number does not divide the tiers of cluster '" +
                        inputs_.cluster.name + "', the outermost first");
    }
    plan_.stage = *stage;
    for (std::size_t s = 0; s < file_.stages.size(); ++s) {
      if (file_.stages[s].ranks == plan_.stage.device_count()) continue;
      return file_error("step.stages[" + std::to_string(s) + "].ranks: expected " +
                        std::to_string(plan_.stage.device_count()) + ", which is what " +
                        std::to_string(stages) + " stages have of cluster '" +
                        inputs_.cluster.name + "', found " + std::to_string(file_.stages[s].ranks));
    }
    AUTOPAR_RETURN_IF_ERROR(take_schedule());
    plan_.passes = plan_.schedule.lines;
    for (std::size_t c = 0; c < said_.size(); ++c) {
      const bool is_known = c < plan_.schedule.stage_of_chunk.size() &&
                            said_.size() == plan_.schedule.stage_of_chunk.size();
      if (is_known && plan_.schedule.stage_of_chunk[c] == said_[c].number) continue;
      return file_error(
          "step.stages: chunk " + std::to_string(c) + " of " + std::to_string(said_.size()) +
          " is on stage " + std::to_string(said_[c].number) + ", and schedule " + file_.schedule +
          " has " + std::to_string(plan_.schedule.stage_of_chunk.size()) + " chunks" +
          (is_known ? ", this one on stage " + std::to_string(plan_.schedule.stage_of_chunk[c])
                    : ""));
    }
    return Ok{};
  }

  Status take_schedule() {
    const std::string where = file_.path + ": step.schedule";
    const Graph& step = inputs_.model.graph;
    if (!file_.schedule_lines.empty()) {
      std::string table;
      for (const std::string& line : file_.schedule_lines) table += line + "\n";
      AUTOPAR_TRY(schedule, schedule_of_table(table, where + "_lines", step));
      plan_.schedule = std::move(schedule);
      plan_.has_own_passes = true;
      return Ok{};
    }
    if (!parse_schedule_kind(file_.schedule)) {
      return input_error(where +
                         ": expected the name of a schedule, or its lines in "
                         "schedule_lines, found '" +
                         file_.schedule + "'");
    }
    auto schedule = schedule_of(plan_.form, step);
    if (!schedule) return input_error(where + ": " + schedule.error().message);
    plan_.schedule = std::move(*schedule);
    return Ok{};
  }

  // Of each chunk: where passes differ from those of the schedule that is named, as many as there
  // are by that, by which the chunks were planned.
  std::vector<std::int64_t> micro_batches_in_flight() const {
    std::vector<std::int64_t> flying = in_flight(plan_.schedule).of_chunk;
    const bool is_named = plan_.has_own_passes && parse_schedule_kind(file_.schedule);
    const auto named = is_named ? schedule_of(plan_.form, inputs_.model.graph)
                                : Result<PipelineSchedule>(plan_.schedule);
    if (!named || named->stage_of_chunk != plan_.schedule.stage_of_chunk) return flying;
    const std::vector<std::int64_t> planned = in_flight(*named).of_chunk;
    for (std::size_t c = 0; c < flying.size(); ++c) flying[c] = std::max(flying[c], planned[c]);
    return flying;
  }

  Result<std::vector<OpId>> cuts_of() {
    const Graph& step = inputs_.model.graph;
    std::map<std::string, OpId> forward;
    for (std::size_t o = 0; o < step.ops.size(); ++o) {
      if (step.ops[o].phase != Phase::kForward) continue;
      forward[step.ops[o].name] = OpId(static_cast<std::int64_t>(o));
    }
    std::vector<OpId> cuts;
    for (std::size_t c = 1; c < said_.size(); ++c) {
      const std::string& first = said_[c].chunk->first_op;
      const auto op = forward.find(first);
      if (op == forward.end()) {
        return file_error("chunk " + std::to_string(c) + " begins with op '" + first +
                          "', and the step has no forward op of that name");
      }
      cuts.push_back(op->second);
      plan_.cut_ops.push_back(first);
    }
    return cuts;
  }

  Result<ChunkPlan> chunk_plan(std::size_t c, Chunk chunk) const {
    ChunkPlan found;
    found.reduce_ops = std::move(chunk.reduce_ops);
    found.in_flight = chunk.graph.in_flight;
    found.first_and_last = first_and_last(chunk.graph);
    auto own = std::make_unique<Inputs>(of_stage_);
    AUTOPAR_TRY(rules, rules_of(chunk.graph, own->user_rules));
    own->model.graph = std::move(chunk.graph);
    own->rules = std::move(rules);
    const StrategyFile file = strategy_of_chunk(file_, *said_[c].stage, *said_[c].chunk);
    auto applied = apply_to(std::move(own), file, true, options_, common_);
    if (!applied) {
      Error error = applied.error();
      error.message = "chunk " + std::to_string(c) + ": " + error.message;
      return error;
    }
    Applied& done = **applied;
    Planned planned{std::move(done.inputs), std::nullopt, std::move(done.outcome)};
    planned.request.emplace(*done.request);
    found.planned = std::make_shared<const Planned>(std::move(planned));
    return found;
  }

  const StrategyFile& file_;
  const Inputs& inputs_;
  const PlanOptions& options_;
  const CommonOptions& common_;
  const std::vector<SaidOfChunk> said_;
  Inputs of_stage_;  // what is read of a chunk but for its graph and rules
  PipelinePlan plan_;
};

}  // namespace

Result<PipelinePlan> apply_pipeline(const StrategyFile& file, const Inputs& inputs,
                                    const PlanOptions& options, const CommonOptions& common) {
  return PipelineFile(file, inputs, options, common).run();
}

}  // namespace autopar
