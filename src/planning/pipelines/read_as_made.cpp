#include "planning/pipelines/read_as_made.hpp"

#include <algorithm>
#include <map>

#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/message.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {
namespace {

// Where that is a smaller slice, on a mesh of the same axes.
std::map<ValueId, Spec> smaller_readings(const PipelinePlan& plan, std::size_t to) {
  std::map<ValueId, Spec> sources;
  const Planned& reader = *plan.chunks[to].planned;
  for (const Handed& handed : plan.handed) {
    const bool reads = handed.in_pass &&
                       std::binary_search(handed.to.begin(), handed.to.end(), static_cast<int>(to));
    if (!reads) continue;
    const auto from = static_cast<std::size_t>(handed.from);
    const HandedValue value = handed_value(plan.chunks[from], plan.chunks[to], handed.value);
    const auto& [made, made_on] = value.by_maker;
    const auto& [read, read_on] = value.by_reader;
    const bool is_pinned = reader.request->pins.values.count(handed.value) != 0;
    if (is_pinned || !(made_on == read_on)) continue;
    const auto bytes = [&](const Spec& spec) {
      return local_bytes(spec, value.value.shape, value.value.dtype, read_on);
    };
    if (bytes(made) < bytes(read)) sources.emplace(value.read, made);
  }
  return sources;
}

// If nothing was sent.
Result<Seconds> least_time(const PipelinePlan& plan) {
  std::vector<ChunkCost> costs;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    costs.push_back(plan.chunks[c].cost);
    costs.back().send_forward = costs.back().send_backward = 0;
    costs.back().further.clear();
  }
  AUTOPAR_TRY(times, simulate_schedule(plan.schedule, costs));
  return times.makespan;
}

}  // namespace

Result<PipelinePlan> read_as_made(const ChunkPlans& plans, const Cluster& cluster,
                                  const std::string& updates, Bytes room, PipelinePlan plan) {
  AUTOPAR_TRY(least, least_time(plan));
  if (least > plan.times.makespan * (1 - tuning::outer::kGain)) return plan;
  PipelinePlan other = plan;
  bool any = false;
  for (std::size_t c = 0; c < plan.chunks.size(); ++c) {
    const std::map<ValueId, Spec> sources = smaller_readings(plan, c);
    if (sources.empty()) continue;
    auto chunk = plans.with_sources(plan.chunks[c], sources);
    // Such as pins that want another layout there.
    if (!chunk && chunk.error().code == ErrorCode::kInput) continue;
    if (!chunk) return chunk.error();
    if (!*chunk) continue;
    other.chunks[c] = std::move(**chunk);
    any = true;
  }
  if (!any) return plan;
  // What was like a chunk that is another one now is like none.
  for (std::size_t c = 0; c < other.chunks.size(); ++c) {
    int& alike = other.chunks[c].alike;
    const bool is_other = alike >= 0 && other.chunks[static_cast<std::size_t>(alike)].planned !=
                                            plan.chunks[static_cast<std::size_t>(alike)].planned;
    if (is_other) alike = -1;
    other.chunks[c].in_stage = nullptr;
  }
  other.schedule.lines = other.passes;
  AUTOPAR_RETURN_IF_ERROR(price_pipeline(cluster, updates, room, other));
  logging::debug("with what is handed on read as it is made: {} in place of {}",
                 format_seconds(other.times.makespan), format_seconds(plan.times.makespan));
  const bool fits = other.peak_bytes <= std::max(room, plan.peak_bytes);
  return fits && other.times.makespan < plan.times.makespan ? other : plan;
}

}  // namespace autopar
