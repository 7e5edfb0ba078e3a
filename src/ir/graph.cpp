#include <algorithm>
#include <array>
#include <utility>

#include "autopar/ir.hpp"

namespace autopar {

namespace {

template <class T>
const T* attribute(const Op& op, const std::string& name) {
  auto found = op.attributes.find(name);
  return found == op.attributes.end() ? nullptr : std::get_if<T>(&found->second);
}

}  // namespace

const char* name_of(Phase phase) {
  static constexpr std::array kNames = {"forward", "backward", "update"};
  return kNames[static_cast<std::size_t>(phase)];
}

std::optional<Phase> parse_phase(const std::string& name) {
  for (Phase phase : {Phase::kForward, Phase::kBackward, Phase::kUpdate}) {
    if (name == name_of(phase)) return phase;
  }
  return std::nullopt;
}

const char* name_of(SumsAt sums) {
  static constexpr std::array<const char*, 3> kNames = {"anywhere", "before", "after"};
  return kNames[static_cast<std::size_t>(sums)];
}

std::optional<SumsAt> parse_sums_at(const std::string& name) {
  for (SumsAt sums : {SumsAt::kAnywhere, SumsAt::kBefore, SumsAt::kAfter}) {
    if (name == name_of(sums)) return sums;
  }
  return std::nullopt;
}

std::int64_t Op::int_attribute(const std::string& name, std::int64_t fallback) const {
  const auto* value = attribute<std::int64_t>(*this, name);
  return value ? *value : fallback;
}

double Op::float_attribute(const std::string& name, double fallback) const {
  const auto* value = attribute<double>(*this, name);
  return value ? *value : fallback;
}

std::string Op::string_attribute(const std::string& name, const std::string& fallback) const {
  const auto* value = attribute<std::string>(*this, name);
  return value ? *value : fallback;
}

std::vector<std::int64_t> Op::ints_attribute(const std::string& name,
                                             const std::vector<std::int64_t>& fallback) const {
  const auto* value = attribute<IntList>(*this, name);
  return value ? value->values() : fallback;
}

ValueId Graph::add_value(Value value) {
  values.push_back(std::move(value));
  return ValueId(static_cast<std::int64_t>(values.size()) - 1);
}

OpId Graph::add_op(Op op) {
  const OpId id(static_cast<std::int64_t>(ops.size()));
  for (ValueId output : op.outputs) {
    if (output.valid()) value(output).producer = id;
  }
  ops.push_back(std::move(op));
  return id;
}

std::string Names::unique(const std::string& stem, const char* separator) {
  if (!taken(stem)) {
    take(stem);
    return stem;
  }
  int& next = next_[stem];  // stays where it is when names are added
  std::string name;
  do {
    name = stem + separator + std::to_string(next++);
  } while (taken(name));
  take(name);
  return name;
}

std::size_t end_of_forward(const Graph& graph) {
  const auto end = std::find_if(graph.ops.begin(), graph.ops.end(),
                                [](const Op& op) { return op.phase != Phase::kForward; });
  return static_cast<std::size_t>(end - graph.ops.begin());
}

bool has_backward_pass(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(),
                     [](const Op& op) { return op.phase == Phase::kBackward; });
}

std::vector<ValueId> keep(Graph& graph, const std::vector<char>& ops,
                          const std::vector<char>& values) {
  std::vector<Value> all_values = std::exchange(graph.values, {});
  std::vector<Op> all_ops = std::exchange(graph.ops, {});
  std::vector<ValueId> now(all_values.size());
  for (std::size_t v = 0; v < all_values.size(); ++v) {
    if (values[v] == 0) continue;
    all_values[v].producer = OpId();
    now[v] = graph.add_value(std::move(all_values[v]));
  }
  const auto renumber = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (id.valid()) id = now[id.index()];
    }
  };
  for (std::size_t o = 0; o < all_ops.size(); ++o) {
    if (ops[o] == 0) continue;
    renumber(all_ops[o].inputs);
    renumber(all_ops[o].outputs);
    graph.add_op(std::move(all_ops[o]));
  }
  renumber(graph.inputs);
  renumber(graph.outputs);
  return now;
}

std::vector<std::vector<Use>> uses_of(const Graph& graph) {
  std::vector<std::vector<Use>> uses(graph.values.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    for (std::size_t port = 0; port < op.inputs.size(); ++port) {
      if (!op.has_input(port)) continue;
      uses[op.inputs[port].index()].push_back(
          {OpId(static_cast<std::int64_t>(i)), static_cast<int>(port)});
    }
  }
  return uses;
}

std::optional<std::vector<std::int64_t>> constant_ints(const Graph& graph, const Op& op,
                                                       std::size_t port) {
  if (!op.has_input(port)) return std::nullopt;
  const Value& value = graph.value(op.inputs[port]);
  if (value.kind != ValueKind::kConstant || !value.tensor()) return std::nullopt;
  return int_values(*value.tensor());
}

}  // namespace autopar
