#include "search/propagate/propagate.hpp"

#include <cmath>

#include "search/propagate/near_pins.hpp"

namespace autopar {

namespace {

// What an op costs beside what redistribution costs, in the exact search: only a tie-break.
constexpr double kTieBreak = 1e-6;

double redistribution(const Problem& problem, const std::vector<int>& choices) {
  double sum = 0;
  for (const ProblemEdge& edge : problem.edges) {
    if (edge.cost_table < 0) continue;
    sum += problem.tables[static_cast<std::size_t>(edge.cost_table)].at(
        choices[static_cast<std::size_t>(edge.from)], choices[static_cast<std::size_t>(edge.to)]);
  }
  return sum;
}

Solution as_solution(const Problem& problem, std::vector<int> choices) {
  Solution solution;
  const Evaluation evaluation = evaluate(problem, choices);
  solution.peak_use = evaluation.peak_use;
  solution.cost = evaluation.cost;
  solution.feasible = evaluation.peak_use <= problem.use_limit && !std::isinf(evaluation.cost);
  if (!solution.feasible) {
    solution.cost = kInfinity;
    solution.least_peak_use = evaluation.peak_use;
    solution.tightest_time = evaluation.peak_time;
    return solution;
  }
  solution.choices = std::move(choices);
  return solution;
}

// Costs and claims of a restricted solution, as those of the whole problem: it proves nothing.
Solution with_own_claims(const Problem& problem, const Solution& restricted) {
  Solution solution = restricted.feasible ? as_solution(problem, restricted.choices) : restricted;
  solution.interrupted = restricted.interrupted;
  solution.cut_off = false;
  solution.lower_bound = 0;
  solution.unlimited_lower_bound = 0;
  solution.least_peak_proven = false;
  return solution;
}

SolveOptions without_cutoff(const SolveOptions& options) {
  SolveOptions kept = options;
  kept.cutoff = kInfinity;
  return kept;
}

// Fixes ops at their choices; `reached_only`: not those that no pin reaches.
std::vector<std::vector<int>> fixed_ops(const MeshProblem& problem, const PropagationTrace& trace,
                                        bool reached, bool unreached) {
  std::vector<std::vector<int>> allowed(problem.problem.nodes.size());
  for (std::size_t o = 0; o < problem.node_of_op.size(); ++o) {
    const bool filled = trace.origin[o] == PropagationTrace::kFilled;
    if (filled ? !unreached : !reached) continue;
    const auto node = static_cast<std::size_t>(problem.node_of_op[o]);
    allowed[node] = {trace.choices[node]};
  }
  return allowed;
}

// The exact counterpart: all ops but pinned and unreached ones are free, redistribution is all that
// counts. Where nothing is split nothing is redistributed, so there are many ties, among which the
// search over everything may get lost on large graphs; plans that follow the pins only so far are
// put beside what it finds.
Solution solve_exactly(const SearchRequest& request, const MeshProblem& problem,
                       const PropagationTrace& trace, const SolveOptions& options) {
  Problem weighted = problem.problem;
  for (ProblemNode& node : weighted.nodes) {
    for (double& cost : node.cost) cost *= kTieBreak;
  }
  const bool fill = request.unreached != Fill::kSearch;
  const SolveOptions asked = without_cutoff(options);
  const Solution all = solve_restricted(weighted, fixed_ops(problem, trace, false, fill), asked);
  const bool proven = all.feasible && all.gap() == 0;
  const Solution near =
      proven || all.interrupted ? Solution() : solve_near_pins(problem, weighted, trace, asked);
  const Solution& found = near.feasible && near.cost < all.cost ? near : all;
  Solution solution = with_own_claims(problem.problem, found);
  solution.interrupted = all.interrupted;
  const double bound = std::min(all.lower_bound, found.cost);
  solution.redistribution_gap = found.cost > 0 ? (found.cost - bound) / found.cost : 0;
  return solution;
}

Solution breadth_first_solution(const SearchRequest& request, const MeshProblem& problem,
                                const PropagationTrace& trace, const SolveOptions& options) {
  const bool search_rest = request.unreached == Fill::kSearch && trace.filled > 0;
  if (!search_rest) {
    Solution solution = as_solution(problem.problem, trace.choices);
    if (solution.feasible) return solution;
  }
  const auto allowed = fixed_ops(problem, trace, true, !search_rest);
  return with_own_claims(problem.problem,
                         solve_restricted(problem.problem, allowed, without_cutoff(options)));
}

}  // namespace

Result<Solution> run_propagate(const SearchRequest& request, const MeshProblem& problem,
                               const SolveOptions& options) {
  const Seeds seeds = seeds_of(request, problem);
  if (seeds.seeds.empty()) {
    return usage_error(
        "the searcher propagate starts from what you fixed, and nothing is fixed: pin at least one "
        "op with --pin FILE (\"ops\": {NAME: {\"in_strategy\": [[...], ...]}}), or give the layout "
        "of the inputs with --inputs data_parallel; --searcher dp needs neither");
  }
  const PropagationTrace trace = propagate_breadth_first(request, problem, seeds);
  Solution first = breadth_first_solution(request, problem, trace, options);
  if (!request.propagate_exact) return first;
  Solution exact = solve_exactly(request, problem, trace, options);
  // Where the exact search was stopped early, or a tie-break weighed more than a difference.
  const bool better =
      exact.feasible && (!first.feasible || redistribution(problem.problem, exact.choices) <=
                                                redistribution(problem.problem, first.choices));
  if (better || !first.feasible) return exact;
  first.interrupted = exact.interrupted;
  first.redistribution_gap = exact.redistribution_gap;
  return first;
}

}  // namespace autopar
