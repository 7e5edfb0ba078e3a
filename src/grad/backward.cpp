// The reverse walk.
#include <algorithm>

#include "autopar/grad.hpp"

namespace autopar {
namespace {

class Backward {
 public:
  Backward(GraphBuilder& to, std::size_t forward_ops) : to_(to), ops_(forward_ops) {}

  Result<std::vector<ValueId>> run(const std::vector<Seed>& seeds,
                                   const std::vector<ValueId>& wanted) {
    const std::size_t values = to_.graph().values.size();
    grads_.assign(values, ValueId());
    find_ways(wanted);
    for (const Seed& seed : seeds) grads_[seed.value.index()] = seed.grad;
    for (std::size_t i = ops_; i-- > 0;) AUTOPAR_RETURN_IF_ERROR(visit(OpId(std::int64_t(i))));
    std::vector<ValueId> result;
    for (ValueId value : wanted) result.push_back(grads_[value.index()]);
    return result;
  }

 private:
  // Values that depend on a wanted one through floating-point values alone.
  void find_ways(const std::vector<ValueId>& wanted) {
    depends_.assign(to_.graph().values.size(), 0);
    for (ValueId value : wanted) depends_[value.index()] = 1;
    for (std::size_t i = 0; i < ops_; ++i) {
      const Op& op = to_.graph().ops[i];
      const bool any = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId input) {
        return input.valid() && depends_[input.index()] != 0;
      });
      if (!any) continue;
      for (ValueId output : op.outputs) {
        if (output.valid() && is_floating(to_.dtype(output))) depends_[output.index()] = 1;
      }
    }
  }

  Status visit(OpId id) {
    GradContext context{to_, to_.graph().op(id), id, {}, {}};
    const Op& op = context.op;
    bool reached = false, wants = false;
    for (ValueId output : op.outputs) {
      const ValueId grad = output.valid() ? grads_[output.index()] : ValueId();
      context.output_grads.push_back(grad);
      reached = reached || grad.valid();
    }
    for (ValueId input : op.inputs) {
      context.wanted.push_back(input.valid() && depends_[input.index()] != 0);
      wants = wants || context.wanted.back();
    }
    if (!reached || !wants) return Ok{};
    to_.name_after(op.name + ".grad", GraphBuilder::Naming::kCounted);
    const Result<InputGrads> grads = gradients_of(context);
    if (!grads) return explained(id, grads.error());
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      if ((*grads)[port].valid()) add(op.inputs[port], (*grads)[port]);
    }
    return Ok{};
  }

  void add(ValueId value, ValueId grad) {
    ValueId& sum = grads_[value.index()];
    sum = sum.valid() ? to_.pointwise("Add", {sum, grad}) : grad;
  }

  // How the loss depends on the op: the first way that gradients came.
  Error explained(OpId from, const Error& error) const {
    const Graph& graph = to_.graph();
    std::string way;
    OpId at = from;
    for (std::size_t steps = 0; at.valid() && steps < 12; ++steps) {
      OpId next;
      for (std::size_t i = at.index() + 1; i < ops_ && !next.valid(); ++i) {
        const Op& reader = graph.ops[i];
        const bool reads = std::any_of(
            reader.inputs.begin(), reader.inputs.end(),
            [&](ValueId input) { return input.valid() && graph.value(input).producer == at; });
        const bool reached = std::any_of(
            reader.outputs.begin(), reader.outputs.end(),
            [&](ValueId output) { return output.valid() && grads_[output.index()].valid(); });
        if (reads && reached) next = OpId(std::int64_t(i));
      }
      if (!next.valid()) break;
      way += (way.empty() ? "'" : " -> '") + graph.op(next).name + "'";
      at = next;
      if (steps == 11) way += " -> ...";
    }
    const Op& op = graph.op(from);
    Error told = error;
    told.message = "op '" + op.name + "': " + error.message + "; the loss depends on it" +
                   (way.empty() ? " directly" : " by way of " + way) +
                   "; freeze the parameters before it (--freeze) or choose another loss";
    return told;
  }

  GraphBuilder& to_;
  std::size_t ops_;
  std::vector<char> depends_;
  std::vector<ValueId> grads_;  // of the forward values
};

}  // namespace

Result<std::vector<ValueId>> backward(GraphBuilder& to, std::size_t forward_ops,
                                      const std::vector<Seed>& seeds,
                                      const std::vector<ValueId>& wanted) {
  return Backward(to, forward_ops).run(seeds, wanted);
}

}  // namespace autopar
