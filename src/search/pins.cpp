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

// The rows that a part of the dimension needs of a neighbour.
std::int64_t halo_of(const Rule& rule, std::size_t input, std::size_t d) {
  const std::vector<int>& factors = rule.inputs[input][d];
  if (factors.empty()) return 0;
  const Factor& factor = rule.factors[static_cast<std::size_t>(factors[0])];
  return std::max(factor.halo_before, factor.halo_after);
}

// Why split counts cannot be met, for the message: wrong rank, a dimension that does not divide, or
// parts thinner than their halos.
std::string reason(const SplitCounts& asked, const Graph& graph, const Op& op, const Rule& rule,
                   const Mesh& mesh) {
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
      const std::int64_t rows = shape[d] / asked[i][d], halo = halo_of(rule, i, d);
      if (asked[i][d] > 1 && rows < halo) {
        return "a part of dimension " + std::to_string(d) + " of input " + std::to_string(i) +
               " has " + std::to_string(rows) + " of " + std::to_string(shape[d]) +
               " rows, the windows of the part beside it reach over " + std::to_string(halo) +
               "; take fewer parts";
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

// Splits the dimensions of `spec` further by the partial axes from `next` on, until it has these
// split counts. Depth first: (dimensions + 1)^(partial axes) at most.
bool scatter(Spec& spec, const AxisList& partial, std::size_t next,
             const std::vector<std::int64_t>& counts, const Mesh& mesh) {
  if (split_counts(spec, mesh) == counts) return true;
  if (next == partial.size()) return false;
  for (AxisList& dim : spec.dims) {
    const AxisList before = dim;
    dim.push_back(partial[next]);
    std::sort(dim.begin(), dim.end());
    if (scatter(spec, partial, next + 1, counts, mesh)) return true;
    dim = before;
  }
  return scatter(spec, partial, next + 1, counts, mesh);
}

// What scattering partial sums makes of a spec, so that it has these split counts, the others
// reduced; as it is where it has them already.
std::optional<Spec> scattered(const Spec& spec, const std::vector<std::int64_t>& counts,
                              const Mesh& mesh) {
  if (split_counts(spec, mesh) == counts) return spec;
  Spec found = spec;
  found.partial.clear();
  found.reduction = Reduction::kSum;
  if (counts.size() != spec.dims.size() || !scatter(found, spec.partial, 0, counts, mesh)) {
    return {};
  }
  return found;
}

// For all outputs of an op; nothing where no partial sum gives one of them.
std::optional<std::vector<Spec>> scattered_outputs(const OpSpecs& specs, const SplitCounts& counts,
                                                   const Op& op, const Graph& graph,
                                                   const Mesh& mesh) {
  if (counts.size() > op.outputs.size()) return {};
  std::vector<Spec> found;
  for (std::size_t j = 0; j < counts.size(); ++j) {
    if (!op.has_output(j)) return {};
    auto spec = scattered(specs.outputs[j], counts[j], mesh);
    if (!spec || !verify(*spec, graph.value(op.outputs[j]).shape, mesh)) return {};
    found.push_back(std::move(*spec));
  }
  return found;
}

class Scatterer {
 public:
  Scatterer(const SearchRequest& request, CostModel& model)
      : request_(request), graph_(request.graph), model_(model), mesh_(model.mesh()) {
    kept_.pins = request.pins;
  }

  KeptPins run() {
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const auto pin = request_.pins.ops.find(graph_.ops[o].name);
      if (pin == request_.pins.ops.end() || !pin->second.out_strategy) continue;
      if (readers_.empty()) readers_ = readers_of(graph_);
      scatter_outputs(OpId(static_cast<std::int64_t>(o)), pin->second);
    }
    return std::move(kept_);
  }

 private:
  // Pins one op and its outputs in place of its counts, if that is how they can be kept.
  void scatter_outputs(OpId id, OpPin pin) {
    const Op& op = graph_.op(id);
    const Rule& rule = request_.rules.rules[id.index()];
    const SplitCounts counts = *pin.out_strategy;
    MeshProblem::OpChoices all;
    for (Assignment& a : model_.choices(op, rule, true)) {
      all.specs.push_back(*specs_of(rule, a, mesh_));
      all.assignments.push_back(std::move(a));
    }
    if (pinned(all, pin, graph_, id, rule, mesh_)) return;
    pin.out_strategy.reset();
    const auto kept = pinned(all, pin, graph_, id, rule, mesh_);
    for (std::size_t c = 0; kept && c < kept->assignments.size(); ++c) {
      const auto found = scattered_outputs(kept->specs[c], counts, op, graph_, mesh_);
      if (!found) continue;
      pin_assignment(op, rule, kept->assignments[c]);
      for (std::size_t j = 0; j < found->size(); ++j) {
        if ((*found)[j] != kept->specs[c].outputs[j]) pin_output(op.outputs[j], (*found)[j]);
      }
      return;
    }
  }

  void pin_assignment(const Op& op, const Rule& rule, const Assignment& assignment) {
    OpPin& pin = kept_.pins.ops[op.name];
    pin = {};
    pin.assignment.emplace();
    for (std::size_t a = 0; a < mesh_.axes.size(); ++a) {
      const int factor = assignment.factor_of_axis[a];
      if (factor < 0) continue;
      (*pin.assignment)[mesh_.axes[a].name] = rule.factors[static_cast<std::size_t>(factor)].name;
    }
  }

  void pin_output(ValueId id, const Spec& spec) {
    const Readers& readers = readers_[id.index()];
    if (readers.uses.size() == 1 && !readers.is_output) {
      kept_.reads.push_back(
          {readers.uses[0].op, static_cast<std::size_t>(readers.uses[0].port), spec});
      return;
    }
    std::string& hub = kept_.pins.values[graph_.value(id).name].hub_spec;
    if (hub.empty()) hub = to_text(spec, mesh_);
  }

  const SearchRequest& request_;
  const Graph& graph_;
  CostModel& model_;
  const Mesh& mesh_;
  std::vector<Readers> readers_;
  KeptPins kept_;
};

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
                       "smaller than its halo)");
  }
  const SplitCounts none;
  const SplitCounts& asked = pin.in_strategy ? *pin.in_strategy : none;
  std::string text = where(op) + ":";
  if (pin.in_strategy) text += " in_strategy " + to_text(*pin.in_strategy);
  if (pin.out_strategy) text += " out_strategy " + to_text(*pin.out_strategy);
  return input_error(text + " cannot be kept: " + reason(asked, graph, op, rule, mesh) +
                     "; the rule is \"" + autopar::to_text(rule) + "\" with " + factor_names(rule));
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

KeptPins with_scattered_outputs(const SearchRequest& request, CostModel& model) {
  return Scatterer(request, model).run();
}

Result<MeshProblem::OpChoices> reading(const MeshProblem::OpChoices& all,
                                       const std::vector<FixedRead>& reads, const Graph& graph,
                                       OpId id, const Mesh& mesh) {
  MeshProblem::OpChoices kept = all;
  for (const FixedRead& read : reads) {
    if (read.op != id) continue;
    MeshProblem::OpChoices fewer;
    for (std::size_t c = 0; c < kept.assignments.size(); ++c) {
      if (kept.specs[c].inputs[read.port] != read.spec) continue;
      fewer.assignments.push_back(kept.assignments[c]);
      fewer.specs.push_back(kept.specs[c]);
    }
    kept = std::move(fewer);
    if (!kept.assignments.empty()) continue;
    const Op& op = graph.op(id);
    const Value& value = graph.value(op.inputs[read.port]);
    return input_error(where(graph.op(value.producer)) + ": its out_strategy gives tensor '" +
                       value.name + "' as " + to_text(read.spec, mesh) +
                       ", which its only reader, " + where(op) + ", cannot take as it is" +
                       (all.assignments.size() > 1 ? "" : " with what is pinned"));
  }
  return kept;
}

bool is_fixed_reader(const std::vector<FixedRead>& reads, OpId op) {
  return std::any_of(reads.begin(), reads.end(), [&](const FixedRead& r) { return r.op == op; });
}

}  // namespace autopar
