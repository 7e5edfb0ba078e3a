
#include "autopar/stages.hpp"
#include "stages/assign.hpp"

namespace autopar {

namespace {

// What waits for an op: nothing, the gradient of one stored value, or more.
constexpr std::int64_t kNothing = -1;
constexpr std::int64_t kMore = -2;

std::int64_t both(std::int64_t a, std::int64_t b) {
  if (a == kNothing || a == b) return b;
  return b == kNothing ? a : kMore;
}

}  // namespace

std::vector<char> weight_gradient_ops(const Graph& chunk, const std::string& updates) {
  std::vector<std::int64_t> waits(chunk.values.size(), kNothing);
  for (ValueId id : chunk.outputs) waits[id.index()] = kMore;
  const std::vector<ValueId> next = stages::next_values(chunk, updates);
  for (std::size_t v = 0; v < next.size(); ++v) {
    const bool accumulates = next[v].valid() && chunk.values[v].accumulates;
    if (accumulates) waits[next[v].index()] = static_cast<std::int64_t>(v);
  }
  std::vector<char> found(chunk.ops.size());
  for (std::size_t o = chunk.ops.size(); o-- > 0;) {
    const Op& op = chunk.ops[o];
    if (op.phase != Phase::kBackward) continue;
    std::int64_t own = kNothing;
    for (ValueId id : op.outputs) {
      if (id.valid()) own = both(own, waits[id.index()]);
    }
    found[o] = own >= 0;
    // An op that nothing waits for runs with the others, and what it reads must be there.
    for (ValueId id : op.inputs) {
      if (id.valid()) waits[id.index()] = both(waits[id.index()], own == kNothing ? kMore : own);
    }
  }
  return found;
}

}  // namespace autopar
