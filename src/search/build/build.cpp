// Graph + cost model -> Problem. One node per op (its assignments), per stored value (where inputs
// and parameters lie), per value with several readers (its hub) and per graph output (how it
// leaves). Ops of one class share their candidates and cost tables. Here is the order of the
// stages.
#include "search/build/build.hpp"

#include <algorithm>

#include "search/build/execution_order.hpp"
#include "search/build/mesh_build.hpp"

namespace autopar {
namespace {

void set_limits(MeshBuild& build) {
  Problem& problem = build.out.problem;
  problem.horizon = static_cast<int>(build.graph.ops.size());
  problem.use_limit = kInfinity;
  if (build.request.limit_memory) {
    problem.use_limit = static_cast<double>(plan_limit(build.request));
  }
  for (const Value& value : build.graph.values) {
    if (value.kind == ValueKind::kConstant) {
      problem.base_use += static_cast<double>(value.bytes());
    }
  }
}

Result<MeshProblem> built(MeshBuild& build) {
  set_limits(build);
  AUTOPAR_RETURN_IF_ERROR(add_ops(build));
  if (!build.out.whole) return std::move(build.out);
  AUTOPAR_RETURN_IF_ERROR(add_sources(build));
  AUTOPAR_RETURN_IF_ERROR(connect_values(build));
  if (build.out.whole) number_in_execution_order(build.graph, build.readers, build.out);
  return std::move(build.out);
}

Result<Seconds> least_together(MeshBuild& build) {
  AUTOPAR_RETURN_IF_ERROR(add_ops(build));
  if (!build.out.whole) return 0.0;
  Seconds sum = 0;
  for (const ProblemNode& node : build.out.problem.nodes) {
    sum += *std::min_element(node.cost.begin(), node.cost.end());
  }
  return sum;
}

// What `make` makes of a build.
template <class T, class Make>
Result<T> built_within(const SearchRequest& request, CostModel& model, Allowance* allowance,
                       const Make& make) {
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  AUTOPAR_TRY(pins, keep_pins(request, model));
  Allowance unlimited;
  if (allowance == nullptr) allowance = &unlimited;
  model.limit(allowance);
  MeshBuild build(request, model, std::move(pins), *allowance);
  Result<T> made = make(build);
  model.limit(nullptr);
  return made;
}

}  // namespace

Result<MeshProblem> build_problem(const SearchRequest& request, CostModel& model,
                                  Allowance* allowance) {
  return built_within<MeshProblem>(request, model, allowance, built);
}

Result<Seconds> least_of_ops(const SearchRequest& request, CostModel& model, Allowance* allowance) {
  return built_within<Seconds>(request, model, allowance, least_together);
}

}  // namespace autopar
