#include <algorithm>
#include <map>

#include "autopar/stages.hpp"
#include "stages/assign.hpp"

namespace autopar {

namespace {

// What ops have in common that are before like places.
std::string kind_of(const Graph& step, const Op& op) {
  std::string text = op.type;
  for (const auto* ids : {&op.inputs, &op.outputs}) {
    for (ValueId id : *ids) {
      text += id.valid() ? " " + to_text(step.value(id).shape) : " -";
    }
  }
  return text;
}

// Kinds that are there as often as most others (once in each layer) first, then those that are
// there more often; in the order of the graph.
std::vector<std::vector<OpId>> kinds_of(const Graph& step, const std::string& updates) {
  const std::vector<char> shared = stages::made_of_data(step, stages::next_values(step, updates));
  std::map<std::string, std::size_t> known;
  std::vector<std::vector<OpId>> kinds;
  for (std::size_t o = 1; o < step.ops.size(); ++o) {
    if (step.ops[o].phase != Phase::kForward || shared[o]) continue;
    const auto [place, is_new] = known.try_emplace(kind_of(step, step.ops[o]), kinds.size());
    if (is_new) kinds.emplace_back();
    kinds[place->second].push_back(OpId(static_cast<std::int64_t>(o)));
  }
  std::erase_if(kinds, [](const auto& ops) { return ops.size() < 2; });
  std::map<std::size_t, std::size_t> often;  // by the number of ops: so many kinds
  for (const auto& ops : kinds) ++often[ops.size()];
  std::size_t usual = 0;
  for (const auto& [ops, count] : often) {
    if (usual == 0 || count >= often[usual]) usual = ops;
  }
  std::stable_sort(kinds.begin(), kinds.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.size() != usual, b.size()) < std::pair(b.size() != usual, a.size());
  });
  return kinds;
}

// Whether a value of the passes that goes from op to op within a kernel goes from chunk to chunk,
// or a chunk has no op.
bool breaks_kernels(const Graph& step, const std::vector<OpId>& cuts, const std::string& updates) {
  const std::vector<int> chunk = stages::assign_ops(step, cuts, updates).chunk_of_op;
  std::vector<char> has_op(cuts.size() + 1);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    if (chunk[o] < 0) continue;
    has_op[static_cast<std::size_t>(chunk[o])] = 1;
    const Op& op = step.ops[o];
    if (op.phase == Phase::kUpdate) continue;
    const std::uint64_t inside = step.kernel(op).inside_inputs;
    for (std::size_t i = 0; i < op.inputs.size() && i < 64; ++i) {
      if ((inside >> i & 1) == 0 || !op.inputs[i].valid()) continue;
      const OpId maker = step.value(op.inputs[i]).producer;
      if (maker.valid() && chunk[maker.index()] >= 0 && chunk[maker.index()] != chunk[o]) {
        return true;
      }
    }
  }
  return std::find(has_op.begin(), has_op.end(), 0) != has_op.end();
}

}  // namespace

std::vector<OpId> like_cuts(const Graph& step, const std::string& updates) {
  for (const std::vector<OpId>& ops : kinds_of(step, updates)) {
    if (!breaks_kernels(step, ops, updates)) return ops;
  }
  return {};
}

}  // namespace autopar
