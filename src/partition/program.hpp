// The passes from a strategy to a plan and what they hand to each other.
#pragma once

#include "autopar/partition.hpp"

namespace autopar {

struct Draft {
  Plan plan;
  Names value_names;  // of the program
  Names op_names;
};

// What is already true of a program.
enum class Stage {
  kAbstract,  // collectives have mesh axes, no groups; MakePartial is an op
  kLowered,   // collectives have groups
  kOrdered,   // and `seq`, and each waits for the one before
};
Status verify(const Plan& plan, Stage stage);

// Reshards for all readers and local ops. The strategy has been verified.
Result<Draft> insert_reshards(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                              const std::vector<OpSpecs>& op_specs, const Cluster& cluster);
// Mesh axes become groups; MakePartial becomes Where; collectives over one device go.
Status lower(Draft& draft);
// Shares equal constants and equal slices of constants; removes what nobody reads.
void simplify(Draft& draft);
// AllReduce, ReduceScatter and AllGather (along dimension 0) whose results only the update reads,
// or nobody: those of one type and over the same axes become one, up to so many bytes each. 0: none
// do.
void join_collectives(Draft& draft, Bytes bucket_bytes);
// By which value a collective waits for the one before.
enum class OrderBy {
  kItsOutput,    // so it may run beside what reads that
  kWhatIsThere,  // of all that comes of it what is in memory anyway, else what is smallest
};
struct AddedOrder {
  std::size_t calls = 0;   // collectives that exchange data
  std::size_t inputs = 0;  // of these, so many did not wait for the one before
  OpId first;              // of those
};
// Makes each collective wait for the one before, where it does not anyway.
AddedOrder add_order_inputs(Graph& program, OrderBy by);
// Numbers the collectives and makes each wait for the one before, because ONNX Runtime does not run
// independent nodes in file order.
void order_collectives(Graph& program, OrderBy by);

}  // namespace autopar
