#include "cli/pipeline_bound.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace autopar::cli {

namespace {

// More kinds of units are not searched: the bound would take longer than the plan.
constexpr std::size_t kMostKinds = 6;

// Of the units from one to before another.
struct Sums {
  explicit Sums(const std::vector<Seconds>& of) : until(of.size() + 1) {
    std::partial_sum(of.begin(), of.end(), until.begin() + 1);
  }
  Seconds operator()(std::size_t from, std::size_t to) const { return until[to] - until[from]; }
  std::vector<Seconds> until;
};

// Whether a chunk's backward passes are in two parts, of which the stage before waits for one.
bool is_apart(const PipelineSchedule& schedule) {
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) {
      if (action.phase == StepPhase::kWeightGradients) return true;
    }
  }
  return false;
}

}  // namespace

PipelineBounds::PipelineBounds(const ChunkSearch& search, const Graph& step,
                               const OpSeconds& seconds)
    : search_(search), step_(step) {
  std::vector<Seconds> both(seconds.forward);
  for (std::size_t o = 0; o < both.size(); ++o) both[o] += seconds.backward[o];
  places_ = like_cuts(step, both, search.options.updates);
  forward_.resize(places_.size() + 1);
  backward_.resize(places_.size() + 1);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const std::size_t unit = unit_of(OpId(static_cast<std::int64_t>(o)));
    forward_[unit] += seconds.forward[o];
    backward_[unit] += seconds.backward[o];
  }
}

std::size_t PipelineBounds::unit_of(OpId op) const {
  return static_cast<std::size_t>(std::upper_bound(places_.begin(), places_.end(), op) -
                                  places_.begin());
}

bool PipelineBounds::covers(const std::vector<OpId>& cuts) const {
  return std::all_of(cuts.begin(), cuts.end(), [&](OpId cut) {
    return std::binary_search(places_.begin(), places_.end(), cut);
  });
}

Result<const PipelineBounds::Least*> PipelineBounds::least_on(const Cluster& stage) {
  const auto known = least_.find(stage.device_count());
  if (known != least_.end()) return &known->second;
  AUTOPAR_TRY(least, searched(stage));
  return &least_.emplace(stage.device_count(), std::move(least)).first->second;
}

Result<PipelineBounds::Least> PipelineBounds::searched(const Cluster& stage) const {
  Least least;
  if (places_.empty()) return least;
  AUTOPAR_TRY(units, chunks_of(step_, places_, search_.options.updates));
  ChunkPlans plans(search_, stage);
  std::vector<std::size_t> kind_of, kinds;  // per unit; the first of each
  for (std::size_t u = 0; u < units.chunks.size(); ++u) {
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](std::size_t k) {
      return same_values(units.chunks[k].graph, units.chunks[u].graph).has_value();
    });
    kind_of.push_back(static_cast<std::size_t>(same - kinds.begin()));
    if (same == kinds.end()) kinds.push_back(u);
  }
  if (kinds.size() > kMostKinds) return least;
  // Weights that suit the kind of which there are most, and the same for all: only so do bounds add
  // up.
  std::vector<std::size_t> count(kinds.size());
  for (std::size_t k : kind_of) ++count[k];
  const auto most =
      static_cast<std::size_t>(std::max_element(count.begin(), count.end()) - count.begin());
  AUTOPAR_TRY(weights, plans.weights_of(units.chunks[kinds[most]].graph));
  std::vector<Seconds> step, passes;
  for (std::size_t k : kinds) {
    const Graph& graph = units.chunks[k].graph;
    AUTOPAR_TRY(whole, plans.least_time(graph, weights));
    AUTOPAR_TRY(without, plans.least_time(without_update(graph), weights));
    step.push_back(whole);
    passes.push_back(without);
  }
  for (std::size_t k : kind_of) {
    least.step.push_back(step[k]);
    least.passes.push_back(passes[k]);
  }
  return least;
}

Result<Seconds> PipelineBounds::of(const PipelineSchedule& schedule, const Cluster& stage,
                                   const std::vector<OpId>* cuts) {
  AUTOPAR_TRY(least, least_on(stage));
  return bound_of(*least, schedule, stage, cuts);
}

Seconds PipelineBounds::of_compute(const PipelineSchedule& schedule, const Cluster& stage,
                                   const std::vector<OpId>* cuts, bool anywhere) const {
  const double each =
      static_cast<double>(schedule.micro_batches) / static_cast<double>(stage.device_count());
  Least least;
  for (std::size_t u = 0; u < forward_.size(); ++u) {
    least.passes.push_back((forward_[u] + backward_[u]) * each);
  }
  least.step = least.passes;
  const Seconds all = std::accumulate(least.step.begin(), least.step.end(), 0.0);
  if (anywhere) return all / static_cast<double>(schedule.lines.size());
  return bound_of(least, schedule, stage, cuts);
}

Seconds PipelineBounds::bound_of(const Least& least, const PipelineSchedule& schedule,
                                 const Cluster& stage, const std::vector<OpId>* cuts) const {
  const std::size_t units = least.step.size(), chunks = schedule.stage_of_chunk.size();
  if (units < chunks) return 0;
  if (cuts != nullptr) {
    std::vector<std::size_t> ends = {0};
    for (OpId cut : *cuts) ends.push_back(unit_of(cut));
    ends.push_back(units);
    return of_cuts(least, schedule, stage, ends);
  }
  return chunks == schedule.lines.size() ? of_best_cuts(least, schedule, stage)
                                         : on_average(least, schedule, stage);
}

namespace {

// What a stage makes of its parts.
class StageTime {
 public:
  StageTime(const std::vector<Seconds>& forward, const std::vector<Seconds>& backward,
            const PipelineSchedule& schedule, const Cluster& stage)
      : forward_(forward),
        backward_(backward),
        devices_(static_cast<double>(stage.device_count())),
        waits_for_all_(!is_apart(schedule)) {}

  // `before`: units before its first chunk.
  Seconds operator()(std::size_t before, Seconds step, Seconds passes) const {
    const Seconds back = waits_for_all_ ? backward_(0, before) / devices_ : 0;
    return arrival(before) + std::max(step, passes + back);
  }
  Seconds arrival(std::size_t before) const { return forward_(0, before) / devices_; }

 private:
  const Sums forward_, backward_;
  const double devices_;
  const bool waits_for_all_;
};

}  // namespace

Seconds PipelineBounds::of_cuts(const Least& least, const PipelineSchedule& schedule,
                                const Cluster& stage, const std::vector<std::size_t>& ends) const {
  const StageTime takes(forward_, backward_, schedule, stage);
  const Sums step(least.step), passes(least.passes);
  struct OfStage {
    std::size_t first = std::numeric_limits<std::size_t>::max();
    Seconds step = 0, passes = 0;
  };
  std::vector<OfStage> stages(schedule.lines.size());
  for (std::size_t c = 0; c + 1 < ends.size(); ++c) {
    OfStage& of = stages[static_cast<std::size_t>(schedule.stage_of_chunk[c])];
    of.first = std::min(of.first, ends[c]);
    of.step += step(ends[c], ends[c + 1]);
    of.passes += passes(ends[c], ends[c + 1]);
  }
  Seconds longest = 0;
  for (const OfStage& of : stages) {
    longest = std::max(longest, takes(of.first, of.step, of.passes));
  }
  return longest;
}

// One chunk per stage.
Seconds PipelineBounds::of_best_cuts(const Least& least, const PipelineSchedule& schedule,
                                     const Cluster& stage) const {
  const StageTime takes(forward_, backward_, schedule, stage);
  const Sums step(least.step), passes(least.passes);
  const std::size_t units = least.step.size(), stages = schedule.lines.size();
  // Of the stages so far, the last of which ends before a unit.
  std::vector<Seconds> longest(units + 1, kInfinity);
  longest[0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<Seconds> next(units + 1, kInfinity);
    for (std::size_t from = s; from < units; ++from) {
      if (longest[from] == kInfinity) continue;
      for (std::size_t to = from + 1; to + (stages - s - 1) <= units; ++to) {
        const Seconds own = takes(from, step(from, to), passes(from, to));
        next[to] = std::min(next[to], std::max(longest[from], own));
      }
    }
    longest = std::move(next);
  }
  return longest[units];
}

// Of all stages; each chunk before the first one of a stage has a unit at least.
Seconds PipelineBounds::on_average(const Least& least, const PipelineSchedule& schedule,
                                   const Cluster& stage) const {
  const StageTime takes(forward_, backward_, schedule, stage);
  std::vector<std::size_t> first(schedule.lines.size(), least.step.size());
  for (std::size_t c = 0; c < schedule.stage_of_chunk.size(); ++c) {
    std::size_t& of = first[static_cast<std::size_t>(schedule.stage_of_chunk[c])];
    of = std::min(of, c);
  }
  Seconds sum = std::accumulate(least.step.begin(), least.step.end(), 0.0);
  for (const std::size_t before : first) sum += takes.arrival(before);
  return sum / static_cast<double>(schedule.lines.size());
}

}  // namespace autopar::cli
