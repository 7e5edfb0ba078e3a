// For tests: small tensors on small meshes, and all specs that they have.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autopar/comm.hpp"

namespace autopar::testing::reshards {

// Tier sizes, innermost first; fast inside, slow outside.
inline Cluster cluster_of(const std::vector<std::int64_t>& sizes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device = {"device", Bytes{1} << 30, 2e12, {{"float32", 1e12}}};
  const std::vector<std::string> names = {"nvlink", "ib", "pod"};
  const std::vector<double> bandwidths = {3e11, 2.5e10, 1.25e10};
  const std::vector<Seconds> latencies = {2e-6, 5e-6, 8e-6};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    cluster.tiers.push_back({names[i], sizes[i], bandwidths[i], latencies[i], {}});
  }
  return cluster;
}

// Calls `use` for every layout of the axes from `axis` on, added to `spec`.
inline void place_axes(Spec& spec, int axis, const Mesh& mesh, bool partial,
                       const std::function<void(const Spec&)>& use) {
  if (axis == mesh.rank()) return use(spec);
  place_axes(spec, axis + 1, mesh, partial, use);
  if (partial) {
    spec.partial.push_back(axis);
    place_axes(spec, axis + 1, mesh, partial, use);
    spec.partial.pop_back();
  }
  for (auto& axes : spec.dims) {
    const std::vector<int> before = axes;
    for (std::size_t at = 0; at <= before.size(); ++at) {
      std::vector<int> longer = before;
      longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(at), axis);
      axes = longer;
      place_axes(spec, axis + 1, mesh, partial, use);
    }
    axes = before;
  }
}

inline std::vector<Spec> all_specs(const Shape& shape, const Mesh& mesh,
                                   Reduction reduction = Reduction::kSum, bool partial = true) {
  std::vector<Spec> specs;
  Spec spec = replicated(shape.size());
  place_axes(spec, 0, mesh, partial, [&](const Spec& found) {
    specs.push_back(found);
    if (!found.partial.empty()) specs.back().reduction = reduction;
    if (!verify(specs.back(), shape, mesh)) specs.pop_back();
  });
  return specs;
}

struct Case {
  std::vector<std::int64_t> tiers;  // innermost first
  std::string mesh;
  Shape shape;
};

// Small, but with indivisible dimensions, groups that are not contiguous, and several axes per
// tier.
inline const std::vector<Case>& cases() {
  static const std::vector<Case> rows = {
      {{4}, "4", {4, 8}},
      {{2, 2}, "2x2", {4, 4}},
      {{4}, "2x2", {4, 2, 2}},
      {{3, 2}, "2x3", {6, 6}},
      {{6}, "3x2", {6, 4, 3}},
      {{4, 2}, "2x2x2", {8, 4}},
      {{2, 2, 2}, "2x2x2", {4, 2, 2}},
      {{2, 2, 2}, "2x2x2", {8}},
      {{1}, "1", {2, 3}},
      {{2, 2}, "2x2", {3}},
      {{2, 2}, "2x2", {}},
  };
  return rows;
}

inline std::string where(const Case& c, const Spec& from, const Spec& to, const Mesh& mesh) {
  return to_text(c.shape) + " on " + to_text(mesh) + ": " + to_text(from, mesh) + " -> " +
         to_text(to, mesh);
}

inline Mesh mesh_of(const Case& c) {
  return make_mesh(cluster_of(c.tiers), parse_mesh(c.mesh).value()).value();
}

}  // namespace autopar::testing::reshards
