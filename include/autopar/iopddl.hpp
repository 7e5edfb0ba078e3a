// Bare search problems in the JSON of the ASPLOS'25 IOPDDL contest: per node a live interval, a
// cost and a memory use per choice; per edge a cost matrix; a memory limit.
//
//   Result<IopddlProblem> read = read_iopddl("problem.json");
//   Solution solution = solve_dp(read->problem, {});
#pragma once

#include <string>

#include "autopar/problem.hpp"

namespace autopar {

// Costs of 1e18 and more mean "forbidden".
inline constexpr double kIopddlForbidden = 1e18;

struct IopddlProblem {
  std::string name;
  Problem problem;
};
// Not compressed. Errors name the file and the field: "p.json: problem.edges.costs[3]: ...".
Result<IopddlProblem> read_iopddl(const std::string& path);
Result<IopddlProblem> parse_iopddl(const std::string& text, const std::string& file);

// The same form, whose first nodes are the problem's. `base_use` is taken off the limit; a further
// use of a node becomes a node of its own, tied to it by forbidden pairs. What the form cannot
// say: memory used by edges; those uses are left out and counted. An infinite limit is written as
// the most that can be in use. Costs and uses are multiplied and, unless by 1, rounded to whole
// numbers, which other readers expect.
struct IopddlText {
  std::string json;
  int edge_uses_left_out = 0;
};
IopddlText problem_to_iopddl(const Problem& problem, const std::string& name,
                             double cost_factor = 1, double use_factor = 1);

}  // namespace autopar
