// Graph + Strategy -> Plan: the SPMD program that every rank runs, with explicit collectives and
// local shapes. Knows no cost and no search.
//
// Passes, the verifier after each: annotate (specs of every op and value) > insert reshards and
// localise ops (abstract collectives with mesh axes) > lower (groups, group_size, seq, MakePartial)
// > simplify (dead code, equal slices of one constant shared) > join small collectives of the
// update.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "autopar/strategy.hpp"

namespace autopar {

// An output of the model that is an input or a parameter of it, too, has its name and this in a
// plan.
inline constexpr const char* kOutputOfInput = "/output";

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

// `bucket_bytes`: collectives of a training step's gradients and next values that are smaller are
// joined, up to so many bytes of input each; 0: none are. Errors: an op that cannot be localised
// (named, with the dimension).
Result<Plan> partition(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                       const Cluster& cluster, Bytes bucket_bytes = 0);

// Whether a program is well formed: topological, unique names; every collective's groups partition
// all ranks in groups of group_size; parts are equal; output shapes are what the op gives; `seq` is
// strictly increasing in file order; boundary shapes are the local shapes of their specs, which are
// no partial sums but of accumulators (step.hpp); the order is proven (below).
Status verify(const Plan& plan);
// The same of one program among several: the k-th place of the mesh is `ranks[k]`, groups hold
// ranks of the whole. What needs the other programs is left to prove_order.
Status verify(const Plan& plan, const std::vector<std::int64_t>& ranks, std::int64_t world_size);

// One SPMD program and the ranks that run it, each of which runs no other.
struct ProgramOnRanks {
  const Graph* program = nullptr;   // with collectives that list their groups
  std::vector<std::int64_t> ranks;  // of the world
  std::string name = {};            // for messages: its file
};

// Proves that the programs, run by the ranks 0 .. world_size-1, cannot stop in each other's way:
// - every rank runs one program, and stands in exactly one group of each of its collectives (Send,
//   Recv: at most once as the sender, at most once as the receiver), no group has a rank twice;
// - within a program each collective is reached from the one before it in the file through data
//   or order inputs, so that it cannot be run before it, and `seq` grows from one to the next;
// - all ranks' sequences of collectives, played against each other, come to their ends: the k-th
//   call that a rank makes for a group meets the k-th call of every other rank of that group. Send
//   and Recv wait for each other; the k-th message from one rank to another is the k-th received;
// - the calls that meet are of one kind, axis, reduce_op, root, dtype, shape and, of messages, tag;
//   the shapes of outputs are what the ops give.
// ShardSlice exchanges nothing: only its groups and shapes are checked. Needs no mesh_axes.
// Errors name ranks and ops. Programs whose groups lie within their own ranks and that send no
// messages are not played: all their ranks do the same, and so does the proof. Otherwise O(ranks *
// collectives), runs of collectives over the same groups counting once.
Status prove_order(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size);

// One rank's part in a call that ranks make together.
struct Caller {
  std::int64_t rank = 0;
  std::size_t program = 0;  // index into the list
  OpId op;
};
// The same, telling of every meeting in turn, each after those before it on any of its ranks.
// Always plays all calls of all ranks.
Status prove_order(const std::vector<ProgramOnRanks>& programs, std::int64_t world_size,
                   const std::function<void(const std::vector<Caller>&)>& met);

// Fills in what a program that was written by hand may leave out of its collectives: group_size of
// messages, root, reduce_op, tag; axes counted from the end; `seq` in the order of the ops; inputs
// that make each wait for the one before; mesh_axes that the mesh does not have are dropped, since
// groups say all. Returns warnings: what was not told. Errors: an op without groups or axis; `seq`
// that contradicts the order of the ops.
Result<std::vector<std::string>> complete_collectives(Graph& program, const Mesh& mesh);
// One more than the largest rank in groups; 0 where no op has groups.
std::int64_t listed_ranks(const Graph& program);

// The output shape of an op of ai.autopar, given the shape of its first input (Recv: has none).
// `op` needs its attributes for sizes and axes only. Errors: attributes that do not fit the shape.
Result<Shape> collective_output_shape(const Op& op, std::int64_t group_size, const Shape& input);

// What a collective of a lowered program does, read back from its attributes. All ops have `groups`
// (IntList), `group_size` and `seq`. Those of Send and Recv are pairs, a sender and its receiver;
// a rank that is in no pair as sender (receiver) takes no part, and Recv gives it zeros. Send has
// one tensor as input and gives it back; Recv has `shape` and `dtype` (ONNX's number) instead. Both
// may have `tag` (0), which must be the same at both ends. Further inputs only order an op.
struct ProgramCollective {
  OpId op;
  Collective collective;  // axes resolved against the mesh; none where the op names none
  IntList groups;         // flattened
  std::int64_t group_size = 1;
  Bytes input_bytes = 0;  // local; Recv: of what arrives
};
Result<std::vector<ProgramCollective>> collectives_of(const Plan& plan);

// Per value: whether it is known when the program is loaded: weights and slices of them.
std::vector<char> known_at_load(const Graph& program);

}  // namespace autopar
