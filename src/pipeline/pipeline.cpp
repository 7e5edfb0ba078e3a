// What can be said of and done to the lines of any schedule.
#include "autopar/pipeline.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pipeline/action_table.hpp"

namespace autopar {

namespace {

// Of what micro-batches take while they are in a stage: now, and the most so far.
struct Level {
  std::int64_t now = 0;
  std::int64_t most = 0;
  void rise(std::int64_t amount) {
    now += amount;
    most = std::max(most, now);
  }
};

bool ends_gradients(StepPhase phase) {
  return phase == StepPhase::kBackward || phase == StepPhase::kWeightGradients ||
         phase == StepPhase::kForwardBackward;
}

}  // namespace

Result<PipelineSchedule> schedule_of_lines(std::vector<StepLine> lines) {
  PipelineSchedule schedule;
  std::map<std::int64_t, std::size_t> line_of;  // by chunk
  for (std::size_t l = 0; l < lines.size(); ++l) {
    for (const StepAction& action : lines[l]) {
      const auto [at, is_new] = line_of.emplace(action.chunk, l);
      if (at->second != l) {
        return input_error(line_text(static_cast<std::int64_t>(l)) + ": " + to_text(action) +
                           " is of a chunk that has actions in " +
                           line_text(static_cast<std::int64_t>(at->second)) + " too");
      }
      schedule.micro_batches = std::max(schedule.micro_batches, action.micro_batch + 1);
    }
  }
  for (const auto& [chunk, line] : line_of) {
    const auto expected = static_cast<std::int64_t>(schedule.stage_of_chunk.size());
    if (chunk != expected) {
      return input_error(line_text(static_cast<std::int64_t>(line)) + " has chunk " +
                         std::to_string(chunk) + ", no line has chunk " + std::to_string(expected) +
                         "; chunks are counted from 0");
    }
    schedule.stage_of_chunk.push_back(static_cast<std::int64_t>(line));
  }
  schedule.lines = std::move(lines);
  return schedule;
}

bool is_forward_only(const PipelineSchedule& schedule) {
  const auto is_backward = [](const StepAction& action) {
    return is_pass(action.phase) && action.phase != StepPhase::kForward;
  };
  return std::none_of(schedule.lines.begin(), schedule.lines.end(), [&](const StepLine& line) {
    return std::any_of(line.begin(), line.end(), is_backward);
  });
}

PipelineSchedule forward_only(PipelineSchedule schedule) {
  for (StepLine& line : schedule.lines) {
    std::erase_if(line,
                  [](const StepAction& action) { return action.phase != StepPhase::kForward; });
  }
  return schedule;
}

PipelineSchedule backward_apart(PipelineSchedule schedule) {
  std::set<std::int64_t> apart;
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase == StepPhase::kInputGradients) apart.insert(action.chunk);
    }
  }
  for (StepLine& line : schedule.lines) {
    StepLine changed;
    for (const StepAction& action : line) {
      changed.push_back(action);
      if (action.phase != StepPhase::kBackward || apart.count(action.chunk) == 0) continue;
      changed.back().phase = StepPhase::kInputGradients;
      changed.push_back({action.chunk, StepPhase::kWeightGradients, action.micro_batch});
    }
    line = std::move(changed);
  }
  return schedule;
}

void add_updates(PipelineSchedule& schedule, bool reduce) {
  for (const StepPhase phase : {StepPhase::kReduce, StepPhase::kUpdate}) {
    if (phase == StepPhase::kReduce && !reduce) continue;
    for (std::size_t chunk = 0; chunk < schedule.stage_of_chunk.size(); ++chunk) {
      const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[chunk]);
      schedule.lines[stage].push_back({static_cast<std::int64_t>(chunk), phase, -1});
    }
  }
}

Status verify_schedule(const PipelineSchedule& schedule) {
  AUTOPAR_TRY(table, table_of(schedule));
  AUTOPAR_TRY(order, runnable_order(schedule, table));
  AUTOPAR_CHECK(order.empty() == schedule.stage_of_chunk.empty(), "actions without an order");
  return Ok{};
}

InFlight in_flight(const PipelineSchedule& schedule) {
  std::vector<Level> chunks(schedule.stage_of_chunk.size());
  const bool ends_forward = is_forward_only(schedule);
  InFlight found;
  for (const StepLine& line : schedule.lines) {
    Level stage;
    for (const StepAction& action : line) {
      Level& chunk = chunks[static_cast<std::size_t>(action.chunk)];
      for (Level* level : {&chunk, &stage}) {
        if (makes_activation(action.phase)) level->rise(1);
        if (ends_gradients(action.phase) || (ends_forward && is_pass(action.phase))) {
          level->rise(-1);
        }
      }
    }
    found.of_stage.push_back(stage.most);
  }
  for (const Level& chunk : chunks) found.of_chunk.push_back(chunk.most);
  return found;
}

}  // namespace autopar
