#include "search/pins.hpp"

#include <algorithm>
#include <set>

#include "search/counts.hpp"
#include "support/counted.hpp"

namespace autopar {

namespace {

std::string where(const Op& op) { return "op '" + op.name + "' (" + op.type + ")"; }

std::string factor_names(const Rule& rule) {
  std::string names;
  for (const Factor& f : rule.factors) {
    if (f.kind == FactorKind::kWhole) continue;
    const bool moves = f.kind == FactorKind::kMoving;
    names += (names.empty() ? "" : ", ") + f.name;
    names += moves ? " (moving)" : "=" + std::to_string(f.size);
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

// "[{a},{}], [{},{a}] or 3 others".
std::string listed(const std::vector<Spec>& specs, const Mesh& mesh) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(specs.size(), kMost); ++i) {
    const bool last = i + 1 == specs.size();
    text += (i == 0 ? "" : last ? " or " : ", ") + to_text(specs[i], mesh);
  }
  if (specs.size() <= kMost) return text;
  const std::size_t others = specs.size() - kMost;
  return text + " or in " + counted(others, "other way");
}

const Spec& at_port(const OpSpecs& specs, const PortPin& pin) {
  return pin.is_input ? specs.inputs[pin.port] : specs.outputs[pin.port];
}

Error not_kept(const PortPin& pin, const MeshProblem::OpChoices& choices, bool op_is_pinned,
               const Graph& graph, const Op& op, const Mesh& mesh) {
  std::vector<Spec> possible;
  for (const OpSpecs& specs : choices.specs) {
    const Spec& spec = at_port(specs, pin);
    if (std::find(possible.begin(), possible.end(), spec) == possible.end()) {
      possible.push_back(spec);
    }
  }
  const ValueId value = pin.is_input ? op.inputs[pin.port] : op.outputs[pin.port];
  return input_error(pin.pin.wish + " cannot be kept: " + where(op) +
                     (op_is_pinned ? ", as it is pinned," : "") +
                     (pin.is_input ? " takes '" : " leaves '") + graph.value(value).name + "' as " +
                     listed(possible, mesh));
}

MeshProblem::OpChoices at_port_only(const MeshProblem::OpChoices& choices, const PortPin& pin) {
  MeshProblem::OpChoices kept;
  for (std::size_t c = 0; c < choices.assignments.size(); ++c) {
    if (!pin.pin.keeps(at_port(choices.specs[c], pin))) continue;
    kept.assignments.push_back(choices.assignments[c]);
    kept.specs.push_back(choices.specs[c]);
  }
  return kept;
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
                       " (every factor must be divisible by the axes that split it, no part "
                       "smaller than its halo, and factors that move together each split by one "
                       "axis, all of one size)");
  }
  return input_error(counts_text(op, pin) +
                     " cannot be kept: " + why_not(pin, graph, op, rule, mesh));
}

bool SpecPin::keeps(const Spec& spec) const {
  return std::any_of(specs.begin(), specs.end(), [&](const Spec& wanted) {
    return wanted == spec || (any_sums && wanted.dims == spec.dims);
  });
}

Result<MeshProblem::OpChoices> left_by(const KeptPins& pins, MeshProblem::OpChoices choices,
                                       const Graph& graph, OpId id, const Rule& rule,
                                       const Mesh& mesh) {
  const Op& op = graph.op(id);
  const auto pin = pins.ops.find(op.name);
  const bool is_pinned = pin != pins.ops.end();
  if (is_pinned) {
    AUTOPAR_TRY(kept, pinned(choices, pin->second, graph, id, rule, mesh));
    choices = std::move(kept);
  }
  const auto ports = pins.ports.find(id);
  if (ports == pins.ports.end()) return choices;
  for (const PortPin& port : ports->second) {
    MeshProblem::OpChoices kept = at_port_only(choices, port);
    if (kept.assignments.empty()) return not_kept(port, choices, is_pinned, graph, op, mesh);
    choices = std::move(kept);
  }
  return choices;
}

std::string picked_from_a_part(const Op& op, const Mesh& mesh) {
  return where(op) + " has too many assignments on mesh " + autopar::to_text(mesh) +
         " for a pin to pick from: the cost model offered those that split each dimension over "
         "neighbouring axes only";
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
                       " (`autopar show MODEL --ops` lists the names)");
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
