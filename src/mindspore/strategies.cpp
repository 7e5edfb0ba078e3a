#include "mindspore/strategies.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "mindspore/ops.hpp"

namespace autopar::mindspore {

namespace {

// Beyond this many assignments of axes, none but those on runs of axes.
constexpr double kMostOnAnyAxes = 1e5;

// Assignments of runs of axes to the loop dimensions in their order: each takes the next axes of
// the mesh, and what is left over at the end repeats the calculation.
struct Runs {
  const Op& op;
  const Rule& rule;
  const Mesh& mesh;
  std::vector<int> factors = {};
  std::vector<std::pair<std::int64_t, Assignment>> found = {};  // devices used

  void extend(std::size_t factor, std::size_t axis, std::int64_t used, Assignment& assignment) {
    if (factor == factors.size()) {
      if (specs_of(rule, assignment, mesh)) found.emplace_back(used, assignment);
      return;
    }
    extend(factor + 1, axis, used, assignment);
    const auto f = static_cast<std::size_t>(factors[factor]);
    std::int64_t parts = 1;
    std::size_t end = axis;
    for (; end < mesh.axes.size(); ++end) {
      parts *= mesh.axes[end].size;
      if (mesh.axes[end].size == 1 || rule.factors[f].size % parts != 0) break;
      assignment.factor_of_axis[end] = factors[factor];
      extend(factor + 1, end + 1, used * parts, assignment);
    }
    for (std::size_t a = axis; a < mesh.axes.size(); ++a) assignment.factor_of_axis[a] = -1;
  }
};

Assignment none_of(const Mesh& mesh) { return {std::vector<int>(mesh.axes.size(), -1)}; }

// In the order of their split counts, without the one that splits nothing. `any_number`: of
// devices; else as many as the op can use.
std::vector<Assignment> on_runs(const Op& op, const Rule& rule, const Mesh& mesh, DeviceUse use,
                                bool any_number) {
  Runs runs{op, rule, mesh};
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    const int factor = static_cast<int>(f);
    if (!stays_whole(op, rule, factor, use)) runs.factors.push_back(factor);
  }
  const Assignment none = none_of(mesh);
  Assignment scratch = none;
  runs.extend(0, 0, 1, scratch);
  std::int64_t most = 1;
  for (const auto& [used, assignment] : runs.found) most = std::max(most, used);
  using Ranked = std::pair<std::vector<std::vector<std::int64_t>>, Assignment>;
  std::vector<Ranked> ranked;
  for (const auto& [used, assignment] : runs.found) {
    if (assignment == none || (!any_number && used != most)) continue;
    ranked.emplace_back(strategy_of(specs_of(rule, assignment, mesh)->inputs, mesh), assignment);
  }
  std::sort(ranked.begin(), ranked.end());
  std::vector<Assignment> result;
  for (Ranked& entry : ranked) result.push_back(std::move(entry.second));
  return result;
}

// Behind those on runs of axes all others that `keeps` keeps.
template <class Keeps>
void add_on_any_axes(const Rule& rule, const Mesh& mesh, const Keeps& keeps,
                     std::vector<Assignment>& result) {
  const Assignment none = none_of(mesh);
  const std::set<Assignment> have(result.begin(), result.end());
  for (Assignment& a : candidates(rule, mesh)) {
    if (a == none || have.count(a) != 0 || !keeps(a)) continue;
    result.push_back(std::move(a));
  }
}

}  // namespace

bool too_many_on_any_axes(const Rule& rule, const Mesh& mesh) {
  return std::pow(static_cast<double>(resting_factors(rule)) + 1.0, mesh.rank()) > kMostOnAnyAxes;
}

std::vector<Assignment> strategies(const Op& op, const Rule& rule, const Mesh& mesh,
                                   const MindsporeWeights& weights) {
  const bool any = takes_any_layout(op) || (weights.elementwise_follow && is_elementwise(op));
  const bool any_axes = weights.devices == DeviceUse::kAnyAxes;
  const DeviceUse use = any && !any_axes ? DeviceUse::kAny : weights.devices;
  const bool any_number = use == DeviceUse::kAny || any_axes;
  std::vector<Assignment> result = on_runs(op, rule, mesh, weights.devices, any_number);
  if (any_axes && !too_many_on_any_axes(rule, mesh)) {
    const auto keeps = [&](const Assignment& a) {
      return std::none_of(a.factor_of_axis.begin(), a.factor_of_axis.end(), [&](int factor) {
        return factor >= 0 && stays_whole(op, rule, factor, weights.devices);
      });
    };
    add_on_any_axes(rule, mesh, keeps, result);
  }
  if (result.empty() || use != DeviceUse::kAll) result.push_back(none_of(mesh));
  return result;
}

std::vector<Assignment> configurable_strategies(const Op& op, const Rule& rule, const Mesh& mesh,
                                                const MindsporeWeights& weights) {
  std::vector<Assignment> result = on_runs(op, rule, mesh, weights.devices, true);
  const auto all = [](const Assignment&) { return true; };
  if (!too_many_on_any_axes(rule, mesh)) add_on_any_axes(rule, mesh, all, result);
  result.push_back(none_of(mesh));
  return result;
}

}  // namespace autopar::mindspore
