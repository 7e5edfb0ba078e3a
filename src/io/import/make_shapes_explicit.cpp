#include <algorithm>

#include "io/import/passes.hpp"

namespace autopar {
namespace {

bool reshapes(const Op& op) {
  return op.domain.empty() && (op.type == "Reshape" || op.type == "Squeeze" ||
                               op.type == "Unsqueeze" || op.type == "Flatten");
}

}  // namespace

void make_shapes_explicit(Normalisation& n) {
  for (Op& op : n.graph.ops) {
    const bool expands = op.domain.empty() && op.type == "Expand";
    if (!reshapes(op) && !expands) continue;
    const Shape shape = n.graph.value(op.outputs[0]).shape;
    const auto rank = static_cast<std::int64_t>(shape.size());
    const ValueId target =
        n.add_constant(int64_tensor({rank}, shape), n.graph.value(op.outputs[0]).name + "/shape");
    op.inputs = {op.inputs[0], target};
    if (expands) continue;
    op.type = "Reshape";
    op.attributes.clear();
    // A 0 in the target means "as in the input" unless this is set.
    const bool has_zero = std::find(shape.begin(), shape.end(), 0) != shape.end();
    if (has_zero && n.graph.opset >= 14) op.attributes["allowzero"] = std::int64_t{1};
  }
}

}  // namespace autopar
