// Tensors as vectors of one wide type, and strided views: what constant folding computes on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

using Ints = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

// Any dtype; 64-bit integers lose precision above 2^53.
Doubles doubles_of(const Tensor& tensor);
Tensor tensor_of(DType dtype, const Shape& shape, const Doubles& values);  // a floating dtype
Tensor tensor_of(DType dtype, const Shape& shape, const Ints& values);  // an integer dtype or bool

// Row-major strides in elements.
Ints strides_of(const Shape& shape);
// Strides that read `from` as if it were broadcast to `to`; nothing where that is not allowed.
std::optional<Ints> broadcast_strides(const Shape& from, const Shape& to);
// For every element of `shape` in order: offset + sum of index * stride.
Ints positions(const Shape& shape, const Ints& strides, std::int64_t offset = 0);
// The elements at these positions, as a tensor of `shape`. Positions must lie inside.
Tensor take(const Tensor& from, const Shape& shape, const Ints& positions);

// 0 <= axis < rank after counting a negative one from the end; nothing where out of range.
std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank);

}  // namespace autopar
