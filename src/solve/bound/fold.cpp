#include "solve/bound/fold.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::fold;

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

// What counts of uses.
class Uses {
 public:
  Uses(const Network& net, const std::vector<int>* rows) : timed_(rows != nullptr) {
    if (!timed_) return;
    // How many of the rows that count are before each.
    before_.assign(net.capacity.size() + 1, 0);
    for (int row : *rows) ++before_[at(row) + 1];
    for (std::size_t r = 0; r + 1 < before_.size(); ++r) before_[r + 1] += before_[r];
  }

  void add(const std::vector<RowUse>& uses, Signature& signature) const {
    for (const RowUse& use : uses) {
      if (!timed_) {
        signature.push_back(at(use.bytes));
      } else if (before_[at(use.begin)] < before_[at(use.end)]) {
        signature.push_back(at(use.bytes));
        signature.push_back(pair_of(before_[at(use.begin)], before_[at(use.end)]));
      }
    }
  }

 private:
  bool timed_;
  std::vector<int> before_;
};

// Per edge, what its a and its b see of it: a number each, as the other end's class is added later.
std::vector<std::array<int, 2>> edge_ends(const Network& net, const Uses& uses) {
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
      uses.add(edge.uses, signature);
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
void fold_edges(const Network& net, const Uses& uses, Fold& fold) {
  Numbers numbers;
  Signature signature;
  fold.edge_of.assign(net.edges.size(), -1);
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    const Edge& edge = net.edges[e];
    if (edge.gone) continue;
    const int a = fold.class_of[at(edge.a)], b = fold.class_of[at(edge.b)];
    if (a == b) continue;
    signature = {pair_of(a, b), pair_of(edge.table.map_a, edge.table.map_b), at(edge.table.core)};
    uses.add(edge.uses, signature);
    fold.edge_of[e] = numbers.of(signature);
    fold.edges_in.resize(numbers.size(), 0.0);
    ++fold.edges_in[at(fold.edge_of[e])];
  }
}

}  // namespace

Fold fold(const Network& net, int rounds, const std::vector<int>* rows) {
  const Uses uses(net, rows);
  Fold result;
  Numbers numbers;
  Signature own;
  std::size_t left = 0;
  result.class_of.assign(net.nodes.size(), -1);
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (net.nodes[n].gone) continue;
    ++left;
    own = {at(net.nodes[n].cost)};
    uses.add(net.nodes[n].uses, own);
    result.class_of[n] = numbers.of(own);
  }
  const std::vector<std::array<int, 2>> ends = edge_ends(net, uses);
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
  fold_edges(net, uses, result);
  return result;
}

Fold each_alone(const Network& net) {
  Fold result;
  result.alone = true;
  result.class_of.assign(net.nodes.size(), -1);
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    result.first.push_back(static_cast<int>(n));
    if (!net.nodes[n].gone) result.class_of[n] = static_cast<int>(n);
  }
  result.class_before = result.class_of;
  result.edge_of.assign(net.edges.size(), -1);
  for (std::size_t e = 0; e < net.edges.size(); ++e) {
    if (net.edges[e].gone) continue;
    result.edge_of[e] = static_cast<int>(result.edges_in.size());
    result.edges_in.push_back(1.0);
  }
  return result;
}

Fold fold_or_alone(const Network& net, int rounds) {
  Fold like = fold(net, rounds);
  return like.first.empty() ? each_alone(net) : like;
}

std::vector<int> unfold(const Fold& fold, const std::vector<int>& labels) {
  std::vector<int> result(fold.class_of.size(), 0);
  for (std::size_t n = 0; n < result.size(); ++n) {
    if (fold.class_of[n] >= 0) result[n] = labels[at(fold.class_of[n])];
  }
  return result;
}

std::vector<Labels> met_labels(const Fold& fold, const std::vector<std::vector<int>>& labellings) {
  std::vector<Labels> of_class(fold.first.size());
  std::vector<Labels> result(fold.class_of.size());
  for (const std::vector<int>& labels : labellings) {
    for (std::size_t n = 0; n < labels.size(); ++n) {
      if (fold.class_of[n] >= 0) of_class[at(fold.class_of[n])].push_back(labels[n]);
    }
  }
  for (Labels& labels : of_class) sort_unique(labels);
  for (std::size_t n = 0; n < result.size(); ++n) {
    if (fold.class_of[n] >= 0) result[n] = of_class[at(fold.class_of[n])];
  }
  return result;
}

}  // namespace autopar::solver
