#include "planning/pipelines/template_pipeline.hpp"

#include <algorithm>
#include <tuple>

#include "planning/pipelines/chunk_bound.hpp"
#include "planning/pipelines/message.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/stage_memory.hpp"

namespace autopar {

namespace {

void add(PassSeconds& sum, const PassSeconds& more) {
  sum.forward += more.forward;
  sum.backward += more.backward;
  sum.input_gradients += more.input_gradients;
  sum.weight_gradients += more.weight_gradients;
}

// The first micro-batch waits for new weights that are still on their way, as the first unit by
// itself does, for those of all units.
void wait_for_weights(const std::vector<const UnitPrice*>& units, ChunkCost& cost) {
  const auto on_links = [](const UnitPrice& unit) {
    return *std::max_element(unit.late.weights.begin(), unit.late.weights.end());
  };
  const UnitPrice& first = *units.front();
  if (on_links(first) <= 0 || !first.cost.first) return;
  Seconds all = 0;
  for (const UnitPrice* unit : units) all += on_links(*unit);
  const Seconds waited = first.cost.first->forward - first.cost.steady.forward;
  cost.first->forward += std::clamp(waited / on_links(first), 0.0, 1.0) * all;
}

// Gradients of a unit are sent while the units before it go on with their last backward pass.
Seconds wait_for_gradients(const std::vector<const UnitPrice*>& units) {
  std::array<Seconds, kLinks> links = {};
  Seconds now = 0;
  for (std::size_t u = units.size(); u-- > 0;) {
    const UnitPrice& unit = *units[u];
    for (std::size_t l = 0; l < kLinks; ++l) {
      links[l] = std::max(links[l], now) + unit.late.gradients[l];
    }
    now += unit.cost.last->backward;
  }
  const Seconds end = *std::max_element(links.begin(), links.end());
  return std::max(units.front()->late.tail, end - now);
}

// When the backward pass is at a unit, those behind it have nothing more of its micro-batch.
ChunkBytes bytes_of_units(const std::vector<const UnitPrice*>& units, std::int64_t in_flight) {
  ChunkBytes found{.in_flight = in_flight};
  for (const UnitPrice* unit : units) found.stored += unit->stored;
  Bytes most = 0;
  for (const UnitPrice* unit : units) {
    found.kept += unit->kept;
    most = std::max(most, found.kept + unit->beside);
  }
  found.forward = found.backward = most - found.kept;
  return found;
}

}  // namespace

std::vector<std::size_t> balanced_ends(std::size_t chunks, const std::vector<Seconds>& of_units) {
  const std::size_t units = of_units.size();
  std::vector<Seconds> sums(units + 1, 0);
  for (std::size_t u = 0; u < units; ++u) sums[u + 1] = sums[u] + of_units[u];
  std::vector<std::vector<Seconds>> longest(chunks + 1, std::vector<Seconds>(units + 1, kInfinity));
  std::vector<std::vector<std::size_t>> from(chunks + 1, std::vector<std::size_t>(units + 1));
  longest[0][0] = 0;
  for (std::size_t c = 1; c <= chunks; ++c) {
    for (std::size_t to = c; to + (chunks - c) <= units; ++to) {
      for (std::size_t begin = c - 1; begin < to; ++begin) {
        const Seconds time = std::max(longest[c - 1][begin], sums[to] - sums[begin]);
        if (time < longest[c][to]) std::tie(longest[c][to], from[c][to]) = std::tie(time, begin);
      }
    }
  }
  std::vector<std::size_t> ends(chunks + 1, units);
  for (std::size_t c = chunks; c > 0; --c) ends[c - 1] = from[c][ends[c]];
  return ends;
}

ChunkCost cost_of_units(const std::vector<const UnitPrice*>& units) {
  ChunkCost cost;
  cost.first.emplace();
  cost.last.emplace();
  for (const UnitPrice* unit : units) {
    add(cost.steady, unit->cost.steady);
    add(*cost.first, unit->cost.steady);
    add(*cost.last, *unit->cost.last);
    cost.update += unit->late.rest;
  }
  wait_for_weights(units, cost);
  cost.update += wait_for_gradients(units);
  return cost;
}

Result<TemplatePipeline> pipeline_of(const PipelineForm& form, const Graph& step,
                                     const std::vector<std::size_t>& kind_of,
                                     const std::vector<UnitPrice>& prices, const Cluster& cluster,
                                     const Cluster& stage) {
  AUTOPAR_TRY(schedule, schedule_of(form, step));
  const std::size_t chunks = schedule.stage_of_chunk.size();
  std::vector<Seconds> seconds;
  for (const std::size_t kind : kind_of) {
    const PassSeconds& pass = prices[kind].cost.steady;
    seconds.push_back(pass.forward + pass.backward);
  }
  TemplatePipeline found;
  found.ends = balanced_ends(chunks, seconds);
  const InFlight flying = in_flight(schedule);
  std::vector<ChunkCost> costs;
  std::vector<std::vector<ChunkBytes>> of_stage(schedule.lines.size());
  for (std::size_t c = 0; c < chunks; ++c) {
    std::vector<const UnitPrice*> units;
    for (std::size_t u = found.ends[c]; u < found.ends[c + 1]; ++u) {
      units.push_back(&prices[kind_of[u]]);
    }
    ChunkBytes bytes = bytes_of_units(units, flying.of_chunk[c]);
    // What waits for W is not known of units: they are taken to be at their peaks all the time.
    if (is_apart(schedule)) bytes = {.stored = bytes.resting() + bytes.beside()};
    bytes.chunk = static_cast<std::int64_t>(c);
    of_stage[static_cast<std::size_t>(schedule.stage_of_chunk[c])].push_back(bytes);
    costs.push_back(cost_of_units(units));
    // Units are laid out alike: a stage hands nothing to itself.
    const auto sending = [&](double bytes, std::size_t to) {
      const std::int64_t one = schedule.stage_of_chunk[c], other = schedule.stage_of_chunk[to];
      return one == other ? 0 : message_seconds(cluster, stage, one, other, bytes);
    };
    if (c + 1 < chunks) costs[c].send_forward = sending(units.back()->forward_bytes, c + 1);
    if (c > 0) costs[c].send_backward = sending(units.front()->backward_bytes, c - 1);
  }
  for (std::size_t s = 0; s < of_stage.size(); ++s) {
    found.peak = std::max(found.peak, stage_memory(schedule.lines[s], of_stage[s]));
  }
  add_updates(schedule, false);
  AUTOPAR_TRY(times, simulate_schedule(schedule, costs));
  found.seconds = times.makespan;
  return found;
}

}  // namespace autopar
