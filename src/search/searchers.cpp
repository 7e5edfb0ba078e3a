#include "autopar/phase_ops.hpp"
#include "autopar/search.hpp"
#include "search/auto.hpp"
#include "search/batch.hpp"
#include "search/propagate/propagate.hpp"
#include "search/rec/rec.hpp"
#include "search/stored_rules.hpp"
#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

Result<Solution> run_dp(const SearchRequest&, const MeshProblem& problem,
                        const SolveOptions& options) {
  return solve_dp(problem.problem, options);
}

Result<Solution> run_exhaustive(const SearchRequest&, const MeshProblem& problem,
                                const SolveOptions&) {
  return solve_exhaustive(problem.problem);
}

// Leaves an op only the choice that splits `factor` (-1: none) over all devices that it can.
void narrow_op(const MeshProblem& problem, std::size_t op, int factor,
               std::vector<std::vector<int>>& allowed) {
  const auto& assignments = problem.choices_of_op[op]->assignments;
  const std::size_t choice = data_parallel_choice(assignments, factor, problem.mesh);
  const auto node = static_cast<std::size_t>(problem.node_of_op[op]);
  if (choice < assignments.size()) {
    allowed[node] = {static_cast<int>(choice)};
    return;
  }
  for (std::size_t c = 0; c < assignments.size(); ++c) {
    bool none = true;
    for (int f : assignments[c].factor_of_axis) none = none && f < 0;
    if (none) allowed[node] = {static_cast<int>(c)};
  }
}

void narrow_ops(const SearchRequest& request, const MeshProblem& problem,
                const std::vector<int>& factors, std::vector<std::vector<int>>& allowed) {
  const PhaseOps phase_ops(request.graph);
  for (std::size_t o = 0; o < factors.size(); ++o) {
    const OpId op(static_cast<std::int64_t>(o));
    if (!is_never_filled(request, phase_ops, op)) narrow_op(problem, o, factors[o], allowed);
  }
}

void narrow_to_whole(const MeshProblem& problem, int node, std::vector<std::vector<int>>& allowed) {
  const auto n = static_cast<std::size_t>(node);
  for (std::size_t c = 0; c < problem.specs_of_node[n].size(); ++c) {
    if (is_replicated(problem.specs_of_node[n][c])) allowed[n] = {static_cast<int>(c)};
  }
}

Result<Solution> run_data_parallel(const SearchRequest& request, const MeshProblem& problem,
                                   const SolveOptions& options) {
  std::vector<std::vector<int>> allowed(problem.problem.nodes.size());
  const std::vector<int> factors = batch_factors(request.graph, request.rules);
  narrow_ops(request, problem, factors, allowed);
  for (std::size_t v = 0; v < problem.source_node.size(); ++v) {
    if (problem.source_node[v] >= 0 && request.graph.values[v].kind == ValueKind::kParameter) {
      narrow_to_whole(problem, problem.source_node[v], allowed);
    }
  }
  return solve_restricted(problem.problem, allowed, options);
}

Result<Solution> run_replicate(const SearchRequest& request, const MeshProblem& problem,
                               const SolveOptions& options) {
  std::vector<std::vector<int>> allowed(problem.problem.nodes.size());
  narrow_ops(request, problem, std::vector<int>(request.graph.ops.size(), -1), allowed);
  for (std::size_t v = 0; v < problem.source_node.size(); ++v) {
    for (int node : {problem.source_node[v], problem.hub_node[v], problem.output_node[v]}) {
      if (node >= 0) narrow_to_whole(problem, node, allowed);
    }
  }
  return solve_restricted(problem.problem, allowed, options);
}

}  // namespace

const std::vector<Searcher>& searchers() {
  static const std::vector<Searcher> table = {
      {"dp", "dynamic_programming", "exact, with a proven lower bound", run_dp, true, Fill::kSearch,
       nullptr, nullptr, begin_dp},
      {"rec", "recursive_programming",
       "double recursion: cuts the machine level by level, near instant", nullptr, false,
       Fill::kSearch, search_rec},
      {"auto", "automatic", "runs the quick ones and, where it can, the exact one; takes the best",
       nullptr, true, Fill::kSearch, search_auto},
      {"uniform", "templates",
       "templates of data, tensor, sequence, context and expert parallelism and ZeRO", nullptr,
       false, Fill::kSearch, search_uniform},
      {"exhaustive", "exhaustive_search", "tries everything; small graphs only", run_exhaustive,
       true, Fill::kSearch},
      {"propagate", "sharding_propagation", "from the pinned ops to the rest, breadth first",
       run_propagate, false, Fill::kSearch, nullptr, explain_propagation},
      {"data_parallel", "data_parallel", "baseline: split the batch, replicate the parameters",
       run_data_parallel, false, Fill::kDataParallel},
      {"replicate", "stand_alone", "baseline: every device does everything", run_replicate, false,
       Fill::kReplicate},
  };
  return table;
}

std::string short_searcher_name(const std::string& asked) {
  const std::string name = asked.substr(0, asked.find(':'));
  for (const Searcher& searcher : searchers()) {
    if (name == searcher.long_name) return searcher.name + asked.substr(name.size());
  }
  return asked;
}

bool is_templates(const std::string& asked) {
  const std::string name = asked.substr(0, asked.find(':'));
  return name == "uniform" || name == "templates";
}

}  // namespace autopar
