#include "planning/unlike_whole.hpp"

#include <algorithm>
#include <map>

#include "autopar/ops.hpp"
#include "autopar/search.hpp"

namespace autopar {

namespace {

// Whether the parts of the first one along some dimension are all the second one.
bool repeats(const Tensor& whole, const Tensor& part) {
  if (whole.dtype != part.dtype || whole.shape.size() != part.shape.size()) return false;
  std::size_t outer = 1, dim = 0;
  while (dim < whole.shape.size() && whole.shape[dim] == part.shape[dim]) {
    outer *= static_cast<std::size_t>(whole.shape[dim++]);
  }
  if (outer == 0 || part.bytes.empty()) return true;
  const std::size_t block = part.bytes.size() / outer, of_whole = whole.bytes.size() / outer;
  if (block == 0 || of_whole % block != 0) return false;
  for (std::size_t i = 0; i < outer; ++i) {
    for (std::size_t at = 0; at < of_whole; at += block) {
      if (whole.bytes.compare(i * of_whole + at, block, part.bytes, i * block, block) != 0) {
        return false;
      }
    }
  }
  return true;
}

// Whether inputs are data that is cut, or made of it, and whether any has more samples in the
// whole.
struct DataInputs {
  bool any = false, grows = false;
};

DataInputs data_inputs(const Graph& whole, const Op& other, const Graph& part, const Op& op,
                       const std::vector<char>& depends) {
  DataInputs data;
  for (std::size_t port = 0; port < op.inputs.size(); ++port) {
    if (!op.has_input(port) || !other.has_input(port)) continue;
    if (depends[op.inputs[port].index()] == 0) continue;
    data.any = true;
    data.grows =
        data.grows || part.value(op.inputs[port]).shape != whole.value(other.inputs[port]).shape;
  }
  return data;
}

// A constant among the inputs that is another one in the whole.
bool reads_other_constant(const Graph& whole, const Op& other, const Graph& part, const Op& op) {
  for (std::size_t port = 0; port < op.inputs.size(); ++port) {
    if (!op.has_input(port) || !other.has_input(port) || is_operand_constant(op, port)) continue;
    const Tensor* const own = part.value(op.inputs[port]).tensor();
    const Tensor* const of_whole = whole.value(other.inputs[port]).tensor();
    if (own == nullptr || of_whole == nullptr || *own == *of_whole) continue;
    if (!repeats(*of_whole, *own)) return true;
  }
  return false;
}

// Whether it adds up what passes make: its output is the next value of an input.
bool adds_up(const Op& op, const std::vector<ValueId>& updated) {
  return std::any_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
    return output.valid() && updated[output.index()].valid();
  });
}

// Whether an output has more samples in the whole.
bool makes_more(const Graph& whole, const Op& other, const Graph& part, const Op& op) {
  for (std::size_t o = 0; o < std::min(op.outputs.size(), other.outputs.size()); ++o) {
    if (!op.has_output(o) || !other.has_output(o)) continue;
    if (part.value(op.outputs[o]).shape != whole.value(other.outputs[o]).shape) return true;
  }
  return false;
}

}  // namespace

std::vector<char> made_of_cut(const Graph& graph, const std::vector<MicroInput>& cut) {
  std::vector<char> found(graph.values.size());
  for (ValueId input : graph.inputs) {
    const std::string& name = graph.value(input).name;
    found[input.index()] = std::any_of(cut.begin(), cut.end(),
                                       [&](const MicroInput& one) { return one.name == name; });
  }
  for (const Op& op : graph.ops) {
    const bool depends = std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
      return id.valid() && found[id.index()] != 0;
    });
    for (ValueId output : op.outputs) {
      if (depends && output.valid()) found[output.index()] = 1;
    }
  }
  return found;
}

Result<std::optional<std::string>> op_unlike_whole(const Graph& whole, const Graph& part,
                                                   const std::vector<MicroInput>& cut,
                                                   std::size_t batch_dim, bool averages) {
  const std::vector<char> depends = made_of_cut(part, cut);
  std::map<std::string, const Op*> ops;
  for (const Op& op : whole.ops) ops[op.name] = &op;
  const std::vector<ValueId> updated = updated_inputs(part, kNextPattern);
  std::vector<int> factors;  // of the batch, found when they are asked for
  for (std::size_t o = 0; o < part.ops.size(); ++o) {
    const Op& op = part.ops[o];
    if (op.phase != Phase::kForward) continue;
    const auto found = ops.find(op.name);
    const bool is_same = found != ops.end() && found->second->type == op.type &&
                         found->second->inputs.size() == op.inputs.size();
    if (!is_same && adds_up(op, updated)) continue;
    if (!is_same) return std::optional(op.name);
    const Op& other = *found->second;
    const DataInputs data = data_inputs(whole, other, part, op, depends);
    if (data.any && !data.grows && makes_more(whole, other, part, op))
      return std::optional(op.name);
    if (!reads_other_constant(whole, other, part, op)) continue;
    if (averages && factors.empty()) {
      AUTOPAR_TRY(rules, rules_of(part));
      factors = batch_factors(part, rules, static_cast<int>(batch_dim));
    }
    if (!averages || factors[o] >= 0) return std::optional(op.name);
  }
  return std::optional<std::string>();
}

}  // namespace autopar
