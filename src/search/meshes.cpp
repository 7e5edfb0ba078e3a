#include "search/meshes.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "search/counts.hpp"

namespace autopar {

namespace {

constexpr int kMostImpliedAxes = 6;

// Pins that say how something is cut, but not by which axes.
bool name_no_axes(const Pins& pins) {
  return std::any_of(pins.ops.begin(), pins.ops.end(),
                     [](const auto& pin) { return !pin.second.assignment; }) ||
         std::any_of(pins.values.begin(), pins.values.end(),
                     [](const auto& pin) { return !pin.second.device_matrix.empty(); });
}

// The coarsest mesh on which all device matrices lie; none where they cut the devices in ways that
// do not go together, or not as the cluster has its tiers.
std::optional<Mesh> mesh_of_matrices(const SearchRequest& request) {
  std::set<std::int64_t> strides;
  for (const auto& [name, pin] : request.pins.values) {
    std::int64_t stride = 1;
    for (std::size_t a = pin.device_matrix.size(); a-- > 0;) {
      if (pin.device_matrix[a] < 1 ||
          __builtin_mul_overflow(stride, pin.device_matrix[a], &stride)) {
        return std::nullopt;
      }
      strides.insert(stride);
    }
  }
  std::vector<std::int64_t> sizes;
  std::int64_t before = 1;
  for (std::int64_t stride : strides) {
    if (stride % before != 0) return std::nullopt;
    if (stride > before) sizes.insert(sizes.begin(), stride / before);
    before = stride;
  }
  if (sizes.empty()) return std::nullopt;
  auto mesh = make_mesh(request.cluster, sizes);
  if (!mesh) return std::nullopt;
  return std::move(*mesh);
}

// Pins of ops of one class by the same counts are looked at once.
class PinnedCounts {
 public:
  explicit PinnedCounts(const SearchRequest& request) : request_(request) {
    std::map<std::tuple<int, std::optional<SplitCounts>, std::optional<SplitCounts>>, bool> known;
    for (std::size_t o = 0; o < request.graph.ops.size(); ++o) {
      const auto pin = request.pins.ops.find(request.graph.ops[o].name);
      if (pin == request.pins.ops.end()) continue;
      if (pin->second.assignment) {
        for (const auto& [axis, factor] : *pin->second.assignment) axes_.insert(axis);
      }
      if (!pin->second.in_strategy && !pin->second.out_strategy) continue;
      const std::tuple key(request.rules.class_of_op[o], pin->second.in_strategy,
                           pin->second.out_strategy);
      if (!known.emplace(key, true).second) continue;
      pinned_.emplace_back(o, &pin->second);
    }
  }

  bool empty() const { return axes_.empty() && pinned_.empty(); }

  bool kept_by(const Mesh& mesh) const {
    return std::all_of(axes_.begin(), axes_.end(),
                       [&](const std::string& axis) { return mesh.axis_index(axis) >= 0; }) &&
           std::all_of(pinned_.begin(), pinned_.end(), [&](const auto& entry) {
             const auto& [o, pin] = entry;
             return gives_counts(*pin, request_.graph, request_.graph.ops[o],
                                 request_.rules.rules[o], mesh);
           });
  }

 private:
  const SearchRequest& request_;
  std::set<std::string> axes_;
  std::vector<std::pair<std::size_t, const OpPin*>> pinned_;
};

void add(const Mesh& mesh, std::vector<Mesh>& meshes) {
  if (std::find(meshes.begin(), meshes.end(), mesh) == meshes.end()) meshes.push_back(mesh);
}

// Those of more axes than asked that keep the pins of ops, where none of `meshes` does.
void add_finer(const SearchRequest& request, int max_axes, bool ordered,
               std::vector<Mesh>& meshes) {
  const PinnedCounts pinned(request);
  if (pinned.empty()) return;
  const auto keeps = [&](const Mesh& mesh) { return pinned.kept_by(mesh); };
  bool kept = std::any_of(meshes.begin(), meshes.end(), keeps);
  for (int axes = max_axes + 1; !kept && axes <= kMostImpliedAxes; ++axes) {
    for (const Mesh& mesh : mesh_candidates(request.cluster, axes, ordered)) {
      if (mesh.rank() != axes || !keeps(mesh)) continue;
      add(mesh, meshes);
      kept = true;
    }
  }
}

// Rules of one class are alike.
bool moves_on(const Mesh& mesh, const GraphRules& rules) {
  std::set<int> seen;
  for (std::size_t o = 0; o < rules.rules.size(); ++o) {
    if (!seen.insert(rules.class_of_op[o]).second) continue;
    if (!moving_candidates(rules.rules[o], mesh).empty()) return true;
  }
  return false;
}

std::vector<Mesh> all_meshes(const SearchRequest& request) {
  if (request.mesh) return {*request.mesh};
  if (!request.meshes.empty()) return request.meshes;
  for (const CostModelRow& row : cost_models()) {
    if (request.cost_model == row.name && row.meshes) return row.meshes(request.cluster);
  }
  const int max_axes = request.max_axes > 0 ? request.max_axes : kDefaultAxes;
  const bool ordered = name_no_axes(request.pins) || has_backward_pass(request.graph);
  std::vector<Mesh> meshes = mesh_candidates(request.cluster, max_axes, ordered);
  if (const auto mesh = mesh_of_matrices(request)) add(*mesh, meshes);
  if (request.max_axes == 0) add_finer(request, max_axes, ordered, meshes);
  return meshes;
}

}  // namespace

std::vector<Mesh> meshes_of(const SearchRequest& request) {
  std::vector<Mesh> meshes = all_meshes(request);
  // A mesh that is given, by `rec` for one, is tried in any case.
  if (request.mesh || request.moving != SearchRequest::Moving::kOnly) return meshes;
  std::erase_if(meshes, [&](const Mesh& mesh) { return !moves_on(mesh, request.rules); });
  return meshes;
}

bool has_moving(const SearchRequest& request) {
  const std::vector<Mesh> meshes = all_meshes(request);
  return std::any_of(meshes.begin(), meshes.end(),
                     [&](const Mesh& mesh) { return moves_on(mesh, request.rules); });
}

}  // namespace autopar
