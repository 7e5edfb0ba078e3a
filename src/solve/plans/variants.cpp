#include "solve/plans/variants.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::variants;

// Of the marked nodes, those that are connected; each ascending.
std::vector<std::vector<int>> connected(const Network& net, const std::vector<char>& marked) {
  std::vector<std::vector<int>> result;
  std::vector<char> seen(marked.size(), 0);
  for (std::size_t n = 0; n < marked.size(); ++n) {
    if (!marked[n] || seen[n]) continue;
    std::vector<int> nodes = {static_cast<int>(n)};
    seen[n] = 1;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (int e : net.node(nodes[i]).edges) {
        const std::size_t other = at(other_end(net.edge(e), nodes[i]));
        if (!marked[other] || seen[other]) continue;
        seen[other] = 1;
        nodes.push_back(static_cast<int>(other));
      }
    }
    std::sort(nodes.begin(), nodes.end());
    result.push_back(std::move(nodes));
  }
  return result;
}

class Splitting {
 public:
  Splitting(const Network& net, const Fold& like, const std::vector<int>& base,
            const std::vector<std::vector<int>>& pool, double& work)
      : net_(net), like_(like), base_(base), pool_(pool), work_(work) {}

  Parts run() {
    find_varying_classes();
    Parts result = {.base = base_, .cost = value_of(net_, base_), .used = uses_of(net_, base_)};
    for (std::vector<int>& nodes : connected(net_, varying_nodes(varying_))) {
      // Like parts number their like nodes alike.
      std::stable_sort(nodes.begin(), nodes.end(),
                       [&](int a, int b) { return class_of(a) < class_of(b); });
      result.parts.push_back({.nodes = std::move(nodes)});
    }
    find_variants(result.parts);
    std::erase_if(result.parts,
                  [&](Part& part) { return !weigh(part, result) || part.variants.size() < 2; });
    return result;
  }

 private:
  int class_of(int n) const { return like_.class_of[at(n)]; }

  std::vector<char> varying_nodes(const std::vector<char>& classes) const {
    std::vector<char> marked(net_.nodes.size(), 0);
    for (std::size_t n = 0; n < marked.size(); ++n) {
      if (!net_.nodes[n].gone) marked[n] = classes[at(class_of(static_cast<int>(n)))];
    }
    return marked;
  }

  // Connected differences are tried one after the other, the frequent ones first: their nodes and
  // all like them may vary as long as no part gets large.
  void find_varying_classes() {
    std::map<std::vector<int>, int> differences;  // classes; how often
    for (const std::vector<int>& labels : pool_) {
      std::vector<char> marked(labels.size(), 0);
      for (std::size_t n = 0; n < labels.size(); ++n) marked[n] = labels[n] != base_[n];
      work_ += static_cast<double>(net_.nodes.size() + net_.edges.size());
      for (const std::vector<int>& nodes : connected(net_, marked)) {
        std::vector<int> classes;
        for (int n : nodes) classes.push_back(class_of(n));
        sort_unique(classes);
        ++differences[classes];
      }
    }
    std::vector<std::pair<int, std::vector<int>>> order;
    for (const auto& [classes, count] : differences) order.emplace_back(count, classes);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second.size() < b.second.size();
    });
    varying_.assign(like_.first.size(), 0);
    members_.resize(like_.first.size());
    for (std::size_t n = 0; n < net_.nodes.size(); ++n) {
      if (!net_.nodes[n].gone)
        members_[at(class_of(static_cast<int>(n)))].push_back(static_cast<int>(n));
    }
    joined_.resize(net_.nodes.size());
    std::iota(joined_.begin(), joined_.end(), 0);
    size_.assign(net_.nodes.size(), 1);
    for (const auto& [count, classes] : order) try_classes(classes);
  }

  void try_classes(const std::vector<int>& classes) {
    const std::vector<char> varying = varying_;
    const std::vector<int> joined = joined_, size = size_;
    const int most = static_cast<int>(std::max(kSmallPart, net_.nodes.size() / kLargestPart));
    bool small = true;
    for (int c : classes) {
      if (varying_[at(c)]) continue;
      varying_[at(c)] = 1;
      for (int n : members_[at(c)]) {
        for (int e : net_.node(n).edges) {
          const int other = other_end(net_.edge(e), n);
          if (varying_[at(class_of(other))]) small = join(n, other) <= most && small;
          ++work_;
        }
        if (!small) break;
      }
      if (small) continue;
      varying_ = varying;
      joined_ = joined;
      size_ = size;
      return;
    }
  }

  int root(int n) {
    while (joined_[at(n)] != n) n = joined_[at(n)] = joined_[at(joined_[at(n)])];
    return n;
  }

  // How many nodes are joined then.
  int join(int one, int other) {
    one = root(one);
    other = root(other);
    if (one == other) return size_[at(one)];
    joined_[at(std::max(one, other))] = std::min(one, other);
    return size_[at(std::min(one, other))] = size_[at(one)] + size_[at(other)];
  }

  // Labels of like parts are shared.
  void find_variants(std::vector<Part>& parts) const {
    std::map<std::vector<int>, std::vector<std::size_t>> like_parts;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      std::vector<int> classes;
      for (int n : parts[p].nodes) classes.push_back(class_of(n));
      like_parts[classes].push_back(p);
    }
    for (const auto& [classes, members] : like_parts) {
      std::set<Labels> known;
      std::vector<Labels> all;
      // The latest first: they are closest to the best multipliers.
      for (auto labels = pool_.rbegin(); labels != pool_.rend(); ++labels) {
        for (std::size_t p : members) {
          Labels own;
          for (int n : parts[p].nodes) own.push_back((*labels)[at(n)]);
          if (all.size() < kMostVariants && known.insert(own).second) all.push_back(std::move(own));
        }
      }
      for (std::size_t p : members) {
        Labels own;
        for (int n : parts[p].nodes) own.push_back(base_[at(n)]);
        parts[p].variants.push_back({.labels = own});
        for (const Labels& labels : all) {
          if (labels != own) parts[p].variants.push_back({.labels = labels});
        }
      }
    }
  }

  // Costs and uses; what all variants use goes to the rest. False where the base is not possible.
  bool weigh(Part& part, Parts& whole) {
    place_.resize(net_.nodes.size(), -1);
    for (std::size_t i = 0; i < part.nodes.size(); ++i) {
      place_[at(part.nodes[i])] = static_cast<int>(i);
    }
    std::vector<std::vector<Amount>> uses;
    for (Variant& variant : part.variants) uses.push_back(weigh(part, variant));
    for (int n : part.nodes) place_[at(n)] = -1;
    const double base_cost = part.variants[0].cost;
    if (!(base_cost < kInfinity)) return false;
    std::vector<Vector> profiles;
    const std::vector<int> ends = ends_of(uses);
    for (const auto& of_variant : uses) profiles.push_back(profile(of_variant, ends));
    keep_distinct(part, profiles);
    work_ += static_cast<double>(profiles.size() * (ends.size() + part.nodes.size()));
    if (part.variants.size() < 2) return false;
    whole.cost -= base_cost;
    for (std::size_t k = 0; k + 1 < ends.size(); ++k) {
      double least = kInfinity;
      for (const Vector& of_variant : profiles) least = std::min(least, of_variant[k]);
      const double given = profiles[0][k] - least;
      for (int r = ends[k]; r < ends[k + 1] && given > 0; ++r) whole.used[at(r)] -= given;
      for (std::size_t v = 0; v < profiles.size(); ++v) {
        add({ends[k], ends[k + 1], profiles[v][k] - least}, part.variants[v].uses);
      }
    }
    return true;
  }

  // Where uses begin and end, ascending. Most of them begin and end where others do.
  std::vector<int> ends_of(const std::vector<std::vector<Amount>>& uses) {
    is_end_.resize(net_.capacity.size() + 1, 0);
    std::vector<int> ends;
    const auto note = [&](int row) {
      if (std::exchange(is_end_[at(row)], 1) == 0) ends.push_back(row);
    };
    for (const auto& of_variant : uses) {
      for (const Amount& use : of_variant) {
        note(use.begin);
        note(use.end);
      }
    }
    for (int row : ends) is_end_[at(row)] = 0;
    std::sort(ends.begin(), ends.end());
    return ends;
  }

  static void add(const Amount& amount, std::vector<Amount>& list) {
    if (!(amount.bytes > 0)) return;
    if (!list.empty() && list.back().end == amount.begin && list.back().bytes == amount.bytes) {
      list.back().end = amount.end;
    } else {
      list.push_back(amount);
    }
  }

  static Vector profile(const std::vector<Amount>& uses, const std::vector<int>& ends) {
    Vector change(ends.size() + 1, 0.0);
    const auto index = [&](int row) {
      return static_cast<std::size_t>(std::lower_bound(ends.begin(), ends.end(), row) -
                                      ends.begin());
    };
    for (const Amount& use : uses) {
      change[index(use.begin)] += use.bytes;
      change[index(use.end)] -= use.bytes;
    }
    double sum = 0;
    for (double& value : change) value = sum += value;
    return change;
  }

  // Impossible variants go, and those that cost and use no less than one before or behind.
  void keep_distinct(Part& part, std::vector<Vector>& profiles) const {
    std::vector<std::size_t> order;
    for (std::size_t v = 0; v < profiles.size(); ++v) {
      if (part.variants[v].cost < kInfinity) order.push_back(v);
    }
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return part.variants[a].cost < part.variants[b].cost;
    });
    std::vector<std::size_t> kept = {0};
    for (std::size_t v : order) {
      const bool needed = v != 0 && std::none_of(kept.begin(), kept.end(), [&](std::size_t k) {
                            if (part.variants[k].cost > part.variants[v].cost) return false;
                            for (std::size_t i = 0; i < profiles[v].size(); ++i) {
                              if (profiles[k][i] > profiles[v][i]) return false;
                            }
                            return true;
                          });
      if (needed) kept.push_back(v);
    }
    std::vector<Variant> variants;
    std::vector<Vector> left;
    for (std::size_t v : kept) {
      variants.push_back(std::move(part.variants[v]));
      left.push_back(std::move(profiles[v]));
    }
    part.variants = std::move(variants);
    profiles = std::move(left);
  }

  std::vector<Amount> weigh(const Part& part, Variant& variant) {
    std::vector<Amount> uses;
    for (std::size_t i = 0; i < part.nodes.size(); ++i) {
      const int n = part.nodes[i], label = variant.labels[i];
      variant.cost += net_.cost(n)[at(label)];
      for (const RowUse& use : net_.node(n).uses) {
        uses.push_back({use.begin, use.end, net_.algebra.vector(use.bytes)[at(label)]});
      }
      for (int e : net_.node(n).edges) {
        const Edge& edge = net_.edge(e);
        const int other = other_end(edge, n);
        const int inside = place_[at(other)];
        if (inside >= 0 && edge.a != n) continue;  // the other end adds it
        const int its = inside >= 0 ? variant.labels[at(inside)] : base_[at(other)];
        const int a = edge.a == n ? label : its, b = edge.a == n ? its : label;
        variant.cost += edge_value(net_, edge, a, b);
        for (const RowUse& use : edge.uses) {
          uses.push_back({use.begin, use.end, entry_of(net_, edge, use.bytes, a, b)});
        }
      }
    }
    work_ += static_cast<double>(uses.size() + part.nodes.size());
    return uses;
  }

  const Network& net_;
  const Fold& like_;
  const std::vector<int>& base_;
  const std::vector<std::vector<int>>& pool_;
  double& work_;
  std::vector<char> varying_;              // per class
  std::vector<std::vector<int>> members_;  // per class
  std::vector<int> joined_, size_;         // disjoint sets of varying nodes; of roots
  std::vector<int> place_;                 // per node, in the part being weighed
  std::vector<char> is_end_;               // rows, while they are collected
};

}  // namespace

Parts split_into_parts(const Network& net, const Fold& like, const std::vector<int>& base,
                       const std::vector<std::vector<int>>& pool, double& work) {
  return Splitting(net, like, base, pool, work).run();
}

std::vector<int> labels_of(const Parts& parts, const std::vector<int>& variants) {
  std::vector<int> labels = parts.base;
  for (std::size_t p = 0; p < parts.parts.size(); ++p) {
    const Part& part = parts.parts[p];
    const Labels& own = part.variants[at(variants[p])].labels;
    for (std::size_t i = 0; i < own.size(); ++i) labels[at(part.nodes[i])] = own[i];
  }
  return labels;
}

}  // namespace autopar::solver
