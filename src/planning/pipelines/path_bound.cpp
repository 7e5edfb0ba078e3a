#include "planning/pipelines/path_bound.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "planning/pipelines/pipeline_tuning.hpp"
#include "search/matrix_game.hpp"

namespace autopar {

namespace {

using tuning::paths::kRoundsBetween;
using tuning::paths::kStay;
using Path = std::vector<PassCounts>;   // per chunk
using Cuts = std::vector<std::size_t>;  // where each chunk ends

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

// What of a backward pass is in its second part differs from plan to plan, so that counts only
// where the first part is on the path too.
Seconds taken_by(const PassCounts& counts, const LeastOfPart& part) {
  const double backward = std::min(counts.input_gradients, counts.weight_gradients);
  const double passes = std::min(counts.forward, backward);
  return passes * part.pass + (counts.forward - passes) * part.forward +
         (backward - passes) * part.backward + (counts.input_gradients - backward) * part.inputs;
}

class PathGame {
 public:
  PathGame(ScheduleSimulator schedule, std::size_t chunks, const LeastOfParts& part,
           std::size_t end, const Cuts& ends)
      : schedule_(std::move(schedule)), ends_(ends), end_(end), chunks_(chunks) {
    parts_.resize((end + 1) * (end + 1));
    for (std::size_t from = 0; from < end; ++from) {
      for (std::size_t to = from + 1; to <= end; ++to) {
        parts_[from * (end + 1) + to] = part(from, to);
      }
    }
  }

  Result<Seconds> run() {
    Seconds best = 0;
    Path best_mean;
    Cuts cuts = ends_;
    while (cuts.size() < chunks_) {
      const std::size_t left = chunks_ - cuts.size();
      std::size_t to = cuts.empty() ? 1 : cuts.back() + 1;
      const Seconds until =
          part(0, end_).pass * static_cast<double>(cuts.size() + 1) / static_cast<double>(chunks_);
      while (to + left <= end_ && part(0, to).pass < until) ++to;
      cuts.push_back(left == 1 ? end_ : to);
    }
    AUTOPAR_TRY(first, nearby(std::move(cuts)));
    cuts = std::move(first);
    Seconds before = 0;
    for (int round = 0; round < tuning::paths::kRounds; ++round) {
      if (round % kRoundsBetween == 0 && round > 0) {
        if (best < before * (1 + tuning::paths::kNoNews)) break;
        before = best;
      }
      AUTOPAR_TRY(longest, add(cuts));
      shortest_ = std::min(shortest_, longest);
      if (best >= shortest_ * (1 - tuning::paths::kNoNews)) break;
      Path mean = mean_path();
      if (!best_mean.empty()) mean = between(mean, best_mean);
      const auto found = least_cuts(mean);
      if (!found) return Seconds{0};
      cuts = *found;
      const Seconds bound = time_of(cuts, mean);
      if (bound <= best) continue;
      best = bound;
      best_mean = std::move(mean);
    }
    return best;
  }

 private:
  const LeastOfPart& part(std::size_t from, std::size_t to) const {
    return parts_[from * (end_ + 1) + to];
  }

  // With the longest path of these cuts, and its time.
  Result<Seconds> add(const Cuts& cuts) {
    AUTOPAR_TRY(next, schedule_.longest_path(costs_of(cuts)));
    if (std::find(paths_.begin(), paths_.end(), next) == paths_.end()) paths_.push_back(next);
    if (std::find(cuts_.begin(), cuts_.end(), cuts) == cuts_.end()) cuts_.push_back(cuts);
    return time_of(cuts, next);
  }

  // Moved one by one as long as that is shorter; with all of those on the way.
  Result<Cuts> nearby(Cuts cuts) {
    AUTOPAR_TRY(longest, add(cuts));
    shortest_ = longest;
    bool is_moved = ends_.empty();
    while (is_moved) {
      is_moved = false;
      for (std::size_t c = 0; c + 1 < chunks_; ++c) {
        for (const std::size_t to : {cuts[c] - 1, cuts[c] + 1}) {
          if (to <= (c == 0 ? 0 : cuts[c - 1]) || to >= cuts[c + 1]) continue;
          Cuts next = cuts;
          next[c] = to;
          AUTOPAR_TRY(path, schedule_.longest_path(costs_of(next)));
          const Seconds found = time_of(next, path);
          if (found >= shortest_ * (1 - tuning::paths::kNoNews)) continue;
          shortest_ = found;
          cuts = std::move(next);
          AUTOPAR_RETURN_IF_ERROR(add(cuts));
          is_moved = true;
        }
      }
    }
    return cuts;
  }

  std::vector<ChunkCost> costs_of(const Cuts& cuts) const {
    std::vector<ChunkCost> costs(chunks_);
    std::size_t from = 0;
    for (std::size_t c = 0; c < chunks_; ++c) {
      const LeastOfPart& of = part(from, cuts[c]);
      PassSeconds& steady = costs[c].steady;
      steady.forward = of.forward;
      // Differences of sums may be a little below 0.
      steady.backward = std::max(0.0, of.pass - of.forward);
      steady.input_gradients = of.inputs;
      steady.weight_gradients = std::max(0.0, steady.backward - of.inputs);
      from = cuts[c];
    }
    return costs;
  }

  Seconds time_of(const Cuts& cuts, const Path& path) const {
    Seconds sum = 0;
    std::size_t from = 0;
    for (std::size_t c = 0; c < chunks_; ++c) {
      sum += taken_by(path[c], part(from, cuts[c]));
      from = cuts[c];
    }
    return sum;
  }

  // Of the paths, with the weights for which the least of the known cuts is the largest.
  Path mean_path() const {
    std::vector<std::vector<double>> takes(paths_.size());
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      for (const Cuts& cuts : cuts_) takes[p].push_back(time_of(cuts, paths_[p]));
    }
    const std::vector<double> weights = best_mix_of_rows(takes);
    Path path(chunks_);
    for (std::size_t p = 0; p < paths_.size(); ++p) add_part(path, weights[p], paths_[p]);
    return path;
  }

  static void add_part(Path& to, double part, const Path& path) {
    for (std::size_t c = 0; c < to.size(); ++c) {
      to[c].forward += part * path[c].forward;
      to[c].input_gradients += part * path[c].input_gradients;
      to[c].weight_gradients += part * path[c].weight_gradients;
    }
  }

  // Near what was best so far, as long as that is little known (Wentges, "Weighted Dantzig-Wolfe
  // decomposition for linear mixed-integer programming", 1997).
  Path between(const Path& next, const Path& best) const {
    Path path(chunks_);
    add_part(path, 1 - kStay, next);
    add_part(path, kStay, best);
    return path;
  }

  std::optional<Cuts> least_cuts(const Path& path) const {
    std::vector<Seconds> taken(end_ + 1, kNever);
    taken[0] = 0;
    std::vector<std::vector<std::size_t>> begins(chunks_, std::vector<std::size_t>(end_ + 1, 0));
    for (std::size_t c = 0; c < chunks_; ++c) {
      std::vector<Seconds> next(end_ + 1, kNever);
      const std::size_t given = c + 1 == chunks_ ? end_ : (ends_.empty() ? 0 : ends_[c]);
      const std::size_t last = given > 0 ? given : end_ + c + 1 - chunks_;
      for (std::size_t from = c; from < last; ++from) {
        if (taken[from] == kNever) continue;
        for (std::size_t to = given > 0 ? given : from + 1; to <= last; ++to) {
          const Seconds found = taken[from] + taken_by(path[c], part(from, to));
          if (found >= next[to]) continue;
          next[to] = found;
          begins[c][to] = from;
        }
      }
      taken = std::move(next);
    }
    if (taken[end_] == kNever) return {};
    Cuts cuts(chunks_, end_);
    for (std::size_t c = chunks_; c-- > 1;) cuts[c - 1] = begins[c][cuts[c]];
    return cuts;
  }

  const ScheduleSimulator schedule_;
  const Cuts& ends_;
  const std::size_t end_, chunks_;
  std::vector<LeastOfPart> parts_;
  std::vector<Path> paths_;
  std::vector<Cuts> cuts_;
  Seconds shortest_ = kNever;  // of the known cuts
};

}  // namespace

Result<Seconds> bound_by_paths(const PipelineSchedule& schedule, const LeastOfParts& part,
                               std::size_t end, const std::vector<std::size_t>& ends) {
  const std::size_t chunks = schedule.stage_of_chunk.size();
  if (chunks > end || chunks > tuning::paths::kMostChunks) return Seconds{0};
  AUTOPAR_TRY(simulator, ScheduleSimulator::of(schedule));
  return PathGame(std::move(simulator), chunks, part, end, ends).run();
}

}  // namespace autopar
