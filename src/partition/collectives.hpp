// What the attributes of an op of ai.autopar say.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/partition.hpp"

namespace autopar {

// Its mesh axes: of a lowered op read from `mesh_axes`, before that from `axes`. Errors: none, or
// one that the mesh does not have or that stands there twice.
Result<std::vector<int>> axes_of(const Op& op, const Mesh& mesh);
// The number of a dtype in ONNX files, as in the attribute `dtype` of Recv.
std::optional<DType> dtype_of_number(std::int64_t number);
std::int64_t number_of(DType dtype);
// "op 'x' (ai.autopar::AllReduce): what".
Error collective_error(const Op& op, const std::string& what);
// Of Recv what its attributes say, of the others what their input is: shape and dtype of the
// output. `op` has its inputs.
Result<TensorType> collective_output_type(const Graph& program, const Op& op,
                                          std::int64_t group_size);

}  // namespace autopar
