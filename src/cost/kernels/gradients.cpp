// What runtimes hold for gradients, and how these are added up.
#include <algorithm>
#include <cmath>

#include "cost/kernels/finders.hpp"

namespace autopar {

namespace {

// In a step of one pass: gradients as the backward pass has made them, before they are added up
// across devices, stay until the update.
void keep_until_update(Grouping& all) {
  const std::vector<Op>& ops = all.graph.ops;
  const auto update =
      std::find_if(ops.begin(), ops.end(), [](const Op& op) { return op.phase == Phase::kUpdate; });
  if (update == ops.end()) return;
  for (const Op& op : ops) {
    if (op.phase != Phase::kBackward || op.sums != SumsAt::kBefore || !is_identity(op)) continue;
    all.made_again[all.base(op.inputs[0])].push_back(
        static_cast<std::size_t>(update - ops.begin()));
  }
}

}  // namespace

void hold_gradients(Grouping& all, const std::string& updates) {
  const Graph& graph = all.graph;
  double bytes = all.profile.gradient_bytes, of_pass = 0;
  if (graph.has_passes()) {
    bytes -= static_cast<double>(size_of(DType::kFloat32));
    of_pass = all.profile.pass_gradient_bytes;
  } else if (all.profile.pass_gradient_bytes > 0) {
    keep_until_update(all);  // the graph has them itself
  }
  if (bytes <= 0 && of_pass <= 0) return;
  all.found.held_beside.assign(graph.values.size(), 0);
  const auto is_updated = [&](const Value& made) {
    return made.producer.valid() && graph.op(made.producer).phase == Phase::kUpdate;
  };
  const std::vector<ValueId> updated = updated_inputs(graph, updates);
  for (std::size_t v = 0; v < updated.size(); ++v) {
    const ValueId input = updated[v];
    if (!input.valid() || graph.value(input).accumulates || !is_updated(graph.values[v])) continue;
    const auto& uses = all.uses[input.index()];
    const bool is_read = std::any_of(uses.begin(), uses.end(), [&](const Use& use) {
      return graph.op(use.op).phase != Phase::kUpdate;
    });
    if (!is_read) continue;
    const auto size = static_cast<double>(size_of(graph.value(input).dtype));
    all.found.held_beside[input.index()] =
        static_cast<char>(std::ceil(std::max(0.0, bytes) / size));
    all.held_in_pass(input) = static_cast<char>(std::ceil(of_pass / size));
  }
}

void join_accumulations(Grouping& all) {
  const Graph& graph = all.graph;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = all.op(o);
    const bool accumulates = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      return id.valid() && graph.value(id).accumulates;
    });
    if (!accumulates || op.type != "Add" || !op.domain.empty()) continue;
    for (const ValueId input : op.inputs) {
      const OpId maker = graph.value(input).producer;
      if (!maker.valid() || all.uses[input.index()].size() != 1) continue;
      if (graph.op(maker).type != "Cast" || graph.op(maker).phase != op.phase) continue;
      all.join(maker.index(), o);
      for (const std::size_t joined : {maker.index(), o}) {
        all.found.of_op[joined].kind = OpKernel::Kind::kElements;
      }
    }
  }
}

namespace {

bool is_cast(const Grouping& all, OpId id, Phase phase) {
  if (!id.valid()) return false;
  const Op& op = all.graph.op(id);
  return op.type == "Cast" && op.domain.empty() && op.phase == phase && !all.views[id.index()];
}

bool is_read_once(const Grouping& all, ValueId id) {
  return all.uses[id.index()].size() == 1 && !all.is_output[id.index()];
}

void stay_inside(Grouping& all, ValueId made) {
  all.found.inside[made.index()] = 1;
  OpKernel& kernel = all.found.of_op[all.graph.value(made).producer.index()];
  if (kernel.kind == OpKernel::Kind::kOwn) kernel.kind = OpKernel::Kind::kElements;
}

}  // namespace

void narrow_scattered_sums(Grouping& all) {
  const Graph& graph = all.graph;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = all.op(o);
    const bool sums = (op.type == "ScatterND" || op.type == "ScatterElements") &&
                      op.domain.empty() && op.string_attribute("reduction", "none") == "add";
    if (!sums || !op.has_input(2) || !op.has_output(0)) continue;
    const ValueId rows = op.inputs[2], sum = op.outputs[0];
    const auto narrow = [&](ValueId of) { return size_of(graph.value(of).dtype) == 2; };
    if (!is_read_once(all, sum)) continue;
    const OpId result = all.uses[sum.index()].front().op;
    if (!is_cast(all, result, op.phase) || !narrow(graph.op(result).outputs[0])) continue;
    stay_inside(all, sum);
    const OpId maker = graph.value(rows).producer;
    if (!is_read_once(all, rows) || !is_cast(all, maker, op.phase)) continue;
    if (!narrow(graph.op(maker).inputs[0])) continue;
    stay_inside(all, rows);
    all.made_again[all.base(graph.op(maker).inputs[0])].push_back(o);
  }
}

}  // namespace autopar
