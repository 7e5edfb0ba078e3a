#include "strategy/last_reads.hpp"

#include <algorithm>

namespace autopar {

std::vector<std::uint64_t> last_reads(const Graph& graph) {
  constexpr std::size_t kNever = static_cast<std::size_t>(-1);
  std::vector<std::size_t> last(graph.values.size(), kNever);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (ValueId input : graph.ops[o].inputs) {
      if (input.valid()) last[input.index()] = o;
    }
  }
  for (ValueId output : graph.outputs) last[output.index()] = kNever;
  std::vector<std::uint64_t> found(graph.ops.size(), 0);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const std::vector<ValueId>& inputs = graph.ops[o].inputs;
    for (std::size_t i = 0; i < inputs.size() && i < 64; ++i) {
      if (!inputs[i].valid() || last[inputs[i].index()] != o) continue;
      const bool is_made = graph.value(inputs[i]).producer.valid();
      const bool is_twice = std::count(inputs.begin(), inputs.end(), inputs[i]) > 1;
      if (is_made && !is_twice) found[o] |= std::uint64_t{1} << i;
    }
  }
  return found;
}

}  // namespace autopar
