#include <algorithm>
#include <set>

#include "autopar/stages.hpp"
#include "stages/sums.hpp"

namespace autopar {

namespace {

using stages::kShared;

class Splitter {
 public:
  Splitter(const Graph& step, const stages::Ownership& owned, int chunks)
      : graph_(step),
        owned_(owned),
        chunks_(chunks),
        uses_(uses_of(step)),
        reads_(static_cast<std::size_t>(chunks)) {}

  Result<Chunks> run() {
    for (int c = 0; c < chunks_; ++c) find_reads(c);
    find_handed();
    find_reduced();
    for (int c = 0; c < chunks_; ++c) {
      AUTOPAR_TRY(chunk, chunk_of(c));
      found_.chunks.push_back(std::move(chunk));
    }
    return std::move(found_);
  }

 private:
  int owner(std::size_t op) const { return owned_.chunk_of_op[op]; }
  int owner_of(ValueId id) const {
    const OpId maker = graph_.value(id).producer;
    return maker.valid() ? owner(maker.index()) : kShared;
  }

  // The ops of a chunk: its own, and the shared ones behind what these read. The first chunk makes
  // shared outputs.
  void find_reads(int c) {
    std::vector<char>& has = reads_[static_cast<std::size_t>(c)];
    has.assign(graph_.ops.size(), 0);
    std::vector<char> wanted(graph_.values.size());
    if (c == 0) {
      for (ValueId output : graph_.outputs) wanted[output.index()] = 1;
    }
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      const bool is_read = std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId id) {
        return id.valid() && wanted[id.index()] != 0;
      });
      has[o] = owner(o) == c || (owner(o) == kShared && is_read);
      if (!has[o]) continue;
      for (ValueId id : op.inputs) {
        if (id.valid()) wanted[id.index()] = 1;
      }
    }
  }

  void find_handed() {
    for (const Op& op : graph_.ops) {
      for (ValueId id : op.outputs) {
        if (!id.valid() || owner_of(id) == kShared) continue;
        std::set<int> to;
        for (const Use& use : uses_[id.index()]) {
          // A shared op reads shared values alone.
          if (owner(use.op.index()) != owner_of(id)) to.insert(owner(use.op.index()));
        }
        if (to.empty()) continue;
        handed_.insert(id);
        found_.handed.push_back({graph_.value(id).name,
                                 owner_of(id),
                                 {to.begin(), to.end()},
                                 op.phase != Phase::kUpdate});
      }
    }
  }

  // Update ops that others wait for, and what these are made of.
  void find_reduced() {
    reduced_.assign(graph_.ops.size(), 0);
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      if (op.phase != Phase::kUpdate || owner(o) == kShared) continue;
      for (ValueId id : op.outputs) {
        if (!id.valid()) continue;
        if (handed_.count(id) != 0) reduced_[o] = 1;
        for (const Use& use : uses_[id.index()]) {
          if (reduced_[use.op.index()] != 0) reduced_[o] = 1;
        }
      }
    }
  }

  Result<Chunk> chunk_of(int c) {
    const std::vector<char>& has = reads_[static_cast<std::size_t>(c)];
    Chunk chunk;
    Graph& to = chunk.graph;
    to.name = graph_.name;
    to.opset = graph_.opset;
    to.passes = graph_.passes;
    to.accumulates = graph_.accumulates;
    std::vector<ValueId> moved(graph_.values.size());
    std::vector<char> made(graph_.values.size()), read(graph_.values.size());
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!has[o]) continue;
      for (ValueId id : graph_.ops[o].inputs) {
        if (id.valid()) read[id.index()] = 1;
      }
      for (ValueId id : graph_.ops[o].outputs) {
        if (id.valid()) made[id.index()] = 1;
      }
    }
    // What nobody reads is the first chunk's.
    for (ValueId id : graph_.inputs) {
      if (c == 0 && uses_[id.index()].empty()) read[id.index()] = 1;
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if (made[v] == 0 && read[v] == 0) continue;
      moved[v] = to.add_value(value_of(v, made[v] != 0));
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!has[o]) continue;
      Op op = graph_.ops[o];
      for (auto* ids : {&op.inputs, &op.outputs}) {
        for (ValueId& id : *ids) {
          if (id.valid()) id = moved[id.index()];
        }
      }
      if (reduced_[o] != 0) chunk.reduce_ops.push_back(op.name);
      to.add_op(std::move(op));
    }
    add_boundary(c, made, moved, to);
    if (to.ops.empty() || reads_nothing_of_its_own(c)) {
      return input_error("chunk " + std::to_string(c) + " of " + std::to_string(chunks_) +
                         " has no op of its own; try fewer stages or chunks");
    }
    AUTOPAR_RETURN_IF_ERROR(verify(to));
    return chunk;
  }

  bool reads_nothing_of_its_own(int c) const {
    return std::find(owned_.chunk_of_op.begin(), owned_.chunk_of_op.end(), c) ==
           owned_.chunk_of_op.end();
  }

  // As it is in a chunk: what another one makes is an input.
  Value value_of(std::size_t v, bool is_made) const {
    Value value = graph_.values[v];
    const OpId maker = value.producer;
    const bool in_pass = maker.valid() && graph_.op(maker).phase != Phase::kUpdate;
    value.of_micro_batch = in_pass && handed_.count(ValueId(static_cast<std::int64_t>(v))) != 0;
    value.producer = {};
    if (!is_made && maker.valid()) value.kind = ValueKind::kInput;
    return value;
  }

  // Inputs and outputs of the step in its order, then those of other chunks.
  void add_boundary(int c, const std::vector<char>& made, const std::vector<ValueId>& moved,
                    Graph& to) const {
    for (ValueId id : graph_.inputs) {
      if (moved[id.index()].valid()) to.inputs.push_back(moved[id.index()]);
    }
    std::set<ValueId> outputs;
    for (ValueId id : graph_.outputs) {
      const bool is_own = owner_of(id) == c || (owner_of(id) == kShared && c == 0);
      if (!is_own || made[id.index()] == 0) continue;
      to.outputs.push_back(moved[id.index()]);
      outputs.insert(id);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (!moved[v].valid() || handed_.count(id) == 0) continue;
      if (made[v] == 0) {
        to.inputs.push_back(moved[v]);
      } else if (outputs.count(id) == 0) {
        to.outputs.push_back(moved[v]);
      }
    }
  }

  const Graph& graph_;
  const stages::Ownership& owned_;
  const int chunks_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<std::vector<char>> reads_;  // per chunk and op
  std::set<ValueId> handed_;
  std::vector<char> reduced_;
  Chunks found_;
};

Status check_cuts(const Graph& step, const std::vector<OpId>& cuts) {
  if (!step.has_passes()) {
    return input_error(
        "a pipeline needs a step whose update is apart from its passes; that of one micro-batch is "
        "made so where stages are asked for");
  }
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const bool is_op = cuts[i].valid() && cuts[i].index() < step.ops.size();
    if (!is_op || step.op(cuts[i]).phase != Phase::kForward) {
      return input_error("a chunk must begin with a forward op");
    }
    if (i > 0 && !(cuts[i - 1] < cuts[i])) {
      return input_error("chunks must begin in the order of the graph: op '" +
                         step.op(cuts[i]).name + "' does not come after '" +
                         step.op(cuts[i - 1]).name + "'");
    }
  }
  return Ok{};
}

}  // namespace

Result<Chunks> chunks_of(const Graph& step, const std::vector<OpId>& cuts,
                         const std::string& updates) {
  AUTOPAR_RETURN_IF_ERROR(check_cuts(step, cuts));
  stages::Ownership owned = stages::assign_ops(step, cuts, updates);
  Graph summed = step;
  stages::sum_by_chunk(summed, owned, cuts, updates);
  return Splitter(summed, owned, static_cast<int>(cuts.size()) + 1).run();
}

}  // namespace autopar
