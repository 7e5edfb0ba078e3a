#include "search/pins.hpp"

#include <algorithm>
#include <set>

namespace autopar {

namespace {

using SplitCounts = std::vector<std::vector<std::int64_t>>;

std::string to_text(const SplitCounts& counts) {
  std::string text = "[";
  for (std::size_t i = 0; i < counts.size(); ++i) {
    text += (i ? "," : "") + autopar::to_text(counts[i]);
  }
  return text + "]";
}

// Missing trailing inputs (constants such as axes, absent biases) may be left out of a pin, and so
// may the dimensions of such constants.
bool agrees(const SplitCounts& asked, const SplitCounts& have) {
  if (asked.size() > have.size()) return false;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (asked[i].empty() &&
        std::all_of(have[i].begin(), have[i].end(), [](std::int64_t n) { return n == 1; })) {
      continue;
    }
    if (asked[i] != have[i]) return false;
  }
  return true;
}

std::string where(const Op& op) { return "op '" + op.name + "' (" + op.type + ")"; }

// Why split counts cannot be met, for the message: wrong rank, or a dimension that does not divide.
std::string reason(const SplitCounts& asked, const Graph& graph, const Op& op, const Mesh& mesh) {
  if (asked.size() > op.inputs.size()) {
    return "the op has " + std::to_string(op.inputs.size()) + " inputs, the strategy has " +
           std::to_string(asked.size());
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    if (!op.has_input(i) || asked[i].empty()) continue;
    const Shape& shape = graph.value(op.inputs[i]).shape;
    if (asked[i].size() != shape.size()) {
      return "input " + std::to_string(i) + " has shape " + autopar::to_text(shape) +
             ", its strategy " + autopar::to_text(asked[i]) + " has " +
             std::to_string(asked[i].size()) + " dimensions";
    }
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (asked[i][d] < 1 || shape[d] % asked[i][d] != 0) {
        return "dimension " + std::to_string(d) + " of input " + std::to_string(i) + " is " +
               std::to_string(shape[d]) + ", which cannot be cut into " +
               std::to_string(asked[i][d]) + " equal parts";
      }
    }
  }
  return "no assignment of the axes of mesh " + autopar::to_text(mesh) +
         " to the op's dimensions gives these counts";
}

std::string factor_names(const Rule& rule) {
  std::string names;
  for (const Factor& f : rule.factors) {
    if (f.kind == FactorKind::kWhole) continue;
    names += (names.empty() ? "" : ", ") + f.name + "=" + std::to_string(f.size);
  }
  return names.empty() ? "none can be split" : names;
}

Result<Assignment> assignment_of(const std::map<std::string, std::string>& asked, const Op& op,
                                 const Rule& rule, const Mesh& mesh) {
  Assignment assignment{std::vector<int>(mesh.axes.size(), -1)};
  for (const auto& [axis, factor] : asked) {
    const int a = mesh.axis_index(axis);
    if (a < 0) {
      std::string names;
      for (const Axis& x : mesh.axes) names += (names.empty() ? "" : ", ") + x.name;
      return input_error(where(op) + ": mesh " + autopar::to_text(mesh) + " has no axis '" + axis +
                         "'; its axes are " + names);
    }
    if (factor.empty() || factor == "none") continue;
    const int f = rule.factor_index(factor);
    if (f < 0) {
      return input_error(where(op) + ": no factor '" + factor + "'; the rule is \"" +
                         autopar::to_text(rule) + "\" with " + factor_names(rule));
    }
    assignment.factor_of_axis[static_cast<std::size_t>(a)] = f;
  }
  return assignment;
}

std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_name(const std::string& name, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : names) {
    const std::size_t d = distance(name, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

Result<MeshProblem::OpChoices> pinned(const MeshProblem::OpChoices& all, const OpPin& pin,
                                      const Graph& graph, OpId id, const Rule& rule,
                                      const Mesh& mesh) {
  const Op& op = graph.op(id);
  std::optional<Assignment> assignment;
  if (pin.assignment) {
    AUTOPAR_TRY(a, assignment_of(*pin.assignment, op, rule, mesh));
    assignment = a;
  }
  MeshProblem::OpChoices kept;
  for (std::size_t c = 0; c < all.assignments.size(); ++c) {
    if (assignment && !(all.assignments[c] == *assignment)) continue;
    if (pin.in_strategy && !agrees(*pin.in_strategy, strategy_of(all.specs[c].inputs, mesh))) {
      continue;
    }
    if (pin.out_strategy && !agrees(*pin.out_strategy, strategy_of(all.specs[c].outputs, mesh))) {
      continue;
    }
    kept.assignments.push_back(all.assignments[c]);
    kept.specs.push_back(all.specs[c]);
  }
  if (!kept.assignments.empty()) return kept;
  if (pin.assignment && (pin.in_strategy || pin.out_strategy)) {
    const auto specs = specs_of(rule, *assignment, mesh);
    if (specs) {
      return input_error(where(op) + ": the assignment {" + to_text(*assignment, rule, mesh) +
                         "} means in_strategy " + to_text(strategy_of(specs->inputs, mesh)) +
                         " and out_strategy " + to_text(strategy_of(specs->outputs, mesh)) +
                         ", which is not what the pin says beside it; give one of them only");
    }
  }
  if (pin.assignment) {
    return input_error(where(op) + ": assignment {" + to_text(*assignment, rule, mesh) +
                       "} is not possible on mesh " + autopar::to_text(mesh) + "; the rule is \"" +
                       autopar::to_text(rule) + "\" with " + factor_names(rule) +
                       " (every factor must be divisible by the axes that split it)");
  }
  const SplitCounts none;
  const SplitCounts& asked = pin.in_strategy ? *pin.in_strategy : none;
  std::string text = where(op) + ":";
  if (pin.in_strategy) text += " in_strategy " + to_text(*pin.in_strategy);
  if (pin.out_strategy) text += " out_strategy " + to_text(*pin.out_strategy);
  return input_error(text + " cannot be kept: " + reason(asked, graph, op, mesh) +
                     "; the rule is \"" + autopar::to_text(rule) + "\" with " + factor_names(rule));
}

Status check_names(const Pins& pins, const Graph& graph) {
  if (pins.ops.empty() && pins.values.empty()) return Ok{};
  std::set<std::string> ops, values;
  for (const Op& op : graph.ops) ops.insert(op.name);
  for (const Value& value : graph.values) values.insert(value.name);
  for (const auto& [name, pin] : pins.ops) {
    if (ops.count(name)) continue;
    const std::string near = nearest_name(name, {ops.begin(), ops.end()});
    return input_error("pin of op '" + name + "': the model has no such op" +
                       (near.empty() ? "" : "; did you mean '" + near + "'?") +
                       " (`autopar show MODEL` lists the names)");
  }
  for (const auto& [name, pin] : pins.values) {
    if (values.count(name)) continue;
    const std::string near = nearest_name(name, {values.begin(), values.end()});
    return input_error("pin of tensor '" + name + "': the model has no such tensor" +
                       (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  return Ok{};
}

}  // namespace autopar
