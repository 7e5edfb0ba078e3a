#include "partition/program.hpp"

namespace autopar {

void order_collectives(Graph& program) {
  ValueId previous;
  std::int64_t seq = 0;
  for (Op& op : program.ops) {
    if (!is_collective(op)) continue;
    op.attributes["seq"] = seq++;
    if (!exchanges_data(op)) continue;
    // It waits anyway where it reads the previous output.
    if (previous.valid() && op.inputs[0] != previous) op.inputs.push_back(previous);
    previous = op.outputs[0];
  }
}

}  // namespace autopar
