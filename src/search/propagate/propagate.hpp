// Sharding propagation: from the ops and tensors that the user fixed to all others, each in the way
// that redistributes least, breadth first. Near instant, and as good as the pins.
//
//   autopar search mlp.onnx --cluster c.json --searcher propagate --pin pins.json
//
// Seeds are the pinned ops (in_strategy, out_strategy or assignment), the pinned tensors, and the
// inputs and outputs for which --inputs or --outputs fixes a layout. From them four waves, each
// until nothing more is reached:
//   1. from pinned ops and tensors along activations: readers of a decided op and producers of what
//      it reads;
//   2. the same from inputs and outputs whose layout is fixed;
//   3. through inputs and parameters that several ops read: from a decided reader to the others;
//   4. what is left gets `unreached` (data parallel by default).
//
// Order within a wave: levels (distance from the seeds), at equal levels readers before producers,
// then the order of ops in the graph. An op waits as long as one of its inputs will still be
// decided by the forward flow (its producer depends on a decided op); its level is then one more
// than that of the last of them. There is no deadlock: the first undecided op in graph order has
// all such inputs.
//
// Choice for one op, among the candidates of the Problem, lexicographically:
//   1. redistribution: seconds of the reshards between it and everything decided so far. A value's
//      hub, and how a parameter is stored, are not decided on the way: each price is the least over
//      them, given all decided readers. A partial sum that the op leaves counts with its cheapest
//      reduction, so that putting a reduction off gains nothing;
//   2. the same with what undecided readers must pay at least (they may be unable to follow);
//   3. seconds of the op itself; where no more than one producer is decided, what the cost model
//      says in their place (CostModel::follower_prices);
//   4. the order of candidates(): factors in the rule's order, outermost axis first, none last.
// Two numbers are equal when they differ by no more than 1e-12 of the larger. At the end hubs,
// stored and output specs are chosen exactly (a forest, by dynamic programming).
// Time and memory: linear in the entries of the Problem's tables.
//
// MindSpore 2.7 (StrategyPropagate in graph_costmodel.cc) beside it: it floods from one configured
// op after the other (in topological order) where we start from all at once, so that with several
// seeds the nearest one counts, not the first; readers before producers as here; parameters are
// nodes like others, not a wave of their own; multi-input ops wait until all visited inputs are
// known, as here. Its choice is lexicographic in (communication of redistribution, its computation,
// forward communication of the op, order of strategies), and for waiting ops the sums over their
// inputs, then computation, then communication of the op. A reduction of partial sums is part of
// its op (third criterion), here of the redistribution (first): with MindSpore's cost model, which
// puts the bytes that an op reduces in the third place, the criteria coincide. Unreached ops get
// its first strategy. Conflicts are warnings there; here explain_propagation() lists them with
// prices.
#pragma once

#include "autopar/search.hpp"

namespace autopar {

// What propagation starts from.
struct Seeds {
  struct Seed {
    std::string text;     // "op 'fc1'", "tensor 'W'", "input 'X'", "output 'Y'"
    OpId op;              // invalid: a value
    ValueId value;        // invalid: an op
    bool layout = false;  // by --inputs or --outputs
  };
  std::vector<Seed> seeds;
  std::vector<int> of_op;      // per op its index in `seeds`; -1: none
  std::vector<int> of_source;  // per value, for the spec in which it is stored
  std::vector<int> of_made;    // per value, for the spec in which an op leaves it
  std::vector<int> of_hub;     // per value, for the spec in which it is read
  std::vector<int> of_output;
};
Seeds seeds_of(const SearchRequest& request, const MeshProblem& problem);

// How every op came to its choice.
struct PropagationTrace {
  static constexpr int kFilled = -1;
  std::vector<int> choices;  // per node of the Problem
  std::vector<OpId> order;   // ops as they were decided
  std::vector<int> place;    // per op its index in `order`
  std::vector<int> level;    // per op; 0: a seed
  std::vector<int> origin;   // per op the seed that it follows; kFilled: unreached
  int filled = 0;
};
// With Fill::kSearch the choices of unreached ops are their cheapest ones.
PropagationTrace propagate_breadth_first(const SearchRequest& request, const MeshProblem& problem,
                                         const Seeds& seeds);

// Per op the seed that it follows in another plan of the same pins (the exact one): that of the
// nearest op with which it agrees on a tensor, and so on; kFilled as in the trace.
std::vector<int> origins_by_agreement(const Graph& graph, const MeshProblem& problem,
                                      const Seeds& seeds, const PropagationTrace& trace,
                                      const std::vector<OpSpecs>& specs);

// The row of the searchers' table. Errors: kUsage where there is nothing to start from. A plan over
// the memory limit is first mended in hubs, stored and output specs; where that does not help, the
// solution is not feasible and names the peak.
Result<Solution> run_propagate(const SearchRequest& request, const MeshProblem& problem,
                               const SolveOptions& options);

// Fills outcome.propagation: seeds, reach, conflicts, and the redistribution of the breadth-first
// answer beside the exact one. `outcome` holds the plan of `solution`.
Status explain_propagation(const SearchRequest& request, const MeshProblem& problem,
                           const Solution& solution, CostModel& model, SearchOutcome& outcome);

}  // namespace autopar
