#include "solve/network/reduce.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::reduce;

constexpr double kRounding = 1e-12;  // of sums of uses; never drops what fits
constexpr double kLargest = std::numeric_limits<double>::max();

class Reduction {
 public:
  explicit Reduction(Network& net)
      : net_(net),
        queued_(net.nodes.size(), 1),
        touched_(net.nodes.size(), 0),
        prices_(net.multiplier) {
    for (std::size_t n = 0; n < net.nodes.size(); ++n) next_.push_back(static_cast<int>(n));
  }

  // In rounds: in each, only nodes whose neighbourhood has not changed in it are eliminated. So a
  // chain shrinks by halves, and the same way in every layer, instead of from one end.
  void run() {
    for (int round = 1; !next_.empty() && !net_.impossible; ++round) {
      std::vector<int> current;
      current.swap(next_);
      std::sort(current.begin(), current.end());
      for (int n : current) {
        queued_[at(n)] = 0;
        if (!net_.node(n).gone) visit(n, round);
        if (net_.impossible) return;
      }
    }
  }

 private:
  void push(int n) {
    if (queued_[at(n)] || net_.node(n).gone) return;
    queued_[at(n)] = 1;
    next_.push_back(n);
  }

  void push_neighbours(int n) {
    for (int e : net_.node(n).edges) push(other_end(net_.edge(e), n));
  }

  void visit(int n, int round) {
    if (join_parallel(net_, n)) push_neighbours(n);
    drop_additive_edges(n);
    remove_labels(n);
    if (net_.impossible) return;
    if (merge_function(n)) return;
    const Node& node = net_.node(n);
    if (!may_eliminate(n)) return;
    if (touched_[at(n)] == round) {
      push(n);
      return;
    }
    std::vector<int> others;
    for (int e : node.edges) others.push_back(other_end(net_.edge(e), n));
    eliminate(net_, n);
    for (int other : others) {
      touched_[at(other)] = round;
      push(other);
    }
  }

  void drop_additive_edges(int n) {
    const std::vector<int> edges = net_.node(n).edges;
    for (int e : edges) {
      const Edge& edge = net_.edge(e);
      if (!edge.uses.empty() || !net_.algebra.separable(edge.table.core)) continue;
      const int other = other_end(edge, n);
      remove_edge(net_, e);
      push(other);
    }
  }

  // Where one end of an edge follows from the other (all further pairs are forbidden), the two are
  // one node with no more labels than before.
  bool merge_function(int n) {
    for (int e : net_.node(n).edges) {
      const Edge& edge = net_.edge(e);
      const double most = std::max(net_.label_count(edge.a), net_.label_count(edge.b));
      if (net_.algebra.finite_pairs(edge.table) > most) continue;
      const int other = other_end(edge, n);
      merge(net_, edge.a, edge.b, kInfinity);
      if (net_.impossible) return true;
      const int kept = net_.node(n).gone ? other : n;
      push(kept);
      push_neighbours(kept);
      return true;
    }
    return false;
  }

  bool may_eliminate(int n) {
    const Node& node = net_.node(n);
    if (net_.label_count(n) == 1) return true;
    if (!node.uses.empty() || node.edges.size() > 2) return false;
    for (int e : node.edges) {
      if (!net_.edge(e).uses.empty()) return false;
    }
    if (node.edges.size() < 2) return true;
    double entries = 1;
    for (int e : node.edges) {
      const Core& core = net_.algebra.core(net_.edge(e).table.core);
      entries *= net_.edge(e).a == n ? core.columns : core.rows;
    }
    return entries <= kPathTable && entries * net_.label_count(n) <= kPathWork;
  }

  void remove_labels(int n) {
    const std::vector<int> key = signature(n);
    auto found = kept_.find(key);
    if (found == kept_.end()) found = kept_.emplace(key, labels_to_keep(n)).first;
    Labels kept = found->second;
    if (!net_.node(n).uses.empty()) {
      const std::vector<char> large = too_large(n);
      std::erase_if(kept, [&](int l) { return large[at(l)] != 0; });
    }
    if (kept.size() == at(net_.label_count(n))) return;
    keep_labels(net_, n, kept);
    if (net_.impossible) return;
    push_neighbours(n);
    push(n);
  }

  // Everything that labels_to_keep() looks at.
  std::vector<int> signature(int n) {
    const Node& node = net_.node(n);
    std::vector<int> key = {node.cost};
    // What a use is priced at matters, not when it is.
    const auto add_use = [&](const RowUse& use) {
      key.push_back(use.bytes);
      key.push_back(net_.algebra.add_vector({prices_.of(use)}));
    };
    for (const RowUse& use : node.uses) add_use(use);
    for (int e : node.edges) {
      const Edge& edge = net_.edge(e);
      key.push_back(-1);
      key.push_back(edge.a == n ? edge.table.map_a : edge.table.map_b);
      key.push_back(edge.a == n ? edge.table.core : -2 - edge.table.core);
      for (const RowUse& use : edge.uses) add_use(use);
    }
    return key;
  }

  // Labels that may take another one's place, and how much worse each can be than it, as far as
  // that is summed up.
  struct Rivals {
    Labels labels;
    Vector worse;
    std::size_t size() const { return labels.size(); }
    void leave_out(std::size_t i) {
      labels[i] = labels.back();
      worse[i] = worse.back();
      labels.pop_back();
      worse.pop_back();
    }
    template <class Stays>
    void keep_if(Stays stays) {
      std::size_t left = 0;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const int label = labels[i];
        const double its = worse[i];
        labels[left] = label;
        worse[left] = its;
        left += stays(label) ? 1 : 0;
      }
      labels.resize(left);
      worse.resize(left);
    }
    // Adds the next term; those above `most` (finite) then are out.
    template <class Term>
    void add(double most, Term term) {
      std::size_t left = 0;
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const int label = labels[i];
        const double sum = worse[i] + term(label);
        labels[left] = label;
        worse[left] = sum;
        left += sum > most ? 0 : 1;
      }
      labels.resize(left);
      worse.resize(left);
    }
  };

  // One table as node n sees it: how much worse its label a can be than its label b.
  struct View {
    const Labels* classes;
    const Vector* worse;  // entry (class of b, class of a); null: not compared, then only labels of
                          // one class are equal
    std::size_t count;
    bool bytes;
    double price;       // of bytes
    Vector least = {};  // of costs: per class of b, <= 0
    const double* row_of(int a) const { return worse->data() + at((*classes)[at(a)]) * count; }
    // Of bytes, those that can be worse at all are out of the question.
    void keep_possible(int a, Rivals& rivals) const {
      const int* of = classes->data();
      if (worse == nullptr) {
        const int same = of[a];
        rivals.keep_if([&](int b) { return of[b] == same; });
      } else if (bytes) {
        const double* row = row_of(a);
        rivals.keep_if([&](int b) { return !(row[of[b]] > 0); });
      }
    }
    // How much worse each of the others can be than label a; of bytes, label a than each of them.
    void add_worse(int a, double most, Rivals& rivals) const {
      if (worse == nullptr) return;
      const int* of = classes->data();
      if (!bytes) {
        const double* row = row_of(a);
        rivals.add(most, [&](int b) { return row[of[b]]; });
      } else if (price > 0) {
        rivals.add(most, [&](int b) { return price * row_of(b)[of[a]]; });
      }
    }
    // The least that add_worse() adds.
    double least_of(int a) const {
      if (worse == nullptr) return 0;
      if (bytes) return price > 0 ? -kInfinity : 0;
      return least[at((*classes)[at(a)])];
    }
  };

  // Per row.
  static Vector least_of_rows(const Vector& square, std::size_t count) {
    Vector result(count, 0.0);
    for (std::size_t r = 0; r < count; ++r) {
      const double* row = square.data() + r * count;
      for (std::size_t c = 0; c < count; ++c) result[r] = row[c] < result[r] ? row[c] : result[r];
    }
    return result;
  }

  std::vector<View> views(int n) {
    std::vector<View> result;
    for (int e : net_.node(n).edges) {
      const Edge& edge = net_.edge(e);
      const bool is_a = edge.a == n;
      const Labels* classes = &net_.algebra.labels(is_a ? edge.table.map_a : edge.table.map_b);
      const auto add = [&](int core_id, bool bytes, double price) {
        const Core& core = net_.algebra.core(core_id);
        const double mine = is_a ? core.rows : core.columns;
        const double work = mine * static_cast<double>(core.values.size());
        const Vector* worse =
            work <= kDominanceWork ? &net_.algebra.worse_by(core_id, !is_a) : nullptr;
        result.push_back({classes, worse, static_cast<std::size_t>(mine), bytes, price});
        View& made = result.back();
        if (!bytes && worse != nullptr) made.least = least_of_rows(*worse, made.count);
      };
      add(edge.table.core, false, 0);
      for (const RowUse& use : edge.uses) add(use.bytes, true, prices_.of(use));
    }
    return result;
  }

  // Whether another of the labels can take a's place whatever the neighbours do. Costs are compared
  // as they are without the rows' prices: what is used less is worth something only where the row
  // is full. A label is out as soon as no table that is left can make up for what it is worse by.
  bool is_dominated(int n, const std::vector<View>& tables, const Labels& cheapest_first, int a) {
    begin_rivals(n, tables, cheapest_first, a);
    Rivals& rivals = rivals_;
    for (const View& table : tables) table.keep_possible(a, rivals);
    for (std::size_t t = 0; t < tables.size() && rivals.size() > 0; ++t) {
      tables[t].add_worse(a, most_[t + 1], rivals);
    }
    return std::any_of(rivals.worse.begin(), rivals.worse.end(),
                       [](double worse) { return worse <= 0; });
  }

  // Of the labels that are left, by the node's own costs and uses. The latter only add to what they
  // are worse by.
  void begin_rivals(int n, const std::vector<View>& tables, const Labels& cheapest_first, int a) {
    most_.assign(tables.size() + 1, 0.0);
    for (std::size_t t = tables.size(); t-- > 0;) most_[t] = most_[t + 1] - tables[t].least_of(a);
    for (double& most : most_) most = std::min((1 + kRounding) * most, kLargest);
    const Vector& cost = net_.cost(n);
    rivals_.labels = cheapest_first;
    rivals_.worse.resize(cheapest_first.size());
    const double own = cost[at(a)];
    std::size_t count = 0, place = 0;
    for (; count < cheapest_first.size(); ++count) {
      const double worse = cost[at(cheapest_first[count])] - own;
      if (worse > most_[0]) break;
      rivals_.worse[count] = worse;
      place = cheapest_first[count] == a ? count : place;
    }
    rivals_.labels.resize(count);
    rivals_.worse.resize(count);
    rivals_.leave_out(place);
    for (const RowUse& use : net_.node(n).uses) {
      const Vector& bytes = net_.algebra.vector(use.bytes);
      const double most = bytes[at(a)], each = prices_.of(use);
      rivals_.add(kLargest, [&](int b) {
        const double mine = bytes[at(b)];
        return mine > most ? kInfinity : each * (most - mine);
      });
    }
  }

  Labels labels_to_keep(int n) {
    const int count = net_.label_count(n);
    std::vector<char> alive(at(count), 1);
    for (int l = 0; l < count; ++l) alive[at(l)] = net_.cost(n)[at(l)] < kInfinity;
    for (int e : net_.node(n).edges) forbid(n, net_.edge(e), &alive);
    if (count <= kDominanceLabels) {
      const std::vector<View> tables = views(n);
      const Labels labels = living(alive);
      Labels cheapest_first = labels;
      const Vector& cost = net_.cost(n);
      std::stable_sort(cheapest_first.begin(), cheapest_first.end(),
                       [&](int a, int b) { return cost[at(a)] < cost[at(b)]; });
      for (auto a = labels.rbegin(); a != labels.rend(); ++a) {
        if (!is_dominated(n, tables, cheapest_first, *a)) continue;
        alive[at(*a)] = 0;
        std::erase(cheapest_first, *a);
      }
    } else {
      compare_within_classes(n, alive);
    }
    return living(alive);
  }

  static Labels living(const std::vector<char>& alive) {
    Labels labels;
    for (std::size_t l = 0; l < alive.size(); ++l) {
      if (alive[l]) labels.push_back(static_cast<int>(l));
    }
    return labels;
  }

  // Where labels are many, only those that are the same to all neighbours.
  void compare_within_classes(int n, std::vector<char>& alive) {
    const std::vector<View> tables = views(n);
    std::map<std::vector<int>, Labels> groups;
    for (std::size_t l = 0; l < alive.size(); ++l) {
      if (!alive[l]) continue;
      std::vector<int> classes;
      for (const View& table : tables) classes.push_back((*table.classes)[l]);
      groups[classes].push_back(static_cast<int>(l));
    }
    // Cheapest first: only a cheaper label can dominate, so each is held against the front so far.
    Vector cost = net_.cost(n);
    add_worth(net_, n, prices_, -1, cost);
    double comparisons = kGroupWork;
    for (auto& [classes, labels] : groups) {
      std::stable_sort(labels.begin(), labels.end(),
                       [&](int a, int b) { return cost[at(a)] < cost[at(b)]; });
      Labels front;
      for (int a : labels) {
        if (comparisons < 0) return;
        const bool dominated = std::any_of(front.begin(), front.end(), [&](int b) {
          --comparisons;
          return uses_no_more(n, b, a);
        });
        if (dominated) {
          alive[at(a)] = 0;
        } else {
          front.push_back(a);
        }
      }
    }
  }

  bool uses_no_more(int n, int b, int a) const {
    for (const RowUse& use : net_.node(n).uses) {
      const Vector& bytes = net_.algebra.vector(use.bytes);
      if (bytes[at(b)] > bytes[at(a)]) return false;
    }
    return true;
  }

  // Labels without any possible partner.
  void forbid(int n, const Edge& edge, std::vector<char>* alive) {
    const bool is_a = edge.a == n;
    const Core& core = net_.algebra.core(edge.table.core);
    if (core.largest < kInfinity) return;
    const int rows = is_a ? core.rows : core.columns;
    const int columns = is_a ? core.columns : core.rows;
    std::vector<char> possible(at(rows), 0);
    for (int r = 0; r < rows; ++r) {
      const double* row = is_a ? core.row(r) : core.column(r);
      possible[at(r)] = *std::min_element(row, row + columns) < kInfinity;
    }
    const Labels& classes = net_.algebra.labels(is_a ? edge.table.map_a : edge.table.map_b);
    for (std::size_t l = 0; l < alive->size(); ++l) {
      if (!possible[at(classes[l])]) (*alive)[l] = 0;
    }
  }

  // Labels whose uses alone exceed a capacity.
  std::vector<char> too_large(int n) {
    std::vector<char> result(at(net_.label_count(n)), 0);
    for_each_stretch(net_, net_.node(n), [&](int begin, int end, const Vector& sum) {
      const auto rows = net_.capacity.begin();
      const double least = *std::min_element(rows + begin, rows + end);
      for (std::size_t l = 0; l < sum.size(); ++l) {
        if (sum[l] > least + kRounding * std::abs(least)) result[l] = 1;
      }
    });
    return result;
  }

  Network& net_;
  std::vector<char> queued_;
  std::vector<int> touched_;
  std::vector<int> next_;
  PriceSums prices_;
  Rivals rivals_;
  Vector most_;  // of rivals before each table
  std::map<std::vector<int>, Labels> kept_;
};

}  // namespace

double reduce(Network& net) {
  const double before = net.algebra.work();
  if (!net.impossible) drop_slack_rows(net);
  if (!net.impossible) Reduction(net).run();
  return net.algebra.work() - before;
}

}  // namespace autopar::solver
