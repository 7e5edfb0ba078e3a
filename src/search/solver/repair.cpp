#include "search/solver/repair.hpp"

#include <algorithm>
#include <utility>

namespace autopar::solver {
namespace {

constexpr double kWorthWhile = 0.7;  // of the best move's worth

class Repair {
 public:
  Repair(const Network& net, std::vector<int>& labels, double& work, double work_limit)
      : net_(net),
        labels_(labels),
        work_(work),
        work_limit_(work_limit),
        uses_(uses_of(net, labels)) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      if (net.nodes[n].gone || net.label_count(static_cast<int>(n)) == 1) continue;
      nodes_.push_back(static_cast<int>(n));
    }
    prices_.assign(uses_.size() + 1, 0.0);
    for (std::size_t r = 0; r < uses_.size(); ++r) {
      prices_[r + 1] = prices_[r] + net.multiplier[r];
    }
  }

  bool run() {
    while (count_overfull() > 0) {
      if (work_ > work_limit_ || !shrink()) return false;
    }
    bool changed = true;
    for (int sweep = 0; sweep < 4 && changed; ++sweep) changed = improve();
    return true;
  }

 private:
  struct Change {
    int begin, end;
    double bytes;
  };
  struct Move {
    int node, label;
    double cost, less;  // less: overflow taken away
    double worth() const { return cost > 0 ? less / cost : kInfinity; }
    bool before(const Move& other) const {
      return worth() != other.worth() ? worth() > other.worth() : less > other.less;
    }
  };

  // Rows over their capacity, as counts before each row.
  int count_overfull() {
    overfull_.assign(uses_.size() + 1, 0.0);
    for (std::size_t r = 0; r < uses_.size(); ++r) {
      overfull_[r + 1] = overfull_[r] + (uses_[r] > net_.capacity[r] ? 1 : 0);
    }
    work_ += static_cast<double>(uses_.size());
    return static_cast<int>(overfull_.back());
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
      if (now < kInfinity || after < kInfinity) cost += after - now;
      for (const RowUse& use : edge.uses) {
        add({use.begin, use.end, pair(use.bytes, label) - pair(use.bytes, present)});
      }
    }
    for (const Change& change : changes_) {
      cost -= (prices_[at(change.end)] - prices_[at(change.begin)]) * change.bytes;
    }
    work_ += static_cast<double>(node.edges.size() + node.uses.size() + 1);
    return cost;
  }

  void add(Change change) {
    if (change.bytes != 0 && change.begin < change.end) changes_.push_back(change);
  }

  // What the move considered last takes away in the rows that overflow now, at first sight.
  double relief() const {
    double less = 0;
    for (const Change& change : changes_) {
      less -= change.bytes * (overfull_[at(change.end)] - overfull_[at(change.begin)]);
    }
    return less;
  }

  // The same as it is: no more than the overflow, less what overflows anew.
  double exact_relief() {
    std::vector<std::pair<int, int>> touched;
    for (const Change& change : changes_) touched.emplace_back(change.begin, change.end);
    std::sort(touched.begin(), touched.end());
    double less = 0;
    for (const double sign : {1.0, -1.0}) {
      int from = 0;
      for (const auto& [begin, end] : touched) {
        for (int r = std::max(from, begin); r < end; ++r) {
          less += sign * std::max(0.0, uses_[at(r)] - net_.capacity[at(r)]);
        }
        from = std::max(from, end);
      }
      for (const Change& change : changes_) apply(change, sign);
    }
    return less;
  }

  void apply(const Change& change, double sign) {
    for (int r = change.begin; r < change.end; ++r) uses_[at(r)] += sign * change.bytes;
    work_ += change.end - change.begin;
  }

  void move(int n, int label) {
    consider(n, label);
    for (const Change& change : changes_) apply(change, 1);
    labels_[at(n)] = label;
  }

  // Moves that take away most overflow for what they cost; many at once while they are about as
  // good as the best. False if there is none.
  bool shrink() {
    std::vector<Move> moves;
    for (int n : nodes_) {
      for (int l = 0; l < net_.label_count(n); ++l) {
        if (l == labels_[at(n)]) continue;
        const double cost = consider(n, l);
        if (cost == kInfinity || changes_.empty()) continue;
        const double less = relief();
        if (less > 0) moves.push_back({n, l, cost, less});
      }
    }
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.before(b); });
    bool moved = false;
    double first = 0;
    std::vector<char> done(net_.nodes.size(), 0);
    for (const Move& candidate : moves) {
      if (done[at(candidate.node)]) continue;
      if (moved && candidate.worth() < kWorthWhile * first) break;
      Move now = candidate;
      now.cost = consider(now.node, now.label);
      now.less = exact_relief();
      if (!(now.less > 0) || (moved && now.worth() < kWorthWhile * first)) continue;
      if (!moved) first = now.worth();
      moved = true;
      done[at(now.node)] = 1;
      move(now.node, now.label);
      if (count_overfull() == 0) break;
    }
    return moved;
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
  double& work_;
  double work_limit_;
  Vector uses_, overfull_, prices_;
  std::vector<int> nodes_;
  std::vector<Change> changes_;
};

}  // namespace

bool repair(const Network& net, std::vector<int>& labels, double work_limit, double& work) {
  return Repair(net, labels, work, work_limit).run();
}

}  // namespace autopar::solver
