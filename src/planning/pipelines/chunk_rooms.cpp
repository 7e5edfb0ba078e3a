// How the chunks of one stage share its room.
#include <algorithm>

#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "planning/pipelines/stage_memory.hpp"

namespace autopar {

namespace {

Seconds time_of(const ChunkPlan& plan) { return plan.planned->outcome.cost.time(); }

// A chunk is planned anew, and those that had its plan have one of their own.
void leave_likeness(std::vector<ChunkPlan>& plans, std::size_t chunk) {
  plans[chunk].alike = -1;
  for (ChunkPlan& other : plans) {
    if (other.alike == static_cast<int>(chunk)) other.alike = -1;
  }
}

}  // namespace

Result<ChunkPlans::Held> ChunkPlans::held_by(const StageChunks& of) const {
  AUTOPAR_TRY(memory, memory_of_chunks(of.plans, of.chunks, of.schedule, options_.updates));
  const Bytes together = stage_memory(of.line(), memory);
  return Held{std::move(memory), together};
}

// Chunks that together do not fit are searched again. First what they store and keep gets smaller,
// so that the one with most beside that fits too; then, where plans do not follow, all that each
// takes at its peak. What parts of backward passes hand on is in no search, and gets smaller with
// the rest.
Status ChunkPlans::share_memory(const StageChunks& of, Bytes all) {
  const auto room = static_cast<double>(all);
  AUTOPAR_TRY(held, held_by(of));
  if (held.together <= all) return Ok{};
  double resting = 0, peaks = 0, beside = 0;
  for (const ChunkBytes& chunk : held.chunks) {
    resting += static_cast<double>(chunk.resting());
    peaks += static_cast<double>(chunk.resting() + chunk.beside());
    beside = std::max(beside, static_cast<double>(chunk.beside()));
  }
  double smaller = beside < room ? (room - beside) / std::max(resting, 1.0) : 0;
  const bool is_divided = std::any_of(held.chunks.begin(), held.chunks.end(),
                                      [](const ChunkBytes& chunk) { return chunk.waiting > 0; });
  if (is_divided) smaller = (room - beside) / (static_cast<double>(held.together) - beside);
  std::vector<double> shares, even;
  for (const ChunkBytes& chunk : held.chunks) {
    shares.push_back(static_cast<double>(chunk.resting()));
    even.push_back(room * static_cast<double>(chunk.resting() + chunk.beside()) / peaks);
  }
  for (int round = 0; round < tuning::chunks::kShareRounds && smaller > 0; ++round) {
    std::vector<double> limits;
    for (double& share : shares) limits.push_back(beside + (share *= smaller));
    if (!plan_within(of, limits).ok()) break;
    const Bytes before = held.together;
    AUTOPAR_TRY(now, held_by(of));
    held = std::move(now);
    if (held.together <= all) return Ok{};
    if (!is_divided || held.together >= before) break;
    smaller = (room - beside) / (static_cast<double>(held.together) - beside);
  }
  AUTOPAR_RETURN_IF_ERROR(plan_within(of, even));
  AUTOPAR_TRY(now, held_by(of));
  if (now.together <= all) return Ok{};
  if (is_forward_only(of.schedule)) {
    return infeasible_error("the chunks of stage " + std::to_string(of.stage) + " take " +
                            format_bytes(static_cast<double>(now.together)) +
                            " together, and there are " + format_bytes(room));
  }
  return infeasible_error("stage " + std::to_string(of.stage) + " takes " +
                          format_bytes(static_cast<double>(now.together)) +
                          " with what the parts of its backward passes hand on, and there are " +
                          format_bytes(room) + "; with B in place of I and W it takes less");
}

// Each in its share of the room.
Status ChunkPlans::plan_within(const StageChunks& of, const std::vector<double>& shares) {
  AUTOPAR_TRY(all, room());
  const std::string mesh = mesh_of(*of.plans[of.chunks.front()].planned);
  std::vector<AskedChunk> asked;
  for (std::size_t i = 0; i < of.chunks.size(); ++i) {
    const std::size_t c = of.chunks[i];
    const Bytes beside = all - std::min(all, static_cast<Bytes>(shares[i]));
    asked.push_back({of.inputs[c], mesh, beside, of.hints[c], c});
  }
  std::vector<AskedChunk*> together;
  for (AskedChunk& one : asked) {
    const bool is_like =
        std::any_of(together.begin(), together.end(),
                    [&](const AskedChunk* other) { return are_alike(*other, mesh, one); });
    if (!is_like && is_new_of_parts(one)) together.push_back(&one);
  }
  if (together.size() > 1) AUTOPAR_RETURN_IF_ERROR(plan_of_parts(together));
  for (std::size_t i = 0; i < of.chunks.size(); ++i) {
    const std::size_t c = of.chunks[i];
    leave_likeness(of.plans, c);
    const Status planned = plan(std::move(asked[i]), of.plans[c]);
    if (!planned.ok()) {
      Error error = planned.error();
      error.message =
          "chunk " + std::to_string(c) + ", beside the other chunks of its stage: " + error.message;
      return error;
    }
    // The other one may have been planned anew since.
    int& alike = of.plans[c].alike;
    if (alike < 0) continue;
    const ChunkPlan& other = of.plans[static_cast<std::size_t>(alike)];
    if (time_of(other) != time_of(of.plans[c])) alike = -1;
  }
  return Ok{};
}

// Where what parts of backward passes hand on does not fit, chunks of the stage have their backward
// passes as one, that with which the stage holds least first.
Status ChunkPlans::join_what_does_not_fit(const StageChunks& of, PipelineSchedule& schedule) {
  AUTOPAR_TRY(all, room());
  const auto held_as = [&](const PipelineSchedule& joined) -> Result<Bytes> {
    AUTOPAR_TRY(held, held_by({of.chunks, joined, of.stage, of.inputs, of.hints, of.plans}));
    return held.together;
  };
  AUTOPAR_TRY(bytes, held_as(schedule));
  while (bytes > all) {
    std::optional<PipelineSchedule> smallest;
    for (const std::size_t c : of.chunks) {
      if (!is_apart(schedule, c)) continue;
      PipelineSchedule joined = schedule;
      join_backward(joined, [c](std::size_t chunk) { return chunk == c; });
      AUTOPAR_TRY(now, held_as(joined));
      if (smallest && now >= bytes) continue;
      bytes = now;
      smallest = std::move(joined);
    }
    if (!smallest) break;
    schedule = std::move(*smallest);
  }
  return Ok{};
}

Seconds ChunkPlans::seconds_within(const Planned& planned, Bytes limit) const {
  StrategyCost cost = planned.outcome.cost;
  if (!cost.step || limit == cost.most_held()) return cost.time();
  cost.limit = limit;
  cost.step = simulate(planned.request->graph, cost, planned.outcome.strategy.mesh,
                       planned.request->cluster, options_.updates);
  return cost.time();
}

// What the chunks take where they have for what is held ahead what the stage leaves, and so much
// more.
Result<Seconds> ChunkPlans::seconds_in_stage(const StageChunks& of, Bytes more) const {
  AUTOPAR_TRY(all, room());
  AUTOPAR_TRY(held, held_by(of));
  const std::vector<Bytes> limits = limits_of_chunks(of.line(), held.chunks, all);
  Seconds sum = 0;
  for (std::size_t i = 0; i < of.chunks.size(); ++i) {
    sum += seconds_within(*of.plans[of.chunks[i]].planned, limits[i] + more);
  }
  return sum;
}

// A stage that is filled has little room for weights that are fetched ahead, so that its chunks
// wait for them. So its chunks are also planned with less, and the faster plans are taken.
Status ChunkPlans::leave_room(const StageChunks& of) {
  AUTOPAR_TRY(all, room());
  const bool has_parts = std::all_of(of.chunks.begin(), of.chunks.end(), [&](std::size_t c) {
    return static_cast<bool>(of.hints[c].parts);
  });
  if (!has_parts || search_.is_over()) return Ok{};
  AUTOPAR_TRY(now, seconds_in_stage(of, 0));
  AUTOPAR_TRY(ample, seconds_in_stage(of, all));
  AUTOPAR_TRY(memory, held_by(of));
  const Bytes held = memory.together;
  logging::debug("chunk {} and others of its stage: {}, and {} if all were fetched ahead; {}",
                 of.chunks.front(), format_seconds(now), format_seconds(ample),
                 format_bytes(static_cast<double>(held)));
  if (now <= (1 + tuning::chunks::kMuchWaited) * ample) return Ok{};
  std::vector<ChunkPlan> before = of.plans;
  const Bytes more_left = std::min(held, share_of(all, tuning::chunks::kLeft));
  const Status planned = share_memory(of, held - more_left);
  bool is_better = false;
  if (planned.ok()) {
    AUTOPAR_TRY(then, seconds_in_stage(of, 0));
    logging::debug("with {} less: {}", format_bytes(static_cast<double>(more_left)),
                   format_seconds(then));
    is_better = then < now;
  }
  if (!is_better) of.plans = std::move(before);
  return Ok{};
}

// Rooms are shared by what units hold; chunks may hold less. So one after the other gets what the
// others leave, where that is much.
Status ChunkPlans::use_what_is_left(const StageChunks& of) {
  AUTOPAR_TRY(all, room());
  for (const std::size_t c : of.chunks) {
    if (!of.hints[c].parts || of.hints[c].is_fastest || search_.is_over()) continue;
    AUTOPAR_TRY(held, held_by(of));
    const Bytes left = all - held.together;
    if (static_cast<double>(left) < tuning::chunks::kMuchLeft * static_cast<double>(all)) break;
    ChunkPlan other = of.plans[c];
    const Bytes beside = all - other.planned->outcome.cost.memory.total - left;
    const Status planned =
        plan({of.inputs[c], mesh_of(*other.planned), beside, of.hints[c], c}, other);
    if (!planned.ok() || time_of(other) >= time_of(of.plans[c])) continue;
    other.alike = -1;
    std::swap(other, of.plans[c]);
    AUTOPAR_TRY(now, held_by(of));
    if (now.together > all) {
      of.plans[c] = std::move(other);
    } else {
      leave_likeness(of.plans, c);
    }
  }
  return Ok{};
}

}  // namespace autopar
