// What MindSpore does between two layouts of one tensor, and what its cost model says of it.
//
//   [{a,b},{}] -> [{},{a,b}] on a=2 x b=4: one PermuteByAxis over 8 devices
//   [{a},{}]   -> [{a,b},{}]: the dimension is cut in two, SplitByAxis over 4, and a Reshape
//
// 1. Device dimensions: neighbouring mesh axes that do the same in both layouts are one dimension
//    of the unified device matrix.
// 2. Tensor dimensions: one that several device dimensions split is cut after each but the last, in
//    both layouts alike; a device dimension that would lie across a cut is cut, too, and all over
//    again. Dimensions of size 1 are dropped.
// 3. Operators, until the maps agree: SplitByAxis wherever an unsplit dimension needs a device
//    dimension that is free; PermuteByAxis wherever it needs one that splits another dimension;
//    else ConcatByAxis of what the target does not use, and where nothing goes on, of the first.
//
// Source: MindSpore 2.7, frontend/parallel/tensor_layout (redistribution_layout_transfer,
// redistribution_operator_infer), as told in the project's facts. Two notes:
// - An op's own device matrix is not in a Spec. Idle neighbouring axes count as one dimension here;
//   MindSpore keeps them apart where different dimensions of the op use them, and then has one
//   SplitByAxis or ConcatByAxis for each (only for tensors that lack two neighbouring loop
//   dimensions of their op, both split).
// - Partial sums are not its business: an op reduces them itself.
#pragma once

#include <vector>

#include "autopar/layout.hpp"

namespace autopar::mindspore {

struct Redistribution {
  enum class Kind { kSplitByAxis, kConcatByAxis, kPermuteByAxis };
  struct Step {
    Kind kind = Kind::kSplitByAxis;
    std::vector<int> axes;      // mesh axes of the device dimension
    std::int64_t parts = 1;     // its size
    int split_dim = -1;         // of the tensor: the dimension that is split
    int concat_dim = -1;        // of the tensor: the dimension that is put together
    bool concat_first = false;  // that dimension is the first of the unified tensor
  };
  std::vector<Step> steps;
  bool reshape = false;  // the unified slices have another shape than the tensor's own
};

// Precondition: both specs are valid for the shape. Partial axes are idle. Where the cuts of the
// two layouts cannot be brought together (6 parts against 4), the tensor is gathered and sliced.
Redistribution redistribution(const Shape& shape, const Spec& from, const Spec& to,
                              const Mesh& mesh);

}  // namespace autopar::mindspore
