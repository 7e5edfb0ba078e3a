#include "search/propagate/near_pins.hpp"

#include <algorithm>

namespace autopar {

namespace {

constexpr int kMostSolves = 64;

class NearPins {
 public:
  NearPins(const MeshProblem& mesh_problem, const Problem& problem, const PropagationTrace& trace,
           const SolveOptions& options)
      : mesh_problem_(mesh_problem), problem_(problem), trace_(trace), options_(options) {
    for (std::size_t o = 0; o < mesh_problem.node_of_op.size(); ++o) {
      whole_.push_back(whole_choice(o));
      deepest_ = std::max(deepest_, trace.level[o]);
      seeds_ = std::max(seeds_, static_cast<std::size_t>(trace.origin[o] + 1));
    }
  }

  Solution run() {
    reach_.assign(seeds_, 0);
    std::vector<int> best = reach_;
    for (int reach : reaches()) {
      reach_.assign(seeds_, reach);
      if (improves()) best = reach_;
    }
    for (std::size_t s = 0; s < seeds_ && seeds_ > 1; ++s) {
      for (int reach : reaches()) {
        reach_ = best;
        reach_[s] = reach;
        if (reach_ != best && improves()) best = reach_;
      }
    }
    return std::move(best_);
  }

 private:
  // As it was decided where the op must not be whole.
  int whole_choice(std::size_t op) const {
    const std::vector<Assignment>& all = mesh_problem_.choices_of_op[op]->assignments;
    for (std::size_t c = 0; c < all.size(); ++c) {
      const std::vector<int>& factors = all[c].factor_of_axis;
      if (std::all_of(factors.begin(), factors.end(), [](int f) { return f < 0; })) {
        return static_cast<int>(c);
      }
    }
    return trace_.choices[node_of(op)];
  }

  std::size_t node_of(std::size_t op) const {
    return static_cast<std::size_t>(mesh_problem_.node_of_op[op]);
  }

  std::vector<int> reaches() const {
    std::vector<int> found = {0};
    for (int step = 1; found.back() < deepest_;) {
      found.push_back(std::min(deepest_, found.back() + step));
      if (found.size() > 4 && found.size() % 2 == 0) step *= 2;
    }
    return found;
  }

  bool improves() {
    if (++solves_ > kMostSolves || (options_.stop != nullptr && options_.stop->load())) {
      return false;
    }
    std::vector<std::vector<int>> allowed(problem_.nodes.size());
    for (std::size_t o = 0; o < whole_.size(); ++o) {
      const int origin = trace_.origin[o];
      // A pin by counts may leave a choice of axes.
      if (origin != PropagationTrace::kFilled && trace_.level[o] == 0) continue;
      const bool follows = origin == PropagationTrace::kFilled ||
                           trace_.level[o] <= reach_[static_cast<std::size_t>(origin)];
      allowed[node_of(o)] = {follows ? trace_.choices[node_of(o)] : whole_[o]};
    }
    Solution found = solve_restricted(problem_, allowed, options_);
    if (!found.feasible || (best_.feasible && found.cost >= best_.cost)) return false;
    best_ = std::move(found);
    return true;
  }

  const MeshProblem& mesh_problem_;
  const Problem& problem_;
  const PropagationTrace& trace_;
  const SolveOptions& options_;
  std::vector<int> whole_;  // per op
  int deepest_ = 0;
  std::size_t seeds_ = 0;
  int solves_ = 0;
  std::vector<int> reach_;
  Solution best_;
};

}  // namespace

Solution solve_near_pins(const MeshProblem& mesh_problem, const Problem& problem,
                         const PropagationTrace& trace, const SolveOptions& options) {
  return NearPins(mesh_problem, problem, trace, options).run();
}

}  // namespace autopar
