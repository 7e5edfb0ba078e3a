#include <utility>

#include "autopar/partition.hpp"
#include "io/import/passes.hpp"

namespace autopar {

void produce_outputs(Normalisation& n) {
  for (ValueId& output : n.graph.outputs) {
    if (n.graph.value(output).producer.valid()) continue;
    const std::string name = n.graph.value(output).name;
    Value result;
    result.dtype = n.graph.value(output).dtype;
    result.shape = n.graph.value(output).shape;
    result.name = name;
    if (n.graph.value(output).kind == ValueKind::kConstant) {
      n.graph.value(output).name = n.value_names.unique(name + "/value");
    } else {
      result.name = n.value_names.unique(name + kOutputOfInput);
      n.warnings.push_back("graph output '" + name +
                           "' is itself an input or a weight; it is called '" + result.name + "'");
    }
    Op op;
    op.name = n.op_names.unique("Identity_" + name);
    op.type = "Identity";
    op.inputs = {output};
    op.origin_name = op.name;
    op.origin_type = op.type;
    if (n.graph.has_passes()) op.phase = Phase::kUpdate;
    output = n.graph.add_value(std::move(result));
    op.outputs = {output};
    n.graph.add_op(std::move(op));
  }
}

}  // namespace autopar
