// What group_kernels() does, one after the other: what one has taken is not another's.
#pragma once

#include <string>

#include "cost/kernels/grouping.hpp"

namespace autopar {

// The two products around each softmax over scores, with all that is done to the scores between.
void join_attention(Grouping& all);

// Marks what the runtime holds for gradients beside inputs that passes read and updates give a next
// value: parameters, or their 16-bit copies.
void hold_gradients(Grouping& all, const std::string& updates);

// What is a function of one tensor alone, constants aside, is one op of every runtime, however
// an exporter writes it (Gelu, x * Sigmoid(x)). The backward pass makes again what it reads of
// it, so that its derivative is one kernel too; also of what is repeated.
void join_functions(Grouping& all);

// What is added to an accumulator is read in its own type: no runtime converts it in memory first.
void join_accumulations(Grouping& all);

// Sums of rows that go to one place, gradients of embeddings among them, are read and written in
// 16 bits where that is their type, and added up in float32 inside the kernel.
void narrow_scattered_sums(Grouping& all);

// Ops on elements and sums over rows of one depth and phase.
void join_chains(Grouping& all);

// Here the groups are final.

// What kernels make others again of is there until the last of these runs.
void keep_arguments(Grouping& all);

// Which ops are the first of their kernel.
void mark_launches(Grouping& all);

// Which values are never stored, and through which ports nothing goes from or to memory.
void mark_inside(Grouping& all);

}  // namespace autopar
