#include "layout/tensor_map.hpp"

#include <optional>

#include "support/counted.hpp"

namespace autopar {

namespace {

// The mesh axes, outermost first, that together number the same devices as an axis of a device
// matrix whose neighbours are `stride` devices apart; nothing where the mesh is cut otherwise.
std::optional<AxisList> axes_of(std::int64_t size, std::int64_t stride, const Mesh& mesh) {
  AxisList axes;
  std::int64_t covered = 1, next = mesh.size();
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    next /= mesh.axes[a].size;  // the stride of this axis
    if (mesh.axes[a].size == 1) continue;
    if (next < stride || next * mesh.axes[a].size > stride * size) continue;
    axes.push_back(static_cast<int>(a));
    covered *= mesh.axes[a].size;
  }
  if (covered != size) return std::nullopt;
  return axes;
}

}  // namespace

Result<std::vector<AxisList>> read_tensor_map(const std::vector<std::int64_t>& device_matrix,
                                              const std::vector<std::vector<int>>& tensor_map,
                                              const Mesh& mesh) {
  const std::string matrix = "device_matrix " + to_text(device_matrix);
  std::int64_t devices = 1;
  for (std::int64_t size : device_matrix) {
    if (size < 1 || __builtin_mul_overflow(devices, size, &devices)) {
      return input_error(matrix + ": expected positive sizes");
    }
  }
  if (devices != mesh.size()) {
    return input_error(matrix + " has " + counted(devices, "device") + ", the mesh " +
                       to_text(mesh) + " has " + counted(mesh.size(), "device"));
  }
  std::vector<AxisList> dims(tensor_map.size());
  std::vector<bool> taken(device_matrix.size(), false);
  for (std::size_t d = 0; d < tensor_map.size(); ++d) {
    for (int from_right : tensor_map[d]) {
      if (from_right < 0 || static_cast<std::size_t>(from_right) >= device_matrix.size()) {
        return input_error("tensor_map: " + std::to_string(from_right) + " is no axis of the " +
                           matrix + "; expected 0 (the last one) to " +
                           std::to_string(device_matrix.size() - 1) + ", or -1 for none");
      }
      const std::size_t at = device_matrix.size() - 1 - static_cast<std::size_t>(from_right);
      if (taken[at]) {
        return input_error("tensor_map: axis " + std::to_string(from_right) + " of the " + matrix +
                           " splits two dimensions; an axis splits one");
      }
      taken[at] = true;
      std::int64_t stride = 1;
      for (std::size_t a = at + 1; a < device_matrix.size(); ++a) stride *= device_matrix[a];
      const auto axes = axes_of(device_matrix[at], stride, mesh);
      if (!axes) {
        return input_error(matrix + " does not lie on the mesh " + to_text(mesh) + ": axis " +
                           std::to_string(from_right) + " of size " +
                           std::to_string(device_matrix[at]) + " is no run of the mesh's axes");
      }
      dims[d].append(axes->begin(), axes->end());
    }
  }
  return dims;
}

}  // namespace autopar
