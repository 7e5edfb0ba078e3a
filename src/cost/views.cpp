#include "cost/views.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "autopar/memory.hpp"
#include "autopar/ops.hpp"

namespace autopar {
namespace {

using Dim = std::size_t;

bool is_transpose(const Op& op) {
  return op.type == "Transpose" && op.domain.empty() && op.has_input(0) && op.has_output(0);
}

// Output dimension d is input dimension permutation[d].
std::vector<Dim> permutation_of(const Graph& graph, const Op& op) {
  const Dim rank = graph.value(op.inputs[0]).shape.size();
  std::vector<Dim> permutation(rank);
  std::iota(permutation.rbegin(), permutation.rend(), Dim{0});
  const std::vector<std::int64_t> given = op.ints_attribute("perm");
  for (Dim d = 0; d < rank && given.size() == rank; ++d)
    permutation[d] = static_cast<Dim>(given[d]);
  return permutation;
}

// A collective reads its first input. Others only say what comes before it.
bool is_read(const Op& op, int port) { return !is_collective(op) || port == 0; }

// Port 0 or 1 of a product of matrices.
bool is_product(const Op& op) {
  return op.domain.empty() && (op.type == "MatMul" || op.type == "Gemm");
}

class Layouts {
 public:
  explicit Layouts(const Graph& graph)
      : graph_(graph), uses_(uses_of(graph)), is_output_(graph.values.size(), 0) {
    for (const ValueId id : graph.outputs) is_output_[id.index()] = 1;
    for (const Value& value : graph.values) {
      contiguous_.push_back(value.shape.empty() ? 0 : value.shape.size() - 1);
    }
  }

  FreeTransposes run() {
    FreeTransposes found{std::vector<char>(graph_.ops.size(), 0),
                         std::vector<std::uint64_t>(graph_.ops.size(), 0)};
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (is_transpose(op)) {
        found.free[o] = is_free(op);
      } else if (is_product(op)) {
        for (std::size_t port = 0; port < 2; ++port) {
          const ValueId id = op.inputs[port];
          if (rank(id) >= 2 && contiguous_[id.index()] + 2 == rank(id)) {
            found.transposed_inputs[o] |= std::uint64_t{1} << port;
          }
        }
      } else if (const auto through = carried(op)) {
        const ValueId from = op.inputs[*through];
        if (contiguous_[from.index()] + 1 == rank(from)) continue;
        if (const auto dim = dim_behind(op, contiguous_[from.index()])) {
          contiguous_[op.outputs[0].index()] = *dim;
        }
      }
    }
    return found;
  }

 private:
  static constexpr int kDepth = 8;  // ops between a Transpose and a product

  Dim rank(ValueId id) const { return graph_.value(id).shape.size(); }
  bool is_of_matrix(ValueId id, Dim dim) const { return rank(id) >= 2 && dim + 2 >= rank(id); }

  // The input whose layout the op hands on to its one output.
  std::optional<std::size_t> carried(const Op& op) const {
    if (op.outputs.size() != 1 || !op.has_output(0) || !op.has_input(0)) return std::nullopt;
    if (is_collective(op) || is_view(op)) return 0;
    if (!is_on_elements(op)) return std::nullopt;
    std::optional<std::size_t> one;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (!op.has_input(i) || element_count(graph_.value(op.inputs[i]).shape) == 1) continue;
      if (one) return std::nullopt;
      one = i;
    }
    const bool same =
        one && graph_.value(op.inputs[*one]).shape == graph_.value(op.outputs[0]).shape;
    return same ? one : std::nullopt;
  }

  // Where the contiguous dimension of what the op carries is in its output, and the other way.
  std::optional<Dim> dim_across(ValueId from, ValueId to, Dim dim) const {
    const Shape &a = graph_.value(from).shape, &b = graph_.value(to).shape;
    if (a == b) return dim;
    if (!is_of_matrix(from, dim) || b.size() < 2) return std::nullopt;
    if (!std::equal(a.end() - 2, a.end(), b.end() - 2)) return std::nullopt;
    return dim + b.size() - a.size();
  }
  std::optional<Dim> dim_behind(const Op& op, Dim dim) const {
    const ValueId from = op.inputs[*carried(op)], to = op.outputs[0];
    // Collectives may change any dimension, and move blocks of whatever layout.
    if (is_collective(op)) {
      return rank(from) == rank(to) ? std::optional<Dim>(dim) : std::nullopt;
    }
    return dim_across(from, to, dim);
  }

  // Whether all that reads the value are products, which read it with `dim` contiguous.
  bool is_read_so(ValueId id, Dim dim, int depth = 0) const {
    if (is_output_[id.index()] || depth > kDepth) return false;
    const auto& uses = uses_[id.index()];
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      const Op& op = graph_.op(use.op);
      if (!is_read(op, use.port)) return true;
      if (is_product(op)) return use.port < 2 && is_of_matrix(id, dim);
      if (is_transpose(op)) return is_read_so(op.outputs[0], dim_after(op, dim), depth + 1);
      const auto through = carried(op);
      if (!through || static_cast<int>(*through) != use.port) return false;
      const auto behind = dim_behind(op, dim);
      return behind && is_read_so(op.outputs[0], *behind, depth + 1);
    });
  }

  // Whether a product makes the value and can write it with `dim` contiguous, and all that reads it
  // are `reader` and products.
  bool is_written_so(ValueId id, Dim dim, const Op& reader, int depth = 0) const {
    const OpId maker = graph_.value(id).producer;
    if (!maker.valid() || is_output_[id.index()] || !is_of_matrix(id, dim) || depth > kDepth) {
      return false;
    }
    for (const Use& use : uses_[id.index()]) {
      const Op& other = graph_.op(use.op);
      const bool reads = is_read(other, use.port);
      if (!reads || &other == &reader || (is_product(other) && use.port < 2)) continue;
      return false;
    }
    const Op& op = graph_.op(maker);
    if (is_product(op)) return true;
    const auto through = carried(op);
    if (!through) return false;
    const ValueId from = op.inputs[*through];
    const auto before = is_collective(op) ? std::optional<Dim>(dim) : dim_across(id, from, dim);
    return before && rank(from) >= 2 && is_written_so(from, *before, op, depth + 1);
  }

  Dim dim_after(const Op& op, Dim dim) const {
    const std::vector<Dim> permutation = permutation_of(graph_, op);
    const auto found = std::find(permutation.begin(), permutation.end(), dim);
    return static_cast<Dim>(found - permutation.begin());
  }

  bool is_free(const Op& op) {
    const ValueId from = op.inputs[0], to = op.outputs[0];
    if (graph_.value(from).kind == ValueKind::kConstant || rank(from) < 2) return false;
    const Dim dim = contiguous_[from.index()];
    if (is_read_so(to, dim_after(op, dim))) {
      contiguous_[to.index()] = dim_after(op, dim);
      return true;
    }
    if (dim + 1 != rank(from)) return false;
    return is_written_so(from, permutation_of(graph_, op).back(), op);
  }

  const Graph& graph_;
  std::vector<std::vector<Use>> uses_;
  std::vector<char> is_output_;
  std::vector<Dim> contiguous_;  // per value; the last, but for what is a view of another layout
};

// What lies between an input and its next value.
class CacheChains {
 public:
  CacheChains(const Graph& graph, CacheWrites& found)
      : graph_(graph), uses_(uses_of(graph)), found_(found) {}

  void follow(ValueId next, ValueId input) {
    std::vector<std::size_t> chain;
    std::vector<Dim> order;  // of the input's dimensions; empty: its own
    bool writes = false;
    ValueId id = next;
    while (!(id == input)) {
      const OpId maker = graph_.value(id).producer;
      if (!maker.valid()) return;
      const Op& op = graph_.op(maker);
      const bool write = is_write(op);
      if (!write && !is_transpose(op) && !is_view(op)) return;
      if (!op.has_input(0) || !(op.outputs[0] == id)) return;
      if (is_transpose(op) && !turn(order, permutation_of(graph_, op))) return;
      // A matrix in another order is not split into other dimensions in place.
      if (is_view(op) && !order.empty()) return;
      writes = writes || write;
      chain.push_back(maker.index());
      id = op.inputs[0];
    }
    if (!writes || !order.empty()) return;
    for (std::size_t c = 0; c < chain.size(); ++c) {
      const Op& op = graph_.ops[chain[c]];
      if (is_write(op) && last_reader(op.inputs[0], chain[c]) > chain[c]) return;
    }
    // What is written later overwrites also what earlier ops of the chain stand for.
    const auto last = std::find_if(chain.begin(), chain.end(),
                                   [&](std::size_t o) { return is_write(graph_.ops[o]); });
    for (const std::size_t o : chain) {
      if (o >= *last) continue;
      if (last_reader(graph_.ops[o].inputs[0], o) > *last) return;
    }
    for (const std::size_t o : chain) {
      (is_write(graph_.ops[o]) ? found_.in_place : found_.view)[o] = 1;
    }
  }

 private:
  static bool is_write(const Op& op) {
    static const std::set<std::string> writes = {"ScatterND", "ScatterElements", "TensorScatter"};
    return op.domain.empty() && writes.count(op.type) != 0;
  }

  // Composes a Transpose, met from its output on, with those behind it.
  static bool turn(std::vector<Dim>& order, const std::vector<Dim>& permutation) {
    if (order.empty()) {
      order = permutation;
    } else {
      if (order.size() != permutation.size()) return false;
      for (Dim& dim : order) dim = permutation[dim];
    }
    bool same = true;
    for (Dim d = 0; d < order.size(); ++d) same = same && order[d] == d;
    if (same) order.clear();
    return true;
  }

  // The last op but `op` that reads the value or a view of it.
  std::size_t last_reader(ValueId id, std::size_t op, int depth = 0) const {
    constexpr int kDepth = 8;
    std::size_t last = 0;
    for (const Use& use : uses_[id.index()]) {
      if (use.op.index() == op || !is_read(graph_.op(use.op), use.port)) continue;
      last = std::max(last, use.op.index());
      const Op& reader = graph_.op(use.op);
      if (!is_view(reader) && !is_transpose(reader)) continue;
      if (depth > kDepth) return graph_.ops.size();
      for (const ValueId made : reader.outputs) {
        if (made.valid()) last = std::max(last, last_reader(made, op, depth + 1));
      }
    }
    return last;
  }

  const Graph& graph_;
  std::vector<std::vector<Use>> uses_;
  CacheWrites& found_;
};

}  // namespace

FreeTransposes free_transposes(const Graph& graph) { return Layouts(graph).run(); }

CacheWrites cache_writes(const Graph& graph, const std::string& updates) {
  CacheWrites found{std::vector<char>(graph.ops.size(), 0), std::vector<char>(graph.ops.size(), 0)};
  const std::vector<ValueId> updated = updated_inputs(graph, updates);
  CacheChains chains(graph, found);
  for (const ValueId id : graph.outputs) {
    if (updated[id.index()].valid()) chains.follow(id, updated[id.index()]);
  }
  return found;
}

}  // namespace autopar
