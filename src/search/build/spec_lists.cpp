#include "search/build/spec_lists.hpp"

#include <algorithm>

namespace autopar {

SpecList canonical_specs(const Shape& shape, const Mesh& mesh) {
  SpecList specs = {replicated(shape.size())};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const std::size_t before = specs.size();
    for (std::size_t s = 0; s < before; ++s) {
      for (std::size_t d = 0; d < shape.size(); ++d) {
        Spec spec = specs[s];
        spec.dims[d].push_back(axis);
        if (shape[d] % axes_size(mesh, spec.dims[d]) == 0) specs.push_back(std::move(spec));
      }
    }
  }
  return specs;
}

SpecList reduced(SpecList specs) {
  for (Spec& spec : specs) {
    spec.partial.clear();
    spec.reduction = Reduction::kSum;
  }
  return specs;
}

SpecList most_parts(const SpecList& specs, const Mesh& mesh) {
  const auto parts_of = [&](const Spec& spec) {
    std::int64_t parts = 1;
    for (const AxisList& axes : spec.dims) parts *= axes_size(mesh, axes);
    return parts;
  };
  std::int64_t most = 1;
  for (const Spec& spec : specs) most = std::max(most, parts_of(spec));
  SpecList kept;
  for (const Spec& spec : specs) {
    if (parts_of(spec) == most) kept.push_back(spec);
  }
  return kept;
}

}  // namespace autopar
