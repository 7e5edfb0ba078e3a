// What a collective computes, apart from who brings the data together.
#pragma once

#include <vector>

#include "autopar/exec.hpp"
#include "exec/reduce.hpp"

namespace autopar {

// The output shape of a collective, or what is wrong with its attributes for this input: an axis
// that does not exist, a dimension that the group does not divide. Axes may be negative.
Result<Shape> output_shape_of(CollectiveKind kind, const Shape& input, std::int64_t group_size,
                              std::int64_t axis, std::int64_t concat_axis);

// The work of one position once all inputs are there. Inputs and outputs are those of the whole
// group, in its order. AllReduce: the position reduces its part of the elements and writes it to
// every output; all others write only their own output. A group's positions may work at the same
// time; the outputs are complete when all have returned.
// Precondition: the shapes, axes and the reduce_op are those of a valid call.
void perform(const CollectiveCall& call, const std::vector<const void*>& inputs,
             const std::vector<void*>& outputs);

// Precondition: a name that parse_reduce_op() knows.
ReduceOp reduce_op_of(const CollectiveCall& call);

// Permute: the position whose input a position gets.
int source_of(const CollectiveCall& call);

// A message in which this rank is neither sender nor receiver: Send gives its input, Recv zeros.
void leave_alone(const CollectiveCall& call, const void* input, void* output);

inline std::size_t element_size(const CollectiveCall& call) {
  return static_cast<std::size_t>(size_of(call.dtype));
}

// Bytes that the caller sends in this call (ring algorithms, as in comm).
double sent_bytes(const CollectiveCall& call);

// "AllReduce 'layer1/out' (seq 3, group [0,2], float32[4,8])".
std::string to_text(const CollectiveCall& call);

}  // namespace autopar
