// Rules and classes of ops: each op is written as bytes that are the same for ops of one class, and
// of one rule.
#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

#include "autopar/strategy.hpp"
#include "ops/table.hpp"
#include "strategy/last_reads.hpp"

namespace autopar {

namespace {

// Every list with its length before it, so that different lists never write the same.
class OpBytes {
 public:
  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const std::size_t at = text.size();
    text.resize(at + sizeof value);
    std::memcpy(text.data() + at, &value, sizeof value);
  }
  void words(const std::string& value) {
    number(value.size());
    text += value;
  }
  template <class T>
  void list(const std::vector<T>& values) {
    number(values.size());
    for (const T& value : values) {
      if constexpr (std::is_same_v<T, std::string>) {
        words(value);
      } else {
        number(value);
      }
    }
  }

  std::string text;
};

void add(OpBytes& out, const Attribute& attribute) {
  out.number(attribute.index());
  std::visit(
      [&out](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::string>) {
          out.words(value);
        } else if constexpr (std::is_same_v<T, Tensor>) {
          out.number(value.dtype);
          out.list(value.shape);
          out.words(value.bytes);
        } else if constexpr (std::is_same_v<T, IntList>) {
          out.list(value.values());
        } else if constexpr (std::is_arithmetic_v<T>) {
          out.number(value);
        } else {
          out.list(value);
        }
      },
      attribute);
}

void add(OpBytes& out, const Rule& rule) {
  out.number(rule.factors.size());
  for (const Factor& factor : rule.factors) {
    out.words(factor.name);
    out.number(factor.size);
    out.number(factor.kind);
    out.list(factor.partial_inputs);
    out.list(factor.moving_inputs);
    out.list(factor.moving_outputs);
  }
  for (const auto* tensors : {&rule.inputs, &rule.outputs}) {
    out.number(tensors->size());
    for (const TensorFactors& tensor : *tensors) {
      out.number(tensor.size());
      for (const auto& factors : tensor) out.list(factors);
    }
  }
}

void add(OpBytes& out, const Graph& graph, ValueId id) {
  out.number(id.valid());
  if (!id.valid()) return;
  const Value& value = graph.value(id);
  out.number(value.dtype);
  out.list(value.shape);
  out.number(value.kind == ValueKind::kConstant);
  out.number(graph.value(handed_on(graph, id)).kind == ValueKind::kParameter);
}

void add(OpBytes& out, const Graph& graph, const Op& op) {
  out.words(op.domain);
  out.words(op.type);
  out.number(op.sums);
  out.number(op.attributes.size());
  for (const auto& [name, attribute] : op.attributes) {
    out.words(name);
    add(out, attribute);
  }
  out.number(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    add(out, graph, op.inputs[i]);
    if (!op.has_input(i) || !is_operand_constant(op, i)) continue;
    const Value& value = graph.value(op.inputs[i]);
    if (value.kind == ValueKind::kConstant && value.tensor()) out.words(value.tensor()->bytes);
  }
  out.number(op.outputs.size());
  for (ValueId output : op.outputs) add(out, graph, output);
}

void add(OpBytes& out, const Graph& graph, const Op& op, const Rule& rule) {
  add(out, graph, op);
  out.number(graph.times(op));
  add(out, rule);
  const OpKernel& kernel = graph.kernel(op);
  out.number(kernel.kind);
  out.number(kernel.launches);
  out.number(kernel.inside_inputs);
  out.number(kernel.inside_outputs);
  out.number(kernel.transposed_inputs);
  out.number(kernel.flops_factor);
  out.number(kernel.runs);
  out.number(kernel.has_rows);
  if (kernel.kind == OpKernel::Kind::kAttention) out.number(op.phase);
}

// Bytes of a constant; what reads longer ones has its rule found by itself. Far above the axes,
// pads and sizes that rules read, and far below tables, which are dear to compare.
constexpr std::size_t kConstantBytes = 4096;

// All that the rule of an op may depend on within a graph; false: that would be too long.
bool add_all_of_rule(OpBytes& out, const Graph& graph, const Op& op) {
  add(out, graph, op);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    const Tensor* tensor = graph.value(op.inputs[i]).tensor();
    if (tensor == nullptr) continue;
    if (tensor->bytes.size() > kConstantBytes) return false;
    out.number(i);
    out.words(tensor->bytes);
  }
  return true;
}

// Whether some assignment makes several ops of it on a rank, see is_plain_local().
bool may_take_steps(const Op& op, const Rule& rule) {
  const OpRow* row = find_row(op);
  if (row == nullptr) return false;
  return row->split != nullptr ||
         std::any_of(rule.factors.begin(), rule.factors.end(), [](const Factor& factor) {
           return factor.kind == FactorKind::kHalo || factor.kind == FactorKind::kMoving;
         });
}

}  // namespace

Result<GraphRules> rules_of(const Graph& graph, const UserRules& user) {
  GraphRules result;
  result.rules.reserve(graph.ops.size());
  std::unordered_map<std::string, RuleOf> known;
  OpBytes bytes;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    bytes.text.clear();
    const bool is_short = add_all_of_rule(bytes, graph, graph.ops[o]);
    auto found = is_short ? known.find(bytes.text) : known.end();
    if (found == known.end()) {
      AUTOPAR_TRY(rule, rule_of(graph, graph.ops[o], user));
      if (!is_short) bytes.text = "op " + std::to_string(o);
      found = known.emplace(bytes.text, std::move(rule)).first;
    }
    if (!found->second.has_rule) result.without_rule.push_back(OpId(static_cast<std::int64_t>(o)));
    result.rules.push_back(found->second.rule);
  }
  result.class_of_op = classes_of(graph, result.rules);
  return result;
}

std::vector<int> classes_of(const Graph& graph, const std::vector<Rule>& rules) {
  std::unordered_map<std::string, int> class_of_bytes;
  std::vector<int> classes;
  OpBytes out;
  const std::vector<std::uint64_t> gone = last_reads(graph);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    out.text.clear();
    add(out, graph, graph.ops[o], rules[o]);
    // What an op of several steps on a rank holds beside its outputs.
    if (may_take_steps(graph.ops[o], rules[o])) out.number(gone[o]);
    const auto next = static_cast<int>(class_of_bytes.size());
    classes.push_back(class_of_bytes.try_emplace(out.text, next).first->second);
  }
  return classes;
}

}  // namespace autopar
