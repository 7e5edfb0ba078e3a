#include "search/batch.hpp"

#include <algorithm>

#include "autopar/search.hpp"

namespace autopar {

namespace {

// Marks on values: the dimension that runs along the batch (-1: none), and how surely.
struct Mark {
  int dim = -1;
  bool from_activation = false;
  bool summed = false;  // over the batch, which it does not have any more
};

// A better factor replaces a worse one; the first of equals stays.
struct Choice {
  int factor = -1;
  int rank = 0;  // 3: parallel, by an activation; 2: parallel; 1: reduced over
};

// Of a marked dimension of an input; -1: none that can be split.
int marked_factor(const Rule& rule, std::size_t port, const Mark& mark) {
  if (mark.dim < 0) return -1;
  const auto& dims = rule.inputs[port];
  if (static_cast<std::size_t>(mark.dim) >= dims.size()) return -1;
  const auto& factors = dims[static_cast<std::size_t>(mark.dim)];
  if (factors.empty()) return -1;
  const FactorKind kind = rule.factors[static_cast<std::size_t>(factors.front())].kind;
  return kind == FactorKind::kWhole || kind == FactorKind::kPartial ? -1 : factors.front();
}

void consider(const Rule& rule, std::size_t port, const Mark& mark, Choice& best) {
  const int factor = marked_factor(rule, port, mark);
  if (factor < 0) return;
  const FactorKind kind = rule.factors[static_cast<std::size_t>(factor)].kind;
  const int rank = kind != FactorKind::kParallel ? 1 : mark.from_activation ? 3 : 2;
  if (rank > best.rank) best = {factor, rank};
}

// What passes a sum over the batch on, where it must not become whole before the op.
int handed_on(const Op& op, const Rule& rule, const std::vector<Mark>& marks) {
  if (op.sums != SumsAt::kAfter) return -1;
  for (std::size_t f = 0; f < rule.factors.size(); ++f) {
    if (rule.factors[f].kind != FactorKind::kPartial) continue;
    for (int input : rule.factors[f].partial_inputs) {
      const auto port = static_cast<std::size_t>(input);
      if (op.has_input(port) && marks[op.inputs[port].index()].summed) return static_cast<int>(f);
    }
  }
  return -1;
}

Mark output_mark(const TensorFactors& dims, int factor) {
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (!dims[d].empty() && dims[d].front() == factor) return {static_cast<int>(d), true};
  }
  return {.summed = true};
}

// Follows the batch from dimension 0 of the data inputs through the graph, or what runs along
// another dimension of them: the factors of the ops, and what it marks.
struct Batch {
  std::vector<int> factors;  // by op; -1: none
  std::vector<Mark> marks;   // by value
};

Batch batch_of(const Graph& graph, const GraphRules& rules, int dim = 0) {
  Batch batch{std::vector<int>(graph.ops.size(), -1), std::vector<Mark>(graph.values.size())};
  for (ValueId id : graph.inputs) {
    const Value& value = graph.value(id);
    const bool has_dim = static_cast<int>(value.shape.size()) > dim;
    if (value.kind == ValueKind::kInput && has_dim) batch.marks[id.index()].dim = dim;
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    const Rule& rule = rules.rules[o];
    Choice best;
    for (std::size_t i = 0; i < op.inputs.size() && i < rule.inputs.size(); ++i) {
      if (op.has_input(i)) consider(rule, i, batch.marks[op.inputs[i].index()], best);
    }
    if (best.factor < 0) best.factor = handed_on(op, rule, batch.marks);
    batch.factors[o] = best.factor;
    if (best.factor < 0) continue;
    for (std::size_t j = 0; j < op.outputs.size() && j < rule.outputs.size(); ++j) {
      if (!op.has_output(j)) continue;
      batch.marks[op.outputs[j].index()] = output_mark(rule.outputs[j], best.factor);
    }
  }
  return batch;
}

}  // namespace

std::vector<int> batch_factors(const Graph& graph, const GraphRules& rules, int dim) {
  return batch_of(graph, rules, dim).factors;
}

std::vector<std::vector<int>> factors_along(const Graph& graph, const GraphRules& rules, int dim) {
  const Batch batch = batch_of(graph, rules, dim);
  std::vector<std::vector<int>> factors(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    std::vector<int>& found = factors[o];
    for (std::size_t i = 0; i < op.inputs.size() && i < rules.rules[o].inputs.size(); ++i) {
      if (!op.has_input(i)) continue;
      const int factor = marked_factor(rules.rules[o], i, batch.marks[op.inputs[i].index()]);
      const bool is_new = std::find(found.begin(), found.end(), factor) == found.end();
      if (factor >= 0 && is_new) found.push_back(factor);
    }
  }
  return factors;
}

std::vector<ValueId> carried_data(const Graph& graph, const GraphRules& rules,
                                  const std::string& updates) {
  const Batch batch = batch_of(graph, rules);
  const std::vector<ValueId> updated = updated_inputs(graph, updates);
  std::vector<ValueId> carried;
  for (ValueId id : graph.outputs) {
    const ValueId input = updated[id.index()];
    if (input.valid() && batch.marks[id.index()].from_activation) carried.push_back(input);
  }
  return carried;
}

std::size_t data_parallel_choice(const std::vector<Assignment>& assignments, int factor,
                                 const Mesh& mesh) {
  std::size_t best = assignments.size();
  std::int64_t best_split = 0;
  for (std::size_t c = 0; c < assignments.size(); ++c) {
    std::int64_t split = 1;
    bool pure = true;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      const int f = assignments[c].factor_of_axis[a];
      if (f < 0) continue;
      pure = pure && f == factor;
      split *= mesh.axes[a].size;
    }
    if (pure && split > best_split) {
      best = c;
      best_split = split;
    }
  }
  return best;
}

Spec data_parallel_spec(const Shape& shape, const Mesh& mesh) {
  Spec spec = replicated(shape.size());
  if (shape.empty()) return spec;
  std::int64_t best = 1;
  for (std::size_t subset = 1; subset < (std::size_t{1} << mesh.axes.size()); ++subset) {
    std::int64_t product = 1;
    std::vector<int> axes;
    for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
      if ((subset >> a & 1) == 0) continue;
      product *= mesh.axes[a].size;
      axes.push_back(static_cast<int>(a));
    }
    if (product > best && shape[0] % product == 0) {
      best = product;
      spec.dims[0] = axes;
    }
  }
  return spec;
}

}  // namespace autopar
