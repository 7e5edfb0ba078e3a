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

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "autopar/comm.hpp"
#include "autopar/ops.hpp"

namespace autopar {

// For graph outputs `output` is meaningful, else it equals `hub`. Of inputs and parameters `spec`
// is never partial, and `hub` only where their one reader needs it so; `output` never is. But for
// accumulators and their next values (Value::accumulates), which may be.
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
// Whether the passes of a step and its update both read a stored value. Where there are several
// passes, what is made in one is gone in the update, so each part reads what is stored, and the hub
// is the spec.
bool meets_phases(const Graph& graph, const Readers& readers);
bool is_identity(const Op& op);
// What an Identity, or several one after the other, hand on as the value; of others the value.
ValueId handed_on(const Graph& graph, ValueId value);

// Outputs that hold the next value of an input (a training step's weights and optimizer state): for
// each value the graph input of the same shape and dtype whose name takes the place of `*` in
// `pattern` ("new.*"); invalid: none.
std::vector<ValueId> updated_inputs(const Graph& graph, const std::string& pattern);
// The warning that a pattern (--updates) names none.
std::string no_updates(const std::string& pattern);

// One addend of the memory of a device: bytes in use during [begin, end), times as in Readers.
// What is counted is what a training runtime with a static plan of its buffers needs:
// - inputs, parameters and optimizer state are there during the whole step, in `spec`; constants
//   too, whole;
// - a copy of an activation (as produced, hub, output) lives until its last reader has run;
// - Reshape and its kin are views: their output is the input's memory for as long as nothing is
//   resharded between;
// - the next value of an input is written into that input's memory when nobody reads that any more
//   (from then on it counts once); an inference runtime that gets its inputs on loan, such as the
//   one of `autopar run`, has both until the end of the step;
// - what the runtime holds beside a value (Kernels), all the time, in `spec`;
// - what forward ops make and backward ops read is there once more, all the time, for each other
//   micro-batch in flight, and so are inputs of a micro-batch;
// - an op's outputs do not overwrite its inputs; temporaries of reshards and of exchanges of halos
//   come on top, those inside an op's kernel do not.
struct MemoryCharge {
  enum class Kind {
    kSpec,      // the value as it is produced or stored
    kHub,       // its hub
    kOutput,    // as it leaves the graph
    kToHub,     // the hub, where it is not the spec
    kToOutput,  // as it leaves, where that is not what it is made from
    kToReader,  // what `reader` reads, where that is not what it is made from
  };
  Kind kind = Kind::kSpec;
  ValueId value;
  OpId reader;  // kToReader only
  int begin = 0, end = 0;
  int copies = 1;  // so many times the bytes
  bool operator==(const MemoryCharge&) const = default;
};
// The same for every strategy: which bytes, the strategy says. `updated`: per value the input whose
// place it takes, see updated_inputs(). Where copies that no longer live lie between living views
// of one value, the sum may be more than what is needed, never less. Time: (copies of a value and
// its views)^2.
std::vector<MemoryCharge> memory_charges(const Graph& graph, const std::vector<Readers>& readers,
                                         const std::vector<ValueId>& updated);

// Rules of all ops of a graph, in op order.
struct GraphRules {
  std::vector<Rule> rules;
  std::vector<OpId> without_rule;  // replicated, to be named in a warning
  // Ops of one class are the same but for their names, and so have the same candidates, specs and
  // prices: type, rule, how often a step runs them, attributes, shapes and types of all operands,
  // which of them are parameters (also behind an Identity), and the contents of the constants that
  // describe the op. Numbered from 0 in the order of their first ops.
  std::vector<int> class_of_op;
};
Result<GraphRules> rules_of(const Graph& graph, const UserRules& user = {});
std::vector<int> classes_of(const Graph& graph, const std::vector<Rule>& rules);

// What was found out for a class of ops under an assignment, so that equal layers are looked at
// once.
template <class T>
class PerClass {
 public:
  // Null: not known yet.
  const T* find(int op_class, const Assignment& assignment) const {
    const auto at = static_cast<std::size_t>(op_class);
    if (at >= known_.size()) return nullptr;
    for (const auto& [key, value] : known_[at]) {
      if (key == assignment) return &value;
    }
    return nullptr;
  }
  const T& add(int op_class, const Assignment& assignment, T value) {
    const auto at = static_cast<std::size_t>(op_class);
    if (at >= known_.size()) known_.resize(at + 1);
    return known_[at].emplace_back(assignment, std::move(value)).second;
  }

 private:
  std::vector<std::deque<std::pair<Assignment, T>>> known_;
};

// The specs that every op needs and leaves; errors name the op whose assignment is not valid.
Result<std::vector<OpSpecs>> op_specs_of(const Graph& graph, const GraphRules& rules,
                                         const Strategy& strategy);
// Checks a complete strategy against its graph: sizes, valid assignments and specs, produced specs
// equal to what the rules give, single-reader hubs equal to what the reader needs.
Status verify(const Graph& graph, const GraphRules& rules, const Strategy& strategy);
// The same where the specs of the ops and the readers are there already.
Status verify(const Graph& graph, const std::vector<OpSpecs>& op_specs,
              const std::vector<Readers>& readers, const Strategy& strategy);

}  // namespace autopar
