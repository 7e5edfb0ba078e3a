// From whole initializers followed by ShardSlice to initializers that are the slices.
#pragma once

#include <string>
#include <vector>

#include "autopar/partition.hpp"

namespace autopar {

// A weight of a program and what the ShardSlices leave of it through which alone it is read.
struct CutWeight {
  BoundaryValue whole;
  ValueId initializer;
  ValueId slice;             // the initializer itself where nothing cuts it
  std::vector<OpId> slices;  // the ShardSlices, from the first to the last
};
// Of all initializers that are parameters, in the order of their values.
std::vector<CutWeight> cut_weights(const Plan& plan);

struct ShardedProgram {
  Plan plan;
  std::vector<BoundaryValue> weights;
  std::vector<ValueId> initializers;  // by weight, in `plan`: of local shape, without data
};
// Drops the ShardSlices; what read the slices reads the initializers. A program that is sharded
// stays as it is; `known` are its weights then.
ShardedProgram shard_program(const Plan& plan, const std::vector<BoundaryValue>& known);

// The programs of a step, whose weights become inputs that lie as the ShardSlices leave them: what
// is not trained is then in the ranks' files, as what is.
std::vector<Plan> with_weights_as_inputs(const std::vector<const Plan*>& plans);

}  // namespace autopar
