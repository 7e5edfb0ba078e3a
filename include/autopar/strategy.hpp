// Strategy: all decisions about how a graph runs on a mesh, and what follows from them for the
// readers of every value. Shared by pricing, searching and rewriting, so that they agree.
//
// How a value gets to its readers:
// - an input or parameter lies in its `spec` (stored); an activation leaves its producer in `spec`;
// - it is resharded once, just before its first reader, to its `hub` spec; every reader (op input
//   or graph output) reshards from the hub to the spec that it needs, for itself. Where there is
//   one reader, the hub is what that reader needs; but for an input or parameter whose reader needs
//   a partial sum, it may as well be a layout that is none, of which the reader makes one;
// - a constant lies whole on every device and each reader takes its slice: done once, at load time,
//   for free. Constants have no hub.
// - a graph output is a reader at the time when the value is produced; it leaves in `output`.
#pragma once

#include <vector>

#include "autopar/comm.hpp"
#include "autopar/ops.hpp"

namespace autopar {

// For graph outputs `output` is meaningful, else it equals `hub`. Of inputs and parameters `spec`
// is never partial, and `hub` only where their one reader needs it so; `output` never is.
struct ValueSpecs {
  Spec spec;
  Spec hub;
  Spec output;
  bool operator==(const ValueSpecs&) const = default;
};

// Complete: one assignment per op, one entry per value (indices of the graph).
struct Strategy {
  Mesh mesh;
  std::vector<Assignment> assignments;
  std::vector<ValueSpecs> values;
  bool operator==(const Strategy&) const = default;
};

// Who reads a value and when. Time is the index of an op in the graph; `horizon` is the number of
// ops.
struct Readers {
  std::vector<Use> uses;   // op readers in op order; several ports of one op are several uses
  bool is_output = false;  // one more reader, at the time of production
  int produced = 0;        // time of the producer; 0 for inputs, parameters, constants
  int first = 0;           // time of the first reader; `produced` where nobody reads
  int last = 0;            // time of the last reader; horizon - 1 for graph outputs
  int count() const { return static_cast<int>(uses.size()) + (is_output ? 1 : 0); }
};
std::vector<Readers> readers_of(const Graph& graph);

// Rules of all ops of a graph, in op order.
struct GraphRules {
  std::vector<Rule> rules;
  std::vector<OpId> without_rule;  // replicated, to be named in a warning
};
Result<GraphRules> rules_of(const Graph& graph, const UserRules& user = {});

// The specs that every op needs and leaves; errors name the op whose assignment is not valid.
Result<std::vector<OpSpecs>> op_specs_of(const Graph& graph, const GraphRules& rules,
                                         const Strategy& strategy);
// Checks a complete strategy against its graph: sizes, valid assignments and specs, produced specs
// equal to what the rules give, single-reader hubs equal to what the reader needs.
Status verify(const Graph& graph, const GraphRules& rules, const Strategy& strategy);

}  // namespace autopar
