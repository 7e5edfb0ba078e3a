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

namespace {

// The factors of the batch in the ops of a graph, found when they are asked for.
class BatchFactors {
 public:
  BatchFactors(const Graph& graph, std::size_t batch_dim) : graph_(graph), dim_(batch_dim) {}

  // Whether the op goes over samples.
  Result<bool> has(std::size_t op) {
    if (factors_.empty()) {
      AUTOPAR_TRY(rules, rules_of(graph_));
      factors_ = batch_factors(graph_, rules, static_cast<int>(dim_));
    }
    return factors_[op] >= 0;
  }

 private:
  const Graph& graph_;
  const std::size_t dim_;
  std::vector<int> factors_;
};

// What is there for its shape alone, so that one sample may do without it.
bool is_of_shapes(const Op& op) {
  for (const char* type : {"Reshape", "Expand", "Squeeze", "Unsqueeze", "Flatten", "Identity",
                           "Tile", "Transpose", "Slice", "Concat", "Split", "Cast"}) {
    if (op.type == type) return true;
  }
  return false;
}

// Whether it makes nothing but indices of look-ups over several dimensions. These go over samples
// by their numbers, which their rules check.
bool makes_indices(const Op& op, const Graph& graph, const std::vector<std::vector<Use>>& uses) {
  const auto is_index = [&](const Use& use) {
    const Op& reader = graph.op(use.op);
    return use.port == 1 && (reader.type == "GatherND" || reader.type == "ScatterND");
  };
  return op.type == "Concat" && op.has_output(0) && !uses[op.outputs[0].index()].empty() &&
         std::all_of(uses[op.outputs[0].index()].begin(), uses[op.outputs[0].index()].end(),
                     is_index);
}

std::map<std::string, std::size_t> places_of(const Graph& graph) {
  std::map<std::string, std::size_t> places;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) places.emplace(graph.ops[o].name, o);
  return places;
}

// Whether what the op makes first is as large in a part: of all samples together.
bool is_of_all(const Graph& whole, const Op& op, const Graph& part,
               const std::map<std::string, std::size_t>& places) {
  const auto place = places.find(op.name);
  if (place == places.end()) return false;
  const Op& own = part.ops[place->second];
  if (!op.has_output(0) || !own.has_output(0)) return false;
  return whole.value(op.outputs[0]).shape == part.value(own.outputs[0]).shape;
}

bool reads_data(const Op& op, const std::vector<char>& depends) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [&](ValueId input) { return input.valid() && depends[input.index()] != 0; });
}

// An op of the whole that the part does without, since it does nothing there: what divides by a
// number of samples that is one, or makes as many of what is of all of them. `factors`: of the
// whole.
Result<std::optional<std::string>> op_left_out(const Graph& whole, const Graph& part,
                                               const std::vector<MicroInput>& cut,
                                               BatchFactors& factors, bool averages) {
  const std::vector<char> depends = made_of_cut(whole, cut);
  const std::vector<ValueId> updated = updated_inputs(whole, kNextPattern);
  const std::map<std::string, std::size_t> places = places_of(part);
  for (std::size_t o = 0; o < whole.ops.size(); ++o) {
    const Op& op = whole.ops[o];
    if (op.phase != Phase::kForward || places.count(op.name) != 0 || adds_up(op, updated)) continue;
    const bool repeats_all =
        (op.type == "Expand" || op.type == "Tile") && op.has_input(0) &&
        depends[op.inputs[0].index()] != 0 && whole.value(op.inputs[0]).producer.valid() &&
        is_of_all(whole, whole.op(whole.value(op.inputs[0]).producer), part, places);
    if (is_of_shapes(op) && !repeats_all) continue;
    if (averages && reads_data(op, depends)) {
      AUTOPAR_TRY(has_samples, factors.has(o));
      if (!has_samples) continue;
    }
    return std::optional(op.name);
  }
  return std::optional<std::string>();
}

}  // namespace

Result<std::optional<std::string>> op_unlike_whole(const Graph& whole, const Graph& part,
                                                   const std::vector<MicroInput>& cut,
                                                   std::size_t batch_dim, bool averages) {
  const std::vector<char> depends = made_of_cut(part, cut);
  const std::vector<ValueId> updated = updated_inputs(part, kNextPattern);
  const std::map<std::string, std::size_t> places = places_of(whole);
  const std::vector<std::vector<Use>> uses = uses_of(part);
  BatchFactors factors(whole, batch_dim);  // a part may have one sample
  for (std::size_t o = 0; o < part.ops.size(); ++o) {
    const Op& op = part.ops[o];
    if (op.phase != Phase::kForward) continue;
    const auto found = places.find(op.name);
    const Op* const other = found == places.end() ? nullptr : &whole.ops[found->second];
    const bool is_same =
        other != nullptr && other->type == op.type && other->inputs.size() == op.inputs.size();
    if (!is_same && adds_up(op, updated)) continue;
    if (!is_same) return std::optional(op.name);
    const DataInputs data = data_inputs(whole, *other, part, op, depends);
    if (data.any && !data.grows && makes_more(whole, *other, part, op)) {
      return std::optional(op.name);
    }
    if (!reads_other_constant(whole, *other, part, op)) continue;
    if (makes_indices(op, part, uses)) continue;
    if (averages && data.any) {
      AUTOPAR_TRY(has_samples, factors.has(found->second));
      if (!has_samples) continue;
    }
    return std::optional(op.name);
  }
  return op_left_out(whole, part, cut, factors, averages);
}

namespace {

// Whether the op makes of means of parts the mean of what it makes of each (`averages`), or of sums
// the sum. `of_all`: per input, whether it is of all samples together; the others are the same in
// each part.
bool goes_through(const Op& op, const std::vector<char>& of_all, bool averages) {
  const auto count = static_cast<std::size_t>(std::count(of_all.begin(), of_all.end(), 1));
  for (const char* type : {"Neg", "ReduceSum", "ReduceMean"}) {
    if (op.type == type) return true;
  }
  if (is_of_shapes(op)) return true;
  if (op.type == "Add" || op.type == "Sub") return averages || count == of_all.size();
  if (op.type == "Mul") return count == 1;
  return op.type == "Div" && count == 1 && of_all[0] != 0;
}

}  // namespace

std::optional<std::string> op_not_of_parts(const Graph& whole, const Graph& part,
                                           const std::vector<MicroInput>& cut, bool averages) {
  const std::vector<char> depends = made_of_cut(part, cut);
  const std::vector<ValueId> updated = updated_inputs(part, kNextPattern);
  const std::map<std::string, std::size_t> places = places_of(whole);
  for (const Op& op : part.ops) {
    if (op.phase != Phase::kForward || adds_up(op, updated)) continue;
    const auto found = places.find(op.name);
    if (found == places.end()) continue;
    const Op& other = whole.ops[found->second];
    std::vector<char> of_all;
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      if (!op.has_input(port) || !other.has_input(port)) continue;
      const bool is_one =
          depends[op.inputs[port].index()] != 0 &&
          part.value(op.inputs[port]).shape == whole.value(other.inputs[port]).shape;
      of_all.push_back(is_one ? 1 : 0);
    }
    const bool any = std::find(of_all.begin(), of_all.end(), 1) != of_all.end();
    if (any && !goes_through(op, of_all, averages)) return op.name;
  }
  return std::nullopt;
}

}  // namespace autopar
