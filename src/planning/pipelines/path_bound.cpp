#include "planning/pipelines/path_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

namespace {

using tuning::paths::kNoNews;
using tuning::paths::kRounds;
using Path = std::vector<PassCounts>;   // per chunk
using Cuts = std::vector<std::size_t>;  // where each chunk ends

// Of the game between paths and cuts.
constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();
constexpr int kTurns = 2000;
constexpr double kRate = 0.05;

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
  PathGame(const PipelineSchedule& schedule, const LeastOfParts& part, std::size_t end,
           const Cuts& ends)
      : schedule_(schedule), ends_(ends), end_(end), chunks_(schedule.stage_of_chunk.size()) {
    parts_.resize((end + 1) * (end + 1));
    for (std::size_t from = 0; from < end; ++from) {
      for (std::size_t to = from + 1; to <= end; ++to) {
        parts_[from * (end + 1) + to] = part(from, to);
      }
    }
  }

  Result<Seconds> run() {
    if (chunks_ > end_) return Seconds{0};
    Seconds best = 0;
    Cuts cuts = ends_;
    for (std::size_t c = cuts.size(); c < chunks_; ++c) cuts.push_back((c + 1) * end_ / chunks_);
    for (int round = 0; round < kRounds; ++round) {
      AUTOPAR_TRY(next, longest_path(schedule_, costs_of(cuts)));
      const bool is_new = std::find(paths_.begin(), paths_.end(), next) == paths_.end();
      if (is_new) paths_.push_back(std::move(next));
      cuts_.push_back(cuts);
      const Seconds longest = time_of(cuts, paths_.back());
      if (!is_new || best >= longest * (1 - kNoNews)) break;
      const Path mean = mean_path();
      const auto found = least_cuts(mean);
      if (!found) return Seconds{0};
      cuts = *found;
      best = std::max(best, time_of(cuts, mean));
    }
    return best;
  }

 private:
  const LeastOfPart& part(std::size_t from, std::size_t to) const {
    return parts_[from * (end_ + 1) + to];
  }

  std::vector<ChunkCost> costs_of(const Cuts& cuts) const {
    std::vector<ChunkCost> costs(chunks_);
    std::size_t from = 0;
    for (std::size_t c = 0; c < chunks_; ++c) {
      const LeastOfPart& of = part(from, cuts[c]);
      PassSeconds& steady = costs[c].steady;
      steady.forward = of.forward;
      steady.backward = of.pass - of.forward;
      steady.input_gradients = of.inputs;
      steady.weight_gradients = steady.backward - of.inputs;
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
    std::vector<double> gained(paths_.size()), mean(paths_.size());
    std::vector<std::vector<Seconds>> takes(cuts_.size());
    Seconds most = 0;
    for (std::size_t k = 0; k < cuts_.size(); ++k) {
      for (const Path& path : paths_) {
        takes[k].push_back(time_of(cuts_[k], path));
        most = std::max(most, takes[k].back());
      }
    }
    for (int turn = 0; turn < kTurns; ++turn) {
      std::vector<double> weights = gained;
      const double top = *std::max_element(gained.begin(), gained.end());
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(kRate * (w - top));
      std::size_t least = 0;
      Seconds least_time = 0;
      for (std::size_t k = 0; k < takes.size(); ++k) {
        Seconds time = 0;
        for (std::size_t p = 0; p < weights.size(); ++p) time += weights[p] * takes[k][p];
        if (k > 0 && time >= least_time) continue;
        least = k;
        least_time = time;
      }
      for (std::size_t p = 0; p < weights.size(); ++p) {
        mean[p] += weights[p] / sum / kTurns;
        gained[p] += takes[least][p] / most;
      }
    }
    Path path(chunks_);
    for (std::size_t p = 0; p < paths_.size(); ++p) {
      for (std::size_t c = 0; c < chunks_; ++c) {
        path[c].forward += mean[p] * paths_[p][c].forward;
        path[c].input_gradients += mean[p] * paths_[p][c].input_gradients;
        path[c].weight_gradients += mean[p] * paths_[p][c].weight_gradients;
      }
    }
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

  const PipelineSchedule& schedule_;
  const Cuts& ends_;
  const std::size_t end_, chunks_;
  std::vector<LeastOfPart> parts_;
  std::vector<Path> paths_;
  std::vector<Cuts> cuts_;
};

}  // namespace

Result<Seconds> bound_by_paths(const PipelineSchedule& schedule, const LeastOfParts& part,
                               std::size_t end, const std::vector<std::size_t>& ends) {
  return PathGame(schedule, part, end, ends).run();
}

}  // namespace autopar
