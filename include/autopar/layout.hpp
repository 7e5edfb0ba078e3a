// Spec: how one tensor lies on a mesh.
//
//   On the mesh ib=2 x nvlink=4 the Spec [{ib},{nvlink}] of a [64,256] tensor: rank 5 = (1,1) holds
//   rows 32..63 and columns 64..127; local shape [32,64]; MindSpore: device matrix [2,4], map
//   [1,0].
#pragma once

#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/mesh.hpp"

namespace autopar {

enum class Reduction : std::uint8_t { kSum, kMax, kMin, kProd };
const char* name_of(Reduction reduction);  // "sum", as in the attribute reduce_op

// Invariants: a mesh axis appears at most once in all of `dims` and `partial`; `partial` is sorted.
struct Spec {
  // Per tensor dimension the mesh axes that split it, the outermost (major) first.
  std::vector<AxisList> dims;
  // Axes over which the tensor is still unreduced: the true value is the reduction over them.
  AxisList partial;
  Reduction reduction = Reduction::kSum;  // kSum where partial is empty

  auto operator<=>(const Spec&) const = default;
};
Spec replicated(std::size_t rank);
bool is_replicated(const Spec& spec);

// Every split dimension is divisible by the product of its axes, no axis twice, axes exist.
Status verify(const Spec& spec, const Shape& shape, const Mesh& mesh);
// Precondition: verify() passes.
Shape local_shape(const Spec& spec, const Shape& shape, const Mesh& mesh);
Bytes local_bytes(const Spec& spec, const Shape& shape, DType dtype, const Mesh& mesh);
// Per dimension the first index that `device` holds.
std::vector<std::int64_t> slice_offsets(const Spec& spec, const Shape& shape, const Mesh& mesh,
                                        std::int64_t device);
// Number of slices of each dimension (MindSpore's strategy of one tensor).
std::vector<std::int64_t> split_counts(const Spec& spec, const Mesh& mesh);
// Per dimension the axes counted from the right of the device matrix, outermost first; empty = not
// split (MindSpore writes -1 for none, a number for one, a list for several).
std::vector<std::vector<int>> tensor_map(const Spec& spec, const Mesh& mesh);

// "[{ib},{}] +{nvlink}"; other reductions than sum: "[{},{}] max{nvlink}"; "[]" for rank 0.
std::string to_text(const Spec& spec, const Mesh& mesh);
Result<Spec> parse_spec(const std::string& text, const Mesh& mesh);

}  // namespace autopar
