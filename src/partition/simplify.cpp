#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "partition/program.hpp"

namespace autopar {
namespace {

// Value -> the value that is read in its place.
using Stand = std::vector<ValueId>;

// Equal constants become one, the first. O(bytes of constants).
Stand share_constants(const Graph& program) {
  Stand stand(program.values.size());
  std::unordered_map<std::size_t, std::vector<ValueId>> by_hash;  // looked up, never walked
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    stand[v] = id;
    const Tensor* tensor = program.values[v].tensor();
    if (program.values[v].kind != ValueKind::kConstant || tensor == nullptr) continue;
    std::vector<ValueId>& candidates = by_hash[std::hash<std::string_view>()(tensor->bytes)];
    const auto equal = std::find_if(candidates.begin(), candidates.end(), [&](ValueId other) {
      return *program.value(other).tensor() == *tensor;
    });
    if (equal == candidates.end()) {
      candidates.push_back(id);
    } else {
      stand[v] = *equal;
    }
  }
  return stand;
}

// Equal slices of one constant (or of a slice of one) become one, the first. What leaves the
// program keeps its own value, because of its name.
void share_slices(Graph& program, Stand& stand) {
  using Key = std::tuple<ValueId, std::int64_t, std::vector<std::string>>;
  std::map<Key, ValueId> slices;
  std::vector<char> from_constant(program.values.size());
  std::vector<char> leaves(program.values.size());
  for (ValueId output : program.outputs) leaves[output.index()] = 1;
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    from_constant[v] = program.values[v].kind == ValueKind::kConstant;
  }
  for (Op& op : program.ops) {
    for (ValueId& input : op.inputs) {
      if (input.valid()) input = stand[input.index()];
    }
    if (!is_slice(op)) continue;
    const ValueId source = op.inputs[0];
    const ValueId output = op.outputs[0];
    if (!from_constant[source.index()]) continue;
    from_constant[output.index()] = 1;
    if (leaves[output.index()]) continue;
    const auto axes = op.attributes.find("mesh_axes");
    AUTOPAR_CHECK(axes != op.attributes.end(), "simplify needs a lowered program");
    const auto [slice, added] = slices.try_emplace(
        Key{source, op.int_attribute("axis", -1), std::get<std::vector<std::string>>(axes->second)},
        output);
    if (!added) stand[output.index()] = slice->second;
  }
}

// Drops ops that no output needs, then values that are left without a reader; inputs stay.
void remove_dead(Graph& program) {
  std::vector<char> needed(program.values.size());
  for (ValueId output : program.outputs) needed[output.index()] = 1;
  std::vector<char> live(program.ops.size());
  for (std::size_t o = program.ops.size(); o-- > 0;) {
    const Op& op = program.ops[o];
    for (ValueId output : op.outputs) live[o] |= output.valid() && needed[output.index()];
    if (!live[o]) continue;
    for (ValueId input : op.inputs) {
      if (input.valid()) needed[input.index()] = 1;
    }
    for (ValueId output : op.outputs) {
      if (output.valid()) needed[output.index()] = 1;
    }
  }
  for (ValueId input : program.inputs) needed[input.index()] = 1;
  keep(program, live, needed);
}

}  // namespace

void simplify(Draft& draft) {
  Graph& program = draft.plan.program;
  Stand stand = share_constants(program);
  share_slices(program, stand);
  remove_dead(program);
}

}  // namespace autopar
