#include "search/spec_lists.hpp"

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

}  // namespace autopar
