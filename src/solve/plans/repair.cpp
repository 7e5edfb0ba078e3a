#include "solve/plans/repair.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::repair;

class Repair {
 public:
  Repair(const Network& net, std::vector<int>& labels, double& work, double work_limit)
      : net_(net),
        labels_(labels),
        work_(work),
        work_limit_(work_limit),
        uses_(uses_of(net, labels)),
        prices_(net.multiplier) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) {
      if (net.nodes[n].gone || net.label_count(static_cast<int>(n)) == 1) continue;
      nodes_.push_back(static_cast<int>(n));
    }
  }

  bool run() {
    while (count_overfull() > 0) {
      if (work_ > work_limit_ || !shrink()) return false;
    }
    const double enough = work_ + work_limit_;
    bool changed = true;
    for (int sweep = 0; sweep < 4 && changed; ++sweep) changed = improve(enough);
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

  // What changing node n takes away from the rows that overflow now, at first sight; per label.
  // False if nothing.
  bool weigh_relief(int n) {
    const Node& node = net_.node(n);
    const std::size_t present = at(labels_[at(n)]);
    const std::size_t labels = at(net_.label_count(n));
    less_.assign(labels, 0.0);
    for (const RowUse& use : node.uses) {
      const double rows = overfull_rows(use);
      const Vector& bytes = net_.algebra.vector(use.bytes);
      for (std::size_t l = 0; l < labels && rows > 0; ++l) {
        less_[l] += (bytes[present] - bytes[l]) * rows;
      }
    }
    for (int e : node.edges) {
      const Edge& edge = net_.edge(e);
      for (const RowUse& use : edge.uses) {
        const double rows = overfull_rows(use);
        if (!(rows > 0)) continue;
        const Labels& classes = classes_of(edge, n);
        const double* bytes = seen_from(edge, n, use.bytes);
        for (std::size_t l = 0; l < labels; ++l) {
          less_[l] += (bytes[classes[present]] - bytes[classes[l]]) * rows;
        }
      }
    }
    work_ +=
        effort::repair::kVisitWork * static_cast<double>(node.edges.size() + node.uses.size() + 1);
    return std::any_of(less_.begin(), less_.end(), [](double less) { return less > 0; });
  }

  double overfull_rows(const RowUse& use) const {
    return overfull_[at(use.end)] - overfull_[at(use.begin)];
  }

  // What changing node n does to the cost, without the rows' prices; per label.
  void weigh(int n) {
    const Node& node = net_.node(n);
    cost_ = net_.cost(n);
    add_worth(net_, n, prices_, -1, cost_);
    for (int e : node.edges) {
      const Edge& edge = net_.edge(e);
      const Labels& classes = classes_of(edge, n);
      const double* values = seen_from(edge, n, edge.table.core);
      for (std::size_t l = 0; l < cost_.size(); ++l) cost_[l] += values[classes[l]];
      for (const RowUse& use : edge.uses) {
        const double price = prices_.of(use);
        if (!(price > 0)) continue;
        const double* bytes = seen_from(edge, n, use.bytes);
        for (std::size_t l = 0; l < cost_.size(); ++l) cost_[l] -= price * bytes[classes[l]];
      }
    }
    const double now = cost_[at(labels_[at(n)])];
    for (double& cost : cost_) cost = cost == kInfinity ? kInfinity : cost - now;
    work_ +=
        effort::work::kRowEntryWork * static_cast<double>(cost_.size() * (node.edges.size() + 1));
    work_ +=
        effort::repair::kVisitWork * static_cast<double>(node.edges.size() + node.uses.size() + 1);
  }

  const Labels& classes_of(const Edge& edge, int n) const {
    return net_.algebra.labels(edge.a == n ? edge.table.map_a : edge.table.map_b);
  }

  // One of the edge's cores, for the other end's label: values per class of n's labels.
  const double* seen_from(const Edge& edge, int n, int core) const {
    const bool is_a = edge.a == n;
    const int other = labels_[at(is_a ? edge.b : edge.a)];
    const int c = net_.algebra.labels(is_a ? edge.table.map_b : edge.table.map_a)[at(other)];
    return is_a ? net_.algebra.core(core).column(c) : net_.algebra.core(core).row(c);
  }

  // What changing node n to `label` does to the rows.
  void list_changes(int n, int label) {
    changes_.clear();
    const Node& node = net_.node(n);
    const int present = labels_[at(n)];
    for (const RowUse& use : node.uses) {
      const Vector& bytes = net_.algebra.vector(use.bytes);
      add({use.begin, use.end, bytes[at(label)] - bytes[at(present)]});
    }
    for (int e : node.edges) {
      const Edge& edge = net_.edge(e);
      const Labels& classes = classes_of(edge, n);
      for (const RowUse& use : edge.uses) {
        const double* bytes = seen_from(edge, n, use.bytes);
        add({use.begin, use.end, bytes[classes[at(label)]] - bytes[classes[at(present)]]});
      }
    }
    work_ += static_cast<double>(node.edges.size() + node.uses.size() + 1);
  }

  void add(Change change) {
    if (change.bytes != 0 && change.begin < change.end) changes_.push_back(change);
  }

  // What the changes listed take away of the overflow, less what overflows anew.
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
    list_changes(n, label);
    for (const Change& change : changes_) apply(change, 1);
    labels_[at(n)] = label;
  }

  // The move of node n that takes away most overflow for what it costs.
  std::optional<Move> best_move(int n) {
    if (!weigh_relief(n)) return std::nullopt;
    weigh(n);
    std::optional<Move> best;
    for (int l = 0; l < static_cast<int>(cost_.size()); ++l) {
      if (l == labels_[at(n)] || cost_[at(l)] == kInfinity || !(less_[at(l)] > 0)) continue;
      const Move move = {n, l, cost_[at(l)], less_[at(l)]};
      if (!best || move.before(*best)) best = move;
    }
    return best;
  }

  // Moves that take away most overflow for what they cost; many at once while they are about as
  // good as the best. False if there is none.
  bool shrink() {
    std::vector<Move> moves;
    for (int n : nodes_) {
      if (const std::optional<Move> best = best_move(n)) moves.push_back(*best);
    }
    std::stable_sort(moves.begin(), moves.end(),
                     [](const Move& a, const Move& b) { return a.before(b); });
    bool moved = false;
    double first = 0;
    for (const Move& candidate : moves) {
      if (moved && candidate.worth() < kWorthWhile * first) break;
      Move now = candidate;
      weigh(now.node);
      now.cost = cost_[at(now.label)];
      list_changes(now.node, now.label);
      now.less = exact_relief();
      if (!(now.less > 0) || now.cost == kInfinity) continue;
      if (moved && now.worth() < kWorthWhile * first) continue;
      if (!moved) first = now.worth();
      moved = true;
      move(now.node, now.label);
      if (count_overfull() == 0) break;
    }
    return moved;
  }

  bool fits() {
    for (const Change& change : changes_) {
      apply(change, 1);
      work_ += change.end - change.begin;
    }
    bool result = true;
    for (const Change& change : changes_) {
      for (int r = change.begin; r < change.end && result; ++r) {
        result = uses_[at(r)] <= net_.capacity[at(r)];
      }
    }
    for (const Change& change : changes_) apply(change, -1);
    return result;
  }

  // The best label that fits, node by node.
  bool improve(double enough_work) {
    bool changed = false;
    for (int n : nodes_) {
      if (work_ > enough_work) return false;
      weigh(n);
      cheaper_.clear();
      for (std::size_t l = 0; l < cost_.size(); ++l) {
        if (cost_[l] < 0) cheaper_.push_back(static_cast<int>(l));
      }
      std::stable_sort(cheaper_.begin(), cheaper_.end(),
                       [&](int a, int b) { return cost_[at(a)] < cost_[at(b)]; });
      for (int label : cheaper_) {
        list_changes(n, label);
        if (!fits()) continue;
        move(n, label);
        changed = true;
        break;
      }
    }
    return changed;
  }

  const Network& net_;
  std::vector<int>& labels_;
  double& work_;
  double work_limit_;
  Vector uses_, overfull_;
  PriceSums prices_;
  Vector cost_, less_;  // of the node weighed last
  Labels cheaper_;      // of that
  std::vector<int> nodes_;
  std::vector<Change> changes_;
};

}  // namespace

bool repair(const Network& net, std::vector<int>& labels, double work_limit, double& work) {
  return Repair(net, labels, work, work_limit).run();
}

}  // namespace autopar::solver
