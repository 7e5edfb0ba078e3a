// What a search has found so far, and the search on one of its meshes: the problem is built and
// solved, its plan priced again, and the better plan kept.
//
//   MeshSearch search(request, searcher, {mesh});
//   Result<bool> deferred = search.search_mesh(0, kInfinity, SolveOptions::Until::kEnd);
//   search.best, search.outcome.strategy, search.outcome.trials[0].lower_bound
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "autopar/search.hpp"
#include "search/no_plan.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

// A bound that is as close to the best plan is no other number than its cost.
inline constexpr double kBoundRounding = 4e-12;

// Whether a mesh is one of those that the bound is about.
bool says_something(TrialEnd end);
// The bounds over all meshes that were tried.
SearchFindings findings_of(const std::vector<MeshTrial>& trials);

// A mesh's problem and, where the searcher works in two parts, what it has seen of it.
struct Begun {
  std::size_t mesh = 0;
  std::unique_ptr<CostModel> model;
  MeshProblem built;
  BegunSolve solve;
  int steps = 0;  // beyond the first look
  std::size_t stages_told = 0;
};

// Of the meshes that were begun the most promising one, to go on with, and others while their
// problems are small: those with most steps first, since these would have to be done again.
class KeptMeshes {
 public:
  // Of equally many steps, the lower the rank, the more promising; the first of equals.
  void keep(std::unique_ptr<Begun> begun, double rank);
  // Leaves no more than are small together, or one: before another problem is built. The others.
  std::vector<std::unique_ptr<Begun>> make_room();
  bool has(std::size_t mesh) const;
  std::unique_ptr<Begun> take(std::size_t mesh);  // null: it was not kept
  const Begun* most_promising() const { return kept_.empty() ? nullptr : kept_[0].begun.get(); }

 private:
  struct Kept {
    double rank;
    std::unique_ptr<Begun> begun;
  };
  std::vector<Kept> kept_;  // by steps, rank and mesh
};

// How far a search over meshes goes.
struct MeshSearchReach {
  // Meshes whose first bound is above so many times the least one are not searched.
  double searched_within = kInfinity;
  // Of several meshes, gaps below that part of the plan are left once all have their plans.
  double worth_closing = 0;
};

// What ends a step on a mesh.
struct StepEnds {
  double far_enough = kInfinity;  // the bound for this step
  double below = kInfinity;       // only such plans are of use
};

struct MeshSearch {
  MeshSearch(const SearchRequest& request, const Searcher& searcher,
             const std::vector<Mesh>& meshes, const MeshSearchReach& reach = {});

  const SearchRequest& request;
  const Searcher& searcher;
  const MeshSearchReach reach;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  SearchOutcome outcome = {};  // a trial per mesh; bounds after note_bound()
  double best = kInfinity;     // of what is minimised
  Tightest tightest = {};
  KeptMeshes kept;
  bool refuses_mesh = false;  // the searcher, the last one
  double effort;              // of the round at hand

  // Leaves only what is small of meshes that wait, and of the others what was learnt.
  void make_room();
  // A round of more effort does not go on from what less of it ended with.
  void forget_learnt() { learnt_.assign(outcome.trials.size(), nullptr); }

  // So many meshes are looked at at once.
  std::size_t meshes_at_once() const;
  // By the time limit or an interrupt.
  bool stopped() const;
  // A first look at a mesh, which bounds it and perhaps has a plan: several threads look at
  // several. Null: its problem was not built, for want of time or since it is too large. Errors are
  // pins that this mesh cannot keep, or bugs of an op's rule.
  Result<std::unique_ptr<Begun>> begin(std::size_t m, Seconds time);
  // Bounds a mesh by its ops alone (least_of_ops). False: for want of time, or since there are too
  // many candidates, it was not. Errors as of begin().
  Result<bool> note_least_of_ops(std::size_t m, Seconds time);
  // In whole, where the searcher does not work in two parts. True where more can be done: only
  // before the end (`until`), or where the bound was far enough to wait. Errors as of begin().
  Result<bool> search_mesh(std::size_t m, Seconds time, SolveOptions::Until until,
                           const StepEnds& ends = {});
  // Prices a plan again, and takes it if it is the best so far.
  Status keep_better(const MeshProblem& built, const Solution& solution, CostModel& model,
                     MeshTrial& trial);
  SearchFindings findings() const;
  // The outcome's bounds over all meshes.
  void note_bound();

 private:
  void leave_those_known();
  Allowance allowance_of_mesh(Seconds time) const;
  Result<std::unique_ptr<Begun>> price(MeshTrial& trial, Seconds time) const;
  SolveOptions options_within(Seconds time) const;
  Result<bool> take(std::size_t m, const Begun& begun, const Solution& solution, double cutoff);
  void note_infeasible(const Mesh& mesh, const Solution& solution);
  void note_bounds(std::size_t m, const Solution& solution);
  void note_stages(std::size_t m, const Solution& solution, Begun& begun);
  void note_learnt(const Begun& begun);

  std::vector<LearntOfProblem> learnt_;  // per mesh whose problem was not kept
};

}  // namespace autopar
