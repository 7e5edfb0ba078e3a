// What moves no data, although ONNX writes it as an op that makes another tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Per op: a Transpose that moves nothing under any runtime. Each matrix of a product may have
// either of its two dimensions contiguous, wherever the matrices of a batch lie (cuBLAS's
// transa, transb and cublasGemmBatchedEx). So the transposed value need not be made where all that
// reads it are products that can read the source, and where a product can write it itself and
// nothing else reads what that product says. Casts, functions of one tensor, collectives, and views
// that keep the last two dimensions may lie between: they go by the layout they are given.
struct FreeTransposes {
  std::vector<char> free;
  // Per op, of a product: which inputs (bit i: port i) it reads with the rows of the source where
  // it has columns. Not where it says so itself (Gemm's transA and transB).
  std::vector<std::uint64_t> transposed_inputs;
};
FreeTransposes free_transposes(const Graph& graph);

// Per op: writes its update into the memory of an input whose next value it makes, as `updates`
// says: ScatterND, ScatterElements or TensorScatter between views, after all else that reads what
// it overwrites. `view`: Transposes that lead to such an op and from it, which move nothing either.
struct CacheWrites {
  std::vector<char> in_place, view;
};
CacheWrites cache_writes(const Graph& graph, const std::string& updates);

}  // namespace autopar
