// Problem: the search as numbers only. Nodes choose one of several candidates; nodes and edges cost
// seconds (or any unit) and use memory over time; the sum of the costs is minimised while at every
// time the sum of the uses stays within the limit.
//
//   Problem p;
//   int t = p.add_table({.rows = 2, .columns = 2, .values = {0, 1, 1, 0}});
//   p.nodes = {{.name = "a", .cost = {1, 2}}, {.name = "b", .cost = {3, 1}}};
//   p.edges = {{.from = 0, .to = 1, .cost_table = t}};
//   Solution s = solve_dp(p, {});     // s.choices, s.cost, s.lower_bound
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Row-major: values[choice of `from` * columns + choice of `to`]. Shared by equal edges.
struct CostTable {
  int rows = 0;
  int columns = 0;
  std::vector<double> values;
  // Where there are classes (0, 1, ... in the order of appearance), rows and columns of one class
  // are equal, and the values are those of classes: values[class of row * classes + class of
  // column].
  std::vector<int> row_class = {}, column_class = {};
  int column_classes = 0;
  double at(int row, int column) const {
    const auto r = static_cast<std::size_t>(row), c = static_cast<std::size_t>(column);
    if (row_class.empty()) return values[r * static_cast<std::size_t>(columns) + c];
    return values[static_cast<std::size_t>(row_class[r]) *
                      static_cast<std::size_t>(column_classes) +
                  static_cast<std::size_t>(column_class[c])];
  }
};

// Memory in use during [begin, end), per choice.
struct NodeUse {
  int begin = 0;
  int end = 0;
  std::vector<double> bytes;
};
struct EdgeUse {
  int begin = 0;
  int end = 0;
  int table = -1;  // bytes per pair of choices
};

struct ProblemNode {
  std::string name;          // for messages only
  std::vector<double> cost;  // per choice, >= 0 and not NaN; infinite: forbidden
  std::vector<NodeUse> uses;
};
struct ProblemEdge {
  int from = -1;
  int to = -1;
  int cost_table = -1;  // -1: costs nothing (the edge only uses memory)
  std::vector<EdgeUse> uses;
};

// Several edges may join the same two nodes. `base_use` is in use at all times. Times are integers
// in [0, horizon).
struct Problem {
  std::vector<ProblemNode> nodes;
  std::vector<ProblemEdge> edges;
  std::vector<CostTable> tables;
  double use_limit = kInfinity;
  double base_use = 0;
  int horizon = 0;

  int add_table(CostTable table);
};

// Sizes agree, indices exist, no NaN, no negative use.
Status verify(const Problem& problem);

// Cost and peak memory of given choices, computed plainly: what every searcher's claim is held to.
struct Evaluation {
  double cost = 0;
  double peak_use = 0;  // including base_use
  int peak_time = 0;    // the first time at which it is reached
};
Evaluation evaluate(const Problem& problem, const std::vector<int>& choices);

// What a search is made of, and may do without (SolveOptions::left_out), which makes its answer
// another one, and no less honest.
enum class SolveStage {
  kPresolve,  // choices that nothing allows, and nodes that follow from others, go
  kFold,      // like parts are bounded as one
  kColumns,   // plans combined part by part from those that prices favour, and their prices
  kMix,       // plans that take each node's choice from one of those met
  kWindows,   // the exact search in the order of the graph, under a limit
};
struct StageRow {
  SolveStage stage;
  const char* name;
};
const std::vector<StageRow>& solve_stages();

// What one stage did, with what is known after it.
struct StageReport {
  std::string name;
  double bound = 0;
  double cost = kInfinity;
  double work = 0;  // table entries
  Seconds seconds = 0;
};

struct SolveProgress {
  double best_cost = kInfinity;  // infinite: nothing feasible yet
  double lower_bound = 0;
  const std::vector<int>* best_choices = nullptr;  // null: nothing feasible yet, or not at hand
};
struct SolveOptions {
  // Stop when (cost - bound) / cost is at most this. What is done until then does not depend on it.
  double gap = 0;
  Seconds time_limit = kInfinity;  // the only thing that makes a result depend on the machine
  // The time limit is there to be used up for small gaps. What is tried follows from the work that
  // this time is worth, which is counted; the clock only ends it.
  bool patient = false;
  Seconds used_before = 0;  // of the time limit, before the call: for the clock only
  int threads = 1;          // without a time limit they change no result
  // A plan is worth nothing unless cheaper than this: lets the search over meshes stop early.
  double cutoff = kInfinity;
  // How many times the work of a default search may be spent, also on gaps that are too small to be
  // worth the default's.
  double effort = 1;
  // Of a search over meshes: where a default search ends without a proof, and short of the gap, it
  // goes on with more and more effort, up to this.
  double most_effort = 1;
  double known_bound = 0;  // of the cost, from an earlier search with less effort
  // How far to go; where that leaves something open, the solution is `deferred`: another problem
  // may have a cheaper plan than this one can have.
  enum class Until {
    kProof,  // not beyond bounds without the memory limit, and what they prove
    kLimit,  // not into the memory limit, where what is found without it is not within it
    kPlans,  // not beyond prices of the limit
    kClose,  // not beyond the plans that come of them
    kEnd,
  };
  Until until = Until::kEnd;
  bool least_peak = true;                   // where nothing fits: how little memory would do
  unsigned left_out = 0;                    // stages: the sum of 1 << stage
  const std::atomic<bool>* stop = nullptr;  // set from outside: return the best so far
  std::function<void(const SolveProgress&)> progress;
};

// For searches that are to go on until the gap is reached, or for as long as there is time: the
// first must end where the gap is out of reach, the second ends by the clock.
inline constexpr double kEffortForGap = 64;
inline constexpr double kEffortForTime = 65536;

// Why a search is over.
enum class SolveEnd {
  kProven,    // nothing is cheaper, or nothing fits
  kGap,       // the gap that was asked for is reached
  kCutOff,    // what is left is worth nothing: the bound is at the cutoff
  kDeferred,  // as was asked for (SolveOptions::until)
  kTime,      // by time limit or stop
  kEffort,    // more work might find more; or it would be too much for so small a gap
};
const char* name_of(SolveEnd end);

// Invariants: feasible => evaluate(choices).cost == cost and its peak_use <= use_limit;
// lower_bound <= optimal cost; lower_bound <= cost.
struct Solution {
  bool feasible = false;
  std::vector<int> choices;
  double cost = kInfinity;
  double lower_bound = 0;  // infinite: proven that nothing fits
  // The bound without the memory limit (the limit can only raise the optimum).
  double unlimited_lower_bound = 0;
  double peak_use = 0;
  // What sharding propagation minimises exactly on request: its relative gap.
  double redistribution_gap = 0;
  bool cut_off = false;      // stopped since lower_bound >= cutoff; not feasible then
  bool deferred = false;     // see SolveOptions::until; a plan that fits may be there or not
  bool interrupted = false;  // by time limit or stop
  // Infeasible by memory: the smallest peak that was found, and when. Proven minimum if so said.
  double least_peak_use = kInfinity;
  int tightest_time = -1;
  bool least_peak_proven = false;
  std::vector<StageReport> stages = {};  // in their order
  SolveEnd end = SolveEnd::kEffort;

  double gap() const {  // relative; 0 = proven optimal
    return feasible && cost > 0 ? (cost - lower_bound) / cost : 0;
  }
};

// Exact wherever its (deterministic) effort limits allow, else with an honest gap.
// Reductions (leaves, degree 2, equal choices), a TRW-S bound, fixing of choices by reduced cost,
// elimination of what is left, branch and bound; the memory limit by Lagrange multipliers and
// branching. Sources: Kolmogorov, "Convergent tree-reweighted message passing for energy
// minimization", PAMI 2006; Koster, van Hoesel, Kolen, "Solving partial constraint satisfaction
// problems with tree decomposition", Networks 2002.
Solution solve_dp(const Problem& problem, const SolveOptions& options);

namespace solver {
struct Learnt;
}
// What was learnt of a problem, to go on from when it is built again: prices of memory, messages,
// plans. Small beside the problem. Null: nothing.
using LearntOfProblem = std::shared_ptr<const solver::Learnt>;

// The same in two parts: bounds, and perhaps a plan, after a first look that takes little time;
// then the rest, with options (cutoff, time) as they are by then, and once more where the solution
// was deferred. The problem must live as long. What was learnt before takes the place of the look.
struct BegunSolve {
  Solution so_far;
  std::function<Solution(const SolveOptions&)> finish;
  std::function<LearntOfProblem()> learnt;
};
BegunSolve begin_dp(const Problem& problem, const SolveOptions& options,
                    const LearntOfProblem& learnt = nullptr);

// Tries every combination that a sum of what its choices cost at least does not rule out, by code
// of its own: the oracle of the tests. The least peak is looked for where nothing fits. Refuses
// (kInput) problems that are not through after looking at choices `limit` times: counted work, so
// the same answer on every machine.
Result<Solution> solve_exhaustive(const Problem& problem, double limit = 5e7);

// The same problem with the choices of some nodes narrowed: `allowed[n]` empty = all. The returned
// solution has the indices of the full problem.
Solution solve_restricted(const Problem& problem, const std::vector<std::vector<int>>& allowed,
                          const SolveOptions& options);

}  // namespace autopar
