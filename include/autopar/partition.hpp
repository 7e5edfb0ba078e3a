// Graph + Strategy -> Plan: the SPMD program that every rank runs, with explicit collectives and
// local shapes. Knows no cost and no search.
//
// Passes, the verifier after each: annotate (specs of every op and value) > insert reshards and
// localise ops (abstract collectives with mesh axes) > lower (groups, group_size, seq, MakePartial)
// > simplify (dead code, equal slices of one constant shared).
#pragma once

#include <string>
#include <vector>

#include "autopar/strategy.hpp"

namespace autopar {

// How one input or output of the program lies: its whole shape and the spec of the slices.
struct BoundaryValue {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of the whole tensor
  Spec spec;
};

struct Plan {
  Graph program;  // values have local shapes; inputs and outputs keep the model's names and order
  Mesh mesh;
  std::vector<BoundaryValue> inputs;
  std::vector<BoundaryValue> outputs;
};

// Errors: an op that cannot be localised (named, with the dimension).
Result<Plan> partition(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                       const Cluster& cluster);

// Whether a program is well formed: topological, unique names; every collective's groups partition
// all ranks in groups of group_size; parts are equal; output shapes are what the op gives; `seq` is
// strictly increasing in file order; boundary shapes are the local shapes of their specs.
Status verify(const Plan& plan);

// The output shape of an op of ai.autopar, given the shape of its first input. `op` needs its
// attributes for sizes and axes only. Errors: attributes that do not fit the shape.
Result<Shape> collective_output_shape(const Op& op, std::int64_t group_size, const Shape& input);

// What a collective of a lowered program does, read back from its attributes.
struct ProgramCollective {
  OpId op;
  Collective collective;  // axes resolved against the mesh
  IntList groups;         // flattened
  std::int64_t group_size = 1;
  Bytes input_bytes = 0;  // local
};
Result<std::vector<ProgramCollective>> collectives_of(const Plan& plan);

}  // namespace autopar
