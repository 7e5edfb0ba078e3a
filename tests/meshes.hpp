// For tests: meshes by the sizes of their axes, which are a, b, c, ...
#pragma once

#include <string>
#include <vector>

#include "autopar/mesh.hpp"

namespace autopar::testing {

inline Mesh mesh_of(const std::vector<std::int64_t>& sizes) {
  Mesh mesh;
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    mesh.axes.insert(mesh.axes.begin(),
                     Axis{std::string(1, static_cast<char>('a' + i)), sizes[i], 0, stride});
    stride *= sizes[i];
  }
  return mesh;
}

}  // namespace autopar::testing
