// Steps of a reshard as the devices execute them. Where a device holds several blocks of a
// dimension, the collective sees that dimension cut into several, each of which it holds in one
// block: what a device has is viewed in another shape, and nothing moves.
//
//   [8] on axes of 2 and 2, from "split in halves by a" to "split in quarters by b, then a": the
//   collective on [2,2,2] is AllToAll {a} 1 0, after which a device holds the first or the second
//   quarter of both halves; then ShardSlice {b} 0.
#pragma once

#include <vector>

#include "autopar/comm.hpp"

namespace autopar {

// The index along a dimension is a number in mixed radix, the first digit the most significant. An
// axis splits by digits: those before them make `start` parts, with them there are `end`.
struct Digits {
  int axis = -1;
  std::int64_t start = 1;
  std::int64_t end = 1;
};

// A Spec that may leave digits out.
struct DigitSpec {
  std::vector<std::vector<Digits>> dims;  // by dimension of the tensor, the first digits first
  AxisList partial;
  Reduction reduction = Reduction::kSum;
};

struct CollectiveStep {
  Collective collective;
  // What the collective's dimensions are: the tensor's own, or with some cut into several. Then the
  // spec after the step over these dimensions.
  Shape shape;
  Spec spec;
};

// The step of this kind over `axes` between two specs of a tensor. Precondition: they differ by
// what one collective does.
CollectiveStep step_between(const DigitSpec& from, const DigitSpec& to, CollectiveKind kind,
                            const AxisList& axes, const Shape& shape);

}  // namespace autopar
