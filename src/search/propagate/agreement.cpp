// Whom the ops of a plan follow that was not found breadth first.
#include <deque>

#include "search/propagate/at.hpp"
#include "search/propagate/propagate.hpp"

namespace autopar {

namespace {

// Floods the plan from all seeds at once, from op to op where both want a tensor alike.
class Agreement {
 public:
  Agreement(const Graph& graph, const MeshProblem& problem, const Seeds& seeds,
            const std::vector<OpSpecs>& specs)
      : graph_(graph),
        problem_(problem),
        seeds_(seeds),
        specs_(specs),
        uses_(uses_of(graph)),
        origin_(graph.ops.size(), PropagationTrace::kFilled) {}

  std::vector<int> run(const PropagationTrace& trace) {
    for (std::size_t o = 0; o < origin_.size(); ++o) {
      if (seeds_.of_op[o] >= 0) assign(OpId(static_cast<std::int64_t>(o)), seeds_.of_op[o]);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const OpId producer = graph_.values[v].producer;
      if (producer.valid()) assign(producer, seeds_.of_made[v]);
      if (problem_.hub_node[v] >= 0 || uses_[v].size() != 1) continue;
      assign(uses_[v][0].op, seeds_.of_hub[v]);
    }
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      flood_fixed(v, seeds_.of_source[v], problem_.source_node[v]);
      if (problem_.hub_node[v] >= 0) flood_fixed(v, seeds_.of_hub[v], problem_.hub_node[v]);
      flood_fixed(v, seeds_.of_output[v], problem_.output_node[v]);
    }
    drain();
    // Islands that agree with no seed: by their first neighbour, in the order of propagation.
    for (OpId op : trace.order) {
      if (origin_[op.index()] >= 0 || trace.origin[op.index()] < 0) continue;
      visit(op, false, [&](OpId other) {
        if (origin_[op.index()] < 0) assign(op, origin_[other.index()]);
      });
      if (origin_[op.index()] < 0) assign(op, trace.origin[op.index()]);
      drain();
    }
    return std::move(origin_);
  }

 private:
  void assign(OpId op, int origin) {
    if (origin < 0 || origin_[op.index()] >= 0) return;
    origin_[op.index()] = origin;
    queue_.push_back(op);
  }

  void drain() {
    while (!queue_.empty()) {
      const OpId op = queue_.front();
      queue_.pop_front();
      visit(op, true, [&](OpId other) { assign(other, origin_[op.index()]); });
    }
  }

  // The other ends of an op's tensors; `alike`: only those that want the tensor in the same way.
  template <class Visitor>
  void visit(OpId id, bool alike, Visitor visitor) const {
    const Op& op = graph_.op(id);
    const auto ends = [&](ValueId value, const Spec& own) {
      if (!value.valid() || graph_.value(value).kind == ValueKind::kConstant) return;
      visit_value(value, [&](OpId other, const Spec& spec) {
        if (other != id && (!alike || spec.dims == own.dims)) visitor(other);
      });
    };
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      ends(op.inputs[i], specs_[id.index()].inputs[i]);
    }
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      ends(op.outputs[j], specs_[id.index()].outputs[j]);
    }
  }

  template <class Visitor>
  void visit_value(ValueId value, Visitor visitor) const {
    const OpId producer = graph_.value(value).producer;
    if (producer.valid()) {
      const Op& op = graph_.op(producer);
      for (std::size_t j = 0; j < op.outputs.size(); ++j) {
        if (op.outputs[j] == value) visitor(producer, specs_[producer.index()].outputs[j]);
      }
    }
    for (const Use& use : uses_[value.index()]) {
      visitor(use.op, specs_[use.op.index()].inputs[at(use.port)]);
    }
  }

  void flood_fixed(std::size_t v, int seed, int node) {
    if (seed < 0) return;
    const Spec& fixed = problem_.specs_of_node[at(node)][0];
    visit_value(ValueId(static_cast<std::int64_t>(v)), [&](OpId op, const Spec& spec) {
      if (spec.dims == fixed.dims) assign(op, seed);
    });
  }

  const Graph& graph_;
  const MeshProblem& problem_;
  const Seeds& seeds_;
  const std::vector<OpSpecs>& specs_;
  std::vector<std::vector<Use>> uses_;
  std::vector<int> origin_;
  std::deque<OpId> queue_;
};

}  // namespace

std::vector<int> origins_by_agreement(const Graph& graph, const MeshProblem& problem,
                                      const Seeds& seeds, const PropagationTrace& trace,
                                      const std::vector<OpSpecs>& specs) {
  return Agreement(graph, problem, seeds, specs).run(trace);
}

}  // namespace autopar
