#include "planning/pipelines/chunk_bound.hpp"

#include <algorithm>

namespace autopar {

std::vector<ChunkShape> shapes_of(const PipelineSchedule& schedule) {
  std::vector<ChunkShape> shapes(schedule.stage_of_chunk.size());
  std::vector<char> has_chunk(schedule.lines.size());
  for (std::size_t c = 0; c < shapes.size(); ++c) {
    shapes[c].stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
    shapes[c].is_first = has_chunk[shapes[c].stage] == 0;
    has_chunk[shapes[c].stage] = 1;
  }
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase != StepPhase::kForward) break;
      ++shapes[static_cast<std::size_t>(action.chunk)].forward_first;
    }
    const auto back = std::find_if(line.begin(), line.end(), [](const StepAction& action) {
      return action.phase != StepPhase::kForward;
    });
    if (back != line.end()) shapes[static_cast<std::size_t>(back->chunk)].is_back_first = true;
    std::int64_t backward = 0;
    for (const StepAction& action : line) {
      ChunkShape& of = shapes[static_cast<std::size_t>(action.chunk)];
      if (action.phase == StepPhase::kBackward) ++backward;
      if (action.phase == StepPhase::kForward)
        of.backward_between = std::max<std::int64_t>(0, backward - 1);
    }
  }
  return shapes;
}

double StreamSum::least_of_compute(double passes, double copies) const {
  if (!weights) return passes;
  return weights->compute * passes + weights->tail * std::max(0.0, passes - copies);
}

Seconds StreamSum::most_of_kernels(Seconds compute, Seconds host) const {
  if (!weights) return compute + host;
  return StreamTimes{.compute = compute, .tail = compute, .host = host}.weighted(*weights);
}

Seconds StreamSum::most_of_collective(Seconds seconds) const {
  if (!weights) return seconds;
  StreamTimes times{.compute = seconds, .tail = seconds};
  times.links.fill(seconds);
  return times.weighted(*weights);
}

bool is_apart(const PipelineSchedule& schedule) {
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase == StepPhase::kWeightGradients) return true;
    }
  }
  return false;
}

bool is_there_and_back(const PipelineSchedule& schedule) {
  const std::size_t chunks = schedule.stage_of_chunk.size(), stages = schedule.lines.size();
  if (chunks != 2 * stages) return false;
  for (std::size_t c = 0; c < chunks; ++c) {
    const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
    if (stage != std::min(c, chunks - 1 - c)) return false;
  }
  return true;
}

}  // namespace autopar
