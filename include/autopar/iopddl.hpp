// Bare search problems in the JSON of the ASPLOS'25 IOPDDL contest: per node a live interval, a
// cost and a memory use per choice; per edge a cost matrix; a memory limit.
//
//   Result<IopddlProblem> read = read_iopddl("problem.json");
//   Solution solution = solve_dp(read->problem, {});
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/problem.hpp"

namespace autopar {

// Costs of 1e18 and more mean "forbidden".
inline constexpr double kIopddlForbidden = 1e18;

struct IopddlProblem {
  std::string name;
  Problem problem;
  // A file's times may be any numbers, where the problem's are counted: from one at which an
  // interval begins or ends to the next, nothing changes, so that is one time of the problem.
  std::vector<int> times;  // of the file, by the problem's
};
// Errors name the file and the field: "p.json: problem.edges.costs[3]: ...".
Result<IopddlProblem> read_iopddl(const std::string& path);
Result<IopddlProblem> parse_iopddl(const std::string& text, const std::string& file);

// The same form, whose first nodes are the problem's. Costs and uses are multiplied and rounded to
// whole numbers, which other readers expect: costs to the nearest, uses up and the limit down, so
// that what fits there fits here. With `base_use` taken off the limit. What the form cannot say is
// said with further nodes, tied to the problem's by forbidden pairs: each further use of a node,
// and memory used by an edge where the limit can be exceeded at all, whose node chooses a pair of
// classes of equal rows and columns. An infinite limit is written as the most that can be in use.
std::string problem_to_iopddl(const Problem& problem, const std::string& name);
// Handed on in pieces, since it may be larger than memory. `take` returns 0 or an errno, after
// which it gets no more; so is what this returns.
using TakeText = std::function<int(std::string_view piece)>;
int problem_to_iopddl(const Problem& problem, const std::string& name, double cost_factor,
                      double use_factor, const TakeText& take);

}  // namespace autopar
