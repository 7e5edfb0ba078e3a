#include "stages/sums.hpp"

#include <algorithm>
#include <utility>

namespace autopar::stages {

namespace {

class Sums {
 public:
  Sums(Graph& step, const Ownership& owned)
      : graph_(step), owned_(owned), uses_(uses_of(step)), behind_(step.ops.size()) {}

  // The ops that add up what chunks have added up, sum by sum; none: the graph is as it was.
  std::vector<std::vector<std::size_t>> run() {
    std::vector<std::vector<std::size_t>> found;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (!adds(o) || next_of(o) != o) continue;
      auto joints = regroup(chain_to(o));
      if (!joints.empty()) found.push_back(std::move(joints));
    }
    if (found.empty()) return found;
    const std::vector<std::size_t> place = reorder(found);
    for (auto& joints : found) {
      for (std::size_t& o : joints) o = place[o];
    }
    return found;
  }

 private:
  bool adds(std::size_t o) const {
    const Op& op = graph_.ops[o];
    if (op.phase != Phase::kUpdate || op.type != "Add" || owned_.chunk_of_op[o] == kShared) {
      return false;
    }
    const Shape& shape = graph_.value(op.outputs[0]).shape;
    return shape.empty() && std::all_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
             return graph_.value(id).shape == shape;
           });
  }

  // The op that alone adds something to what this one makes; itself: there is none.
  std::size_t next_of(std::size_t o) const {
    const ValueId sum = graph_.ops[o].outputs[0];
    const auto& uses = uses_[sum.index()];
    const auto& outputs = graph_.outputs;
    if (uses.size() != 1 || uses[0].port != 0 || !adds(uses[0].op.index()) ||
        std::find(outputs.begin(), outputs.end(), sum) != outputs.end()) {
      return o;
    }
    return uses[0].op.index();
  }

  std::vector<std::size_t> chain_to(std::size_t last) const {
    std::vector<std::size_t> chain = {last};
    for (;;) {
      const OpId before = graph_.value(graph_.ops[chain.back()].inputs[0]).producer;
      const bool is_part =
          before.valid() && adds(before.index()) && next_of(before.index()) == chain.back();
      if (!is_part) break;
      chain.push_back(before.index());
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  int chunk_of(ValueId part) const {
    const OpId maker = graph_.value(part).producer;
    return maker.valid() ? owned_.chunk_of_op[maker.index()] : kShared;
  }

  // Ops of the chain at which the chunk changes are left for the sums of the chunks.
  std::vector<std::size_t> regroup(const std::vector<std::size_t>& chain) {
    ValueId sum = graph_.ops[chain[0]].inputs[0];
    int chunk = chunk_of(sum);
    std::vector<std::size_t> joints;
    for (const std::size_t o : chain) {
      const int next = chunk_of(graph_.ops[o].inputs[1]);
      if (next != kShared && chunk != kShared && next != chunk) joints.push_back(o);
      if (next != kShared) chunk = next;
    }
    if (joints.size() < 2) return {};
    std::vector<ValueId> sums;
    for (const std::size_t o : chain) {
      Op& op = graph_.ops[o];
      if (std::binary_search(joints.begin(), joints.end(), o)) {
        sums.push_back(std::exchange(sum, op.inputs[1]));
        continue;
      }
      // What the whole sum is called is made by the last of all.
      if (o == chain.back()) std::swap(op.outputs, graph_.ops[joints.back()].outputs);
      op.inputs[0] = sum;
      sum = op.outputs[0];
    }
    sums.push_back(sum);
    for (std::size_t i = 0; i < joints.size(); ++i) {
      Op& op = graph_.ops[joints[i]];
      op.inputs = {i == 0 ? sums[0] : graph_.ops[joints[i - 1]].outputs[0], sums[i + 1]};
      behind_[joints[i]] = chain.back();
    }
    return joints;
  }

  // Moves these ops to where their chains end. Per op its new place.
  std::vector<std::size_t> reorder(const std::vector<std::vector<std::size_t>>& sums) {
    std::vector<char> moves(graph_.ops.size());
    std::vector<std::vector<std::size_t>> at(graph_.ops.size());
    for (const auto& joints : sums) {
      for (const std::size_t o : joints) moves[o] = 1;
      at[behind_[joints[0]]] = joints;
    }
    std::vector<std::size_t> order;
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (moves[o] == 0) order.push_back(o);
      order.insert(order.end(), at[o].begin(), at[o].end());
    }
    std::vector<Op> ops;
    std::vector<std::size_t> place(graph_.ops.size());
    for (const std::size_t o : order) {
      place[o] = ops.size();
      for (ValueId id : graph_.ops[o].outputs) {
        if (id.valid()) graph_.value(id).producer = OpId(static_cast<std::int64_t>(ops.size()));
      }
      ops.push_back(std::move(graph_.ops[o]));
    }
    graph_.ops = std::move(ops);
    graph_.kernels = {};  // of the ops as they were
    return place;
  }

  Graph& graph_;
  const Ownership& owned_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<std::size_t> behind_;  // of an op that moves: the end of its chain
};

}  // namespace

void sum_by_chunk(Graph& step, Ownership& owned, const std::vector<OpId>& cuts,
                  const std::string& updates) {
  const auto sums = Sums(step, owned).run();
  if (sums.empty()) return;
  owned = assign_ops(step, cuts, updates);
  for (const auto& joints : sums) {
    for (const std::size_t o : joints) owned.chunk_of_op[o] = owned.chunk_of_op[joints.back()];
  }
}

}  // namespace autopar::stages
