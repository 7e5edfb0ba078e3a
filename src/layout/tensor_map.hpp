// MindSpore's notation of a layout, read back.
#pragma once

#include "autopar/layout.hpp"

namespace autopar {

// The mesh axes that split each dimension, of what tensor_map() gives. The device matrix may be
// coarser than the mesh ([2,4] on the mesh 2x2x2) and have axes of size 1. Errors: another number
// of devices, an axis of the matrix that is there twice, or that is no run of the mesh's axes.
Result<std::vector<AxisList>> read_tensor_map(const std::vector<std::int64_t>& device_matrix,
                                              const std::vector<std::vector<int>>& tensor_map,
                                              const Mesh& mesh);

}  // namespace autopar
