#include "search/solver/repair.hpp"

#include <algorithm>
#include <utility>

namespace autopar::solver {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

class Repair {
 public:
  Repair(const Network& net, std::vector<int>& labels)
      : net_(net), labels_(labels), uses_(uses_of(net, labels)) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      if (net.nodes[n].gone || net.label_count(static_cast<int>(n)) == 1) continue;
      nodes_.push_back(static_cast<int>(n));
    }
  }

  bool run() {
    for (std::size_t moves = 0; moves < 4 * nodes_.size(); ++moves) {
      if (overflow() <= 0) break;
      if (!shrink()) return false;
    }
    if (overflow() > 0) return false;
    bool changed = true;
    for (int sweep = 0; sweep < 5 && changed; ++sweep) changed = improve();
    return true;
  }

 private:
  struct Change {
    int begin, end;
    double bytes;
  };

  double overflow() const {
    double sum = 0;
    for (std::size_t r = 0; r < uses_.size(); ++r) {
      sum += std::max(0.0, uses_[r] - net_.capacity[r]);
    }
    return sum;
  }

  // What the move of node n to `label` does to the cost (without the rows' prices) and the rows.
  double consider(int n, int label) {
    changes_.clear();
    const Node& node = net_.node(n);
    const int present = labels_[at(n)];
    double cost = net_.cost(n)[at(label)] - net_.cost(n)[at(present)];
    for (const RowUse& use : node.uses) {
      const Vector& bytes = net_.algebra.vector(use.bytes);
      add({use.begin, use.end, bytes[at(label)] - bytes[at(present)]});
    }
    for (int e : node.edges) {
      const Edge& edge = net_.edge(e);
      const auto pair = [&](int core, int mine) {
        const int a = edge.a == n ? mine : labels_[at(edge.a)];
        const int b = edge.b == n ? mine : labels_[at(edge.b)];
        const int row = net_.algebra.labels(edge.table.map_a)[at(a)];
        return net_.algebra.core(core).row(row)[net_.algebra.labels(edge.table.map_b)[at(b)]];
      };
      const double after = pair(edge.table.core, label), now = pair(edge.table.core, present);
      cost += now == kInfinity ? (after == kInfinity ? 0 : -kInfinity) : after - now;
      for (const RowUse& use : edge.uses) {
        add({use.begin, use.end, pair(use.bytes, label) - pair(use.bytes, present)});
      }
    }
    for (const Change& change : changes_) {
      for (int r = change.begin; r < change.end && cost < kInfinity; ++r) {
        cost -= net_.multiplier[at(r)] * change.bytes;
      }
    }
    return cost;
  }

  void add(Change change) {
    if (change.bytes != 0 && change.begin < change.end) changes_.push_back(change);
  }

  // How much the overflow grows by the move considered last.
  double overflow_change() {
    double difference = 0;
    touched_.clear();
    for (const Change& change : changes_) touched_.emplace_back(change.begin, change.end);
    std::sort(touched_.begin(), touched_.end());
    for (int pass : {0, 1}) {
      int from = 0;
      for (const auto& [begin, end] : touched_) {
        for (int r = std::max(from, begin); r < end; ++r) {
          const double over = std::max(0.0, uses_[at(r)] - net_.capacity[at(r)]);
          difference += pass == 0 ? -over : over;
        }
        from = std::max(from, end);
      }
      for (const Change& change : changes_) apply(change, pass == 0 ? 1 : -1);
    }
    return difference;
  }

  void apply(const Change& change, double sign) {
    for (int r = change.begin; r < change.end; ++r) uses_[at(r)] += sign * change.bytes;
  }

  void move(int n, int label) {
    consider(n, label);
    for (const Change& change : changes_) apply(change, 1);
    labels_[at(n)] = label;
  }

  // The move that takes away most overflow for what it costs.
  bool shrink() {
    int best_node = -1, best_label = -1;
    double best = -kInfinity;
    for (int n : nodes_) {
      for (int l = 0; l < net_.label_count(n); ++l) {
        if (l == labels_[at(n)]) continue;
        const double cost = consider(n, l);
        if (cost == kInfinity || changes_.empty()) continue;
        const double less = -overflow_change();
        if (less <= 0) continue;
        const double worth = cost > 0 ? less / cost : kInfinity;
        if (worth > best || best_node < 0) {
          best = worth;
          best_node = n;
          best_label = l;
        }
      }
    }
    if (best_node < 0) return false;
    move(best_node, best_label);
    return true;
  }

  bool fits() {
    for (const Change& change : changes_) apply(change, 1);
    bool result = true;
    for (const Change& change : changes_) {
      for (int r = change.begin; r < change.end && result; ++r) {
        result = uses_[at(r)] <= net_.capacity[at(r)];
      }
    }
    for (const Change& change : changes_) apply(change, -1);
    return result;
  }

  bool improve() {
    bool changed = false;
    for (int n : nodes_) {
      for (int l = 0; l < net_.label_count(n); ++l) {
        if (l == labels_[at(n)]) continue;
        const double cost = consider(n, l);
        if (!(cost < 0) || !fits()) continue;
        move(n, l);
        changed = true;
      }
    }
    return changed;
  }

  const Network& net_;
  std::vector<int>& labels_;
  Vector uses_;
  std::vector<int> nodes_;
  std::vector<Change> changes_;
  std::vector<std::pair<int, int>> touched_;
};

}  // namespace

bool repair(const Network& net, std::vector<int>& labels) { return Repair(net, labels).run(); }

}  // namespace autopar::solver
