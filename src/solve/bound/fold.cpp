#include "solve/bound/fold.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace autopar::solver {
namespace {

constexpr double kMostLeft = 0.5;  // of the nodes; more is not worth the folding

using Signature = std::vector<std::uint64_t>;

// A number per signature, in the order of first appearance. Looked up without a copy.
class Numbers {
 public:
  int of(const Signature& signature) {
    const auto known = known_.find(signature);
    if (known != known_.end()) return known->second;
    return known_.emplace(signature, static_cast<int>(known_.size())).first->second;
  }
  std::size_t size() const { return known_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const Signature& signature) const {
      std::uint64_t hash = 0x9e3779b97f4a7c15;
      for (std::uint64_t part : signature) hash = (hash ^ part ^ (hash >> 29)) * 0xbf58476d1ce4e5b9;
      return static_cast<std::size_t>(hash ^ (hash >> 32));
    }
  };
  std::unordered_map<Signature, int, Hash> known_;
};

std::uint64_t pair_of(int a, int b) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32) |
         static_cast<std::uint32_t>(b);
}

// What is used, not when: layers differ in that.
void add_uses(const std::vector<RowUse>& uses, Signature& signature) {
  for (const RowUse& use : uses) signature.push_back(at(use.bytes));
}

// Per edge, what its a and its b see of it: a number each, as the other end's class is added later.
std::vector<std::array<int, 2>> edge_ends(const Network& net) {
  Numbers numbers;
  std::vector<std::array<int, 2>> ends(net.edges.size());
  Signature signature;
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    const Edge& edge = net.edges[e];
    if (edge.gone) continue;
    for (const bool is_a : {true, false}) {
      const int mine = is_a ? edge.table.map_a : edge.table.map_b;
      const int theirs = is_a ? edge.table.map_b : edge.table.map_a;
      signature = {pair_of(edge.table.core, is_a ? 1 : 0), pair_of(mine, theirs)};
      add_uses(edge.uses, signature);
      ends[e][is_a ? 0 : 1] = numbers.of(signature);
    }
  }
  return ends;
}

// One round: a class is split by what its nodes' edges and neighbours are. Returns the number of
// classes.
std::size_t refine(const Network& net, const std::vector<std::array<int, 2>>& ends,
                   std::vector<int>& class_of) {
  Numbers numbers;
  std::vector<int> refined(class_of.size(), -1);
  Signature signature;
  for (std::size_t i = 0; i < class_of.size(); ++i) {
    if (class_of[i] < 0) continue;
    const int n = static_cast<int>(i);
    signature = {at(class_of[i])};
    for (int e : net.node(n).edges) {
      const Edge& edge = net.edge(e);
      signature.push_back(
          pair_of(ends[at(e)][edge.a == n ? 0 : 1], class_of[at(other_end(edge, n))]));
    }
    std::sort(signature.begin() + 1, signature.end());
    refined[i] = numbers.of(signature);
  }
  class_of = std::move(refined);
  return numbers.size();
}

// The edges of the same tables between the same classes are one.
void fold_edges(const Network& net, Fold& fold) {
  Numbers numbers;
  Signature signature;
  fold.edge_of.assign(net.edges.size(), -1);
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    const Edge& edge = net.edges[e];
    if (edge.gone) continue;
    const int a = fold.class_of[at(edge.a)], b = fold.class_of[at(edge.b)];
    if (a == b) continue;
    signature = {pair_of(a, b), pair_of(edge.table.map_a, edge.table.map_b), at(edge.table.core)};
    add_uses(edge.uses, signature);
    fold.edge_of[e] = numbers.of(signature);
    fold.edges_in.resize(numbers.size(), 0.0);
    ++fold.edges_in[at(fold.edge_of[e])];
  }
}

// Copies what is needed into the folded network, times how often it is there.
class Folding {
 public:
  Folding(const Network& net, const Fold& fold)
      : net_(net), fold_(fold), made_(std::make_unique<Network>()), algebra_(made_->algebra) {
    made_->constant = net.constant;
    made_->impossible = net.impossible;
    made_->capacity = net.capacity;
    made_->multiplier = net.multiplier;
    made_->row_time = net.row_time;
  }

  std::unique_ptr<Network> run() {
    add_nodes();
    for (std::size_t e = 0; e < net_.edges.size(); ++e) {
      const Edge& edge = net_.edges[e];
      if (edge.gone) continue;
      const int folded = fold_.edge_of[e];
      if (folded < 0) {
        add_within(edge);
        continue;
      }
      if (at(folded) == made_->edges.size()) add_edge(edge, fold_.edges_in[at(folded)]);
      for (const RowUse& use : edge.uses) add_use(use, edge_uses_[at(folded)]);
    }
    for (std::size_t c = 0; c < made_->nodes.size(); ++c) {
      for (const auto& [use, count] : node_uses_[c]) {
        const auto& [begin, end, bytes] = use;
        made_->nodes[c].uses.push_back({begin, end, times(net_.algebra.vector(bytes), count)});
      }
    }
    for (std::size_t e = 0; e < made_->edges.size(); ++e) {
      for (const auto& [use, count] : edge_uses_[e]) {
        const auto& [begin, end, bytes] = use;
        made_->edges[e].uses.push_back({begin, end, core_times(bytes, count)});
      }
    }
    return std::move(made_);
  }

 private:
  int times(const Vector& vector, double count) {
    Vector values = vector;
    for (double& value : values) value *= count;
    return algebra_.add_vector(std::move(values));
  }

  int core_times(int id, double count) {
    const auto known = cores_.find({id, count});
    if (known != cores_.end()) return known->second;
    const Core& core = net_.algebra.core(id);
    Vector values = core.values;
    for (double& value : values) value *= count;
    return cores_[{id, count}] = algebra_.add_core(core.rows, core.columns, std::move(values));
  }

  // How often the same is used during the same rows.
  using Uses = std::map<std::tuple<int, int, int>, double>;
  static void add_use(const RowUse& use, Uses& uses) { ++uses[{use.begin, use.end, use.bytes}]; }

  void add_nodes() {
    std::vector<double> copies(fold_.first.size(), 0.0);
    node_uses_.resize(fold_.first.size());
    edge_uses_.resize(fold_.edges_in.size());
    for (std::size_t n = 0; n < fold_.class_of.size(); ++n) {
      const int c = fold_.class_of[n];
      if (c < 0) continue;
      ++copies[at(c)];
      for (const RowUse& use : net_.nodes[n].uses) add_use(use, node_uses_[at(c)]);
    }
    for (std::size_t c = 0; c < fold_.first.size(); ++c) {
      const Node& node = net_.node(fold_.first[c]);
      made_->nodes.push_back({.cost = times(net_.algebra.vector(node.cost), copies[c])});
      made_->origin.push_back(static_cast<int>(c));
      made_->origin_labels.push_back(Labels(at(net_.label_count(fold_.first[c]))));
      Labels& labels = made_->origin_labels.back();
      for (std::size_t l = 0; l < labels.size(); ++l) labels[l] = static_cast<int>(l);
    }
  }

  // Both ends have the same label.
  void add_within(const Edge& edge) {
    Node& node = made_->node(fold_.class_of[at(edge.a)]);
    const Labels& rows = net_.algebra.labels(edge.table.map_a);
    const Labels& columns = net_.algebra.labels(edge.table.map_b);
    const auto diagonal = [&](int core) {
      Vector values;
      for (std::size_t l = 0; l < rows.size(); ++l) {
        values.push_back(net_.algebra.core(core).row(rows[l])[columns[l]]);
      }
      return values;
    };
    Vector cost = algebra_.vector(node.cost);
    const Vector more = diagonal(edge.table.core);
    for (std::size_t l = 0; l < cost.size(); ++l) cost[l] += more[l];
    node.cost = algebra_.add_vector(std::move(cost));
    for (const RowUse& use : edge.uses) {
      node.uses.push_back({use.begin, use.end, algebra_.add_vector(diagonal(use.bytes))});
    }
  }

  void add_edge(const Edge& edge, double count) {
    Edge made = {.a = fold_.class_of[at(edge.a)], .b = fold_.class_of[at(edge.b)], .table = {}};
    made.table = {algebra_.add_labels(net_.algebra.labels(edge.table.map_a)),
                  algebra_.add_labels(net_.algebra.labels(edge.table.map_b)),
                  core_times(edge.table.core, count)};
    const int e = static_cast<int>(made_->edges.size());
    made_->node(made.a).edges.push_back(e);
    made_->node(made.b).edges.push_back(e);
    made_->edges.push_back(std::move(made));
  }

  const Network& net_;
  const Fold& fold_;
  std::unique_ptr<Network> made_;
  Algebra& algebra_;
  std::map<std::pair<int, double>, int> cores_;
  std::vector<Uses> node_uses_, edge_uses_;
};

}  // namespace

Fold fold(const Network& net, int rounds) {
  Fold result;
  Numbers numbers;
  Signature own;
  std::size_t left = 0;
  result.class_of.assign(net.nodes.size(), -1);
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (net.nodes[n].gone) continue;
    ++left;
    own = {at(net.nodes[n].cost)};
    add_uses(net.nodes[n].uses, own);
    result.class_of[n] = numbers.of(own);
  }
  const std::vector<std::array<int, 2>> ends = edge_ends(net);
  std::size_t classes = numbers.size();
  for (int round = 0; round < rounds; ++round) {
    if (static_cast<double>(classes) > kMostLeft * static_cast<double>(left)) return {};
    const std::size_t before = classes;
    result.class_before = result.class_of;
    classes = refine(net, ends, result.class_of);
    if (classes == before) break;
  }
  if (classes == 0 || static_cast<double>(classes) > kMostLeft * static_cast<double>(left)) {
    return {};
  }
  result.first.assign(classes, -1);
  for (std::size_t n = net.nodes.size(); n-- > 0;) {
    if (result.class_of[n] >= 0) result.first[at(result.class_of[n])] = static_cast<int>(n);
  }
  fold_edges(net, result);
  return result;
}

std::unique_ptr<Network> folded_network(const Network& net, const Fold& fold) {
  return Folding(net, fold).run();
}

std::vector<int> unfold(const Fold& fold, const std::vector<int>& labels) {
  std::vector<int> result(fold.class_of.size(), 0);
  for (std::size_t n = 0; n < result.size(); ++n) {
    if (fold.class_of[n] >= 0) result[n] = labels[at(fold.class_of[n])];
  }
  return result;
}

}  // namespace autopar::solver
