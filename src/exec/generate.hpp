// Seeded data for inputs that are not given.
#pragma once

#include "autopar/exec.hpp"

namespace autopar {

// Depends on nothing but the arguments, bit for bit on every platform. Types that do not hold all
// of the distribution's indices get those that they hold.
// Method: element i of an input hashes (seed, name, i) by SplitMix64 (Steele, Lea, Flood, "Fast
// splittable pseudorandom number generators", OOPSLA 2014); the normal distribution is a sum of
// twelve 16-bit uniforms (Irwin-Hall), which needs no libm. O(elements).
Tensor generate(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed,
                const Distribution& distribution = {});
// The block of that tensor which begins at `offset`; nothing else is made.
Tensor generate_block(const std::string& name, DType dtype, const Shape& shape, std::uint64_t seed,
                      const Distribution& distribution, const Shape& offset, const Shape& extent);

}  // namespace autopar
