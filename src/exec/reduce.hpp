// Elementwise reductions over several buffers, in the order of the buffers: bit-reproducible.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

enum class ReduceOp { kSum, kMax, kMin, kProd, kAvg };
std::optional<ReduceOp> parse_reduce_op(const std::string& text);  // "sum", ..., "avg"

// out[i] = inputs[0][i] op inputs[1][i] op ... for `count` elements. Float16 and bfloat16 are
// computed in float and rounded once. Integers wrap; their average is rounded towards zero. A NaN
// in any input gives NaN, also for max and min. Bool: sum, max and avg are "or", prod and min
// "and". `out` may be one of the inputs.
void reduce(ReduceOp op, DType dtype, const std::vector<const void*>& inputs, std::size_t count,
            void* out);

}  // namespace autopar
