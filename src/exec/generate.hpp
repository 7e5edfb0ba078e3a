// Seeded data for inputs that are not given.
#pragma once

#include "autopar/ir.hpp"

namespace autopar {

// Depends on nothing but the arguments, bit for bit on every platform. Floating types: about
// 0.1 * N(0,1); integers and bool: 0 or 1, which is a valid index nearly everywhere.
// Method: element i of an input hashes (seed, name, i) by SplitMix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014); the normal distribution is a sum of
// twelve 16-bit uniforms (Irwin-Hall), which needs no libm. O(elements).
Tensor generate(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed);

}  // namespace autopar
