#include <algorithm>

#include "autopar/layout.hpp"

namespace autopar {

namespace {

std::string axes_text(const AxisList& axes, const Mesh& mesh) {
  std::string text = "{";
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (i > 0) text += ',';
    text += mesh.axes[static_cast<std::size_t>(axes[i])].name;
  }
  return text + "}";
}

Status take_axes(const AxisList& axes, const Mesh& mesh, std::uint32_t& taken) {
  for (int axis : axes) {
    if (axis < 0 || axis >= mesh.rank()) {
      return input_error("spec: there is no mesh axis number " + std::to_string(axis) +
                         "; the mesh " + to_text(mesh) + " has " + std::to_string(mesh.rank()));
    }
    const std::uint32_t bit = std::uint32_t{1} << axis;
    if (taken & bit) {
      return input_error("spec: mesh axis '" + mesh.axes[static_cast<std::size_t>(axis)].name +
                         "' is used twice; an axis splits one dimension or is partial, once");
    }
    taken |= bit;
  }
  return Ok{};
}

}  // namespace

const char* name_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kMax:
      return "max";
    case Reduction::kMin:
      return "min";
    case Reduction::kProd:
      return "prod";
  }
  return "";
}

Spec replicated(std::size_t rank) { return {std::vector<AxisList>(rank), {}, {}}; }

bool is_replicated(const Spec& spec) {
  return spec.partial.empty() &&
         std::all_of(spec.dims.begin(), spec.dims.end(), [](const auto& d) { return d.empty(); });
}

Status verify(const Spec& spec, const Shape& shape, const Mesh& mesh) {
  if (spec.dims.size() != shape.size()) {
    return input_error("spec: expected " + std::to_string(shape.size()) +
                       " dimensions, as in the shape " + to_text(shape) + ", found " +
                       std::to_string(spec.dims.size()));
  }
  std::uint32_t taken = 0;
  for (const auto& axes : spec.dims) AUTOPAR_RETURN_IF_ERROR(take_axes(axes, mesh, taken));
  AUTOPAR_RETURN_IF_ERROR(take_axes(spec.partial, mesh, taken));
  if (!std::is_sorted(spec.partial.begin(), spec.partial.end())) {
    return input_error("spec: partial axes must be in mesh order");
  }
  if (spec.partial.empty() && spec.reduction != Reduction::kSum) {
    return input_error(std::string("spec: the reduction ") + name_of(spec.reduction) +
                       " needs partial axes");
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (spec.dims[d].empty()) continue;
    const std::int64_t parts = axes_size(mesh, spec.dims[d]);
    if (shape[d] % parts != 0) {
      return input_error("dimension " + std::to_string(d) + " of the shape " + to_text(shape) +
                         " is not divisible by " + std::to_string(parts) + ", the size of " +
                         axes_text(spec.dims[d], mesh));
    }
  }
  return Ok{};
}

std::vector<std::int64_t> split_counts(const Spec& spec, const Mesh& mesh) {
  std::vector<std::int64_t> counts;
  for (const auto& axes : spec.dims) counts.push_back(axes_size(mesh, axes));
  return counts;
}

Shape local_shape(const Spec& spec, const Shape& shape, const Mesh& mesh) {
  Shape local = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!spec.dims[d].empty()) local[d] /= axes_size(mesh, spec.dims[d]);
  }
  return local;
}

Bytes local_bytes(const Spec& spec, const Shape& shape, DType dtype, const Mesh& mesh) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    count *= spec.dims[d].empty() ? shape[d] : shape[d] / axes_size(mesh, spec.dims[d]);
  }
  return count * size_of(dtype);
}

std::vector<std::int64_t> slice_offsets(const Spec& spec, const Shape& shape, const Mesh& mesh,
                                        std::int64_t device) {
  const Shape local = local_shape(spec, shape, mesh);
  std::vector<std::int64_t> offsets;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t position = 0;
    for (int index : spec.dims[d]) {
      const Axis& axis = mesh.axes[static_cast<std::size_t>(index)];
      position = position * axis.size + device / axis.stride % axis.size;
    }
    offsets.push_back(position * local[d]);
  }
  return offsets;
}

std::vector<std::vector<int>> tensor_map(const Spec& spec, const Mesh& mesh) {
  std::vector<std::vector<int>> map(spec.dims.begin(), spec.dims.end());
  for (auto& axes : map) {
    for (int& axis : axes) axis = mesh.rank() - 1 - axis;
  }
  return map;
}

std::string to_text(const Spec& spec, const Mesh& mesh) {
  std::string text = "[";
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    if (d > 0) text += ',';
    text += axes_text(spec.dims[d], mesh);
  }
  text += "]";
  if (spec.partial.empty()) return text;
  text += spec.reduction == Reduction::kSum ? " +" : std::string(" ") + name_of(spec.reduction);
  return text + axes_text(spec.partial, mesh);
}

}  // namespace autopar
