#include "solve/plans/sweep.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::sweep;

std::uint64_t scrambled(std::uint64_t value) {  // splitmix64 (Steele, Lea, Flood 2014)
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

Vector sums_before(const Vector& values) {
  Vector sums(values.size() + 1, 0.0);
  for (std::size_t r = 0; r < values.size(); ++r) sums[r + 1] = sums[r] + values[r];
  return sums;
}

double product(const Vector& one, const Vector& other) {
  double sum = 0;
  for (std::size_t r = 0; r < one.size(); ++r) sum += one[r] * other[r];
  return sum;
}

// What a part of the nodes adds up to: its value by the multipliers, which only grows; its cost,
// which is that value without the rows' prices; and its weighted use.
struct Amounts {
  double value = 0, cost = 0, use = 0;
  void add(const Amounts& other) {
    value += other.value;
    cost += other.cost;
    use += other.use;
  }
};

// A state is what the nodes so far can be: the labels of the frontier (nodes with neighbours to
// come), and the amounts. Those whose value reaches the cutoff or whose use is too much go. Of
// those with the same frontier and about the same use, the cheapest stays.
class Sweep {
 public:
  Sweep(const Network& net, const std::vector<int>& order, const Vector& weights, double cutoff)
      : net_(net),
        order_(order),
        room_(cutoff - net.constant),
        credit_(product(net.multiplier, net.capacity)),
        most_use_(product(weights, net.capacity)),
        prices_(sums_before(net.multiplier)),
        weights_(sums_before(weights)),
        most_states_(std::clamp(kMostSteps / (order.size() + 1), kLeastStates, kMostStates)),
        slot_(net.nodes.size(), -1) {}

  void run() {
    const std::vector<std::vector<int>> closing = last_neighbours();
    states_ = {State{}};
    for (std::size_t i = 0; i < order_.size() && !states_.empty(); ++i) {
      extend(order_[i]);
      close(closing[i]);
      thin();
    }
  }

  std::vector<std::vector<int>> cheapest(std::size_t most) const {
    std::vector<int> best(states_.size());
    std::iota(best.begin(), best.end(), 0);
    std::stable_sort(best.begin(), best.end(), [&](int a, int b) {
      return states_[at(a)].sum.cost < states_[at(b)].sum.cost;
    });
    std::vector<std::vector<int>> result;
    for (int s : best) {
      if (result.size() == most || !(states_[at(s)].sum.cost + credit_ < room_)) break;
      result.push_back(labels_of(states_[at(s)]));
    }
    return result;
  }

  double work() const { return work_; }

 private:
  struct State {
    Amounts sum;
    std::uint64_t frontier = 0;  // hash of its labels; a clash only loses a state
    std::size_t labels = 0;      // where they are
    int trace = -1;
  };
  struct Trace {
    int before = -1;
    int label = -1;
  };
  struct Term {  // of an edge to the frontier: [label there * labels here + label here]
    std::size_t slot = 0;
    std::vector<Amounts> amounts;
  };

  // Per place in the order, the nodes that have no neighbours to come after it.
  std::vector<std::vector<int>> last_neighbours() const {
    std::vector<std::size_t> position(net_.nodes.size(), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) position[at(order_[i])] = i;
    std::vector<std::vector<int>> closing(order_.size());
    for (std::size_t i = 0; i < order_.size(); ++i) {
      std::size_t last = i;
      for (int e : net_.node(order_[i]).edges) {
        last = std::max(last, position[at(other_end(net_.edge(e), order_[i]))]);
      }
      closing[last].push_back(order_[i]);
    }
    return closing;
  }

  std::vector<int> labels_of(const State& state) const {
    std::vector<int> labels(net_.nodes.size(), 0);
    int trace = state.trace;
    for (std::size_t i = order_.size(); i-- > 0;) {
      labels[at(order_[i])] = traces_[at(trace)].label;
      trace = traces_[at(trace)].before;
    }
    return labels;
  }

  std::uint64_t part(int n, int label) const {
    return scrambled((static_cast<std::uint64_t>(n) << 20) + static_cast<std::uint64_t>(label));
  }

  void use(const RowUse& rows, double bytes, Amounts& amounts) const {
    amounts.cost -= (prices_[at(rows.end)] - prices_[at(rows.begin)]) * bytes;
    amounts.use += (weights_[at(rows.end)] - weights_[at(rows.begin)]) * bytes;
  }

  Term term_of(int n, const Edge& edge) const {
    const int other = other_end(edge, n);
    Term term = {.slot = at(slot_[at(other)]), .amounts = {}};
    for (int k = 0; k < net_.label_count(other); ++k) {
      for (int l = 0; l < net_.label_count(n); ++l) {
        const int a = edge.a == n ? l : k, b = edge.a == n ? k : l;
        const double value = edge_value(net_, edge, a, b);
        Amounts amounts = {.value = value, .cost = value};
        const int row = net_.algebra.labels(edge.table.map_a)[at(a)];
        const int column = net_.algebra.labels(edge.table.map_b)[at(b)];
        for (const RowUse& rows : edge.uses) {
          use(rows, net_.algebra.core(rows.bytes).row(row)[column], amounts);
        }
        term.amounts.push_back(amounts);
      }
    }
    return term;
  }

  std::vector<Amounts> own_amounts(int n) const {
    std::vector<Amounts> result;
    for (int l = 0; l < net_.label_count(n); ++l) {
      const double value = net_.cost(n)[at(l)];
      Amounts amounts = {.value = value, .cost = value};
      for (const RowUse& rows : net_.node(n).uses) {
        use(rows, net_.algebra.vector(rows.bytes)[at(l)], amounts);
      }
      result.push_back(amounts);
    }
    return result;
  }

  void extend(int n) {
    std::vector<Term> terms;
    for (int e : net_.node(n).edges) {
      const Edge& edge = net_.edge(e);
      if (slot_[at(other_end(edge, n))] >= 0) terms.push_back(term_of(n, edge));
    }
    const std::vector<Amounts> own = own_amounts(n);
    const std::size_t slot = new_slot(n);
    work_ +=
        static_cast<double>((states_.size() + 1) * own.size() * (3 + terms.size() + width_ / 4));
    std::vector<State> next;
    std::vector<int> next_labels;
    first_trace_ = traces_.size();
    for (const State& state : states_) {
      for (std::size_t l = 0; l < own.size(); ++l) {
        State made = state;
        made.sum.add(own[l]);
        for (const Term& term : terms) {
          made.sum.add(term.amounts[at(labels_[state.labels + term.slot]) * own.size() + l]);
        }
        if (!(made.sum.value < room_) || made.sum.use > most_use_) continue;
        made.frontier ^= part(n, static_cast<int>(l));
        made.labels = next_labels.size();
        const auto old = labels_.begin() + static_cast<std::ptrdiff_t>(state.labels);
        next_labels.insert(next_labels.end(), old, old + static_cast<std::ptrdiff_t>(width_));
        next_labels[made.labels + slot] = static_cast<int>(l);
        made.trace = static_cast<int>(traces_.size());
        traces_.push_back({state.trace, static_cast<int>(l)});
        next.push_back(made);
      }
    }
    states_ = std::move(next);
    labels_ = std::move(next_labels);
  }

  std::size_t new_slot(int n) {
    if (free_slots_.empty()) {
      free_slots_.push_back(static_cast<int>(width_));
      std::vector<int> wider;
      for (State& state : states_) {
        const auto old = labels_.begin() + static_cast<std::ptrdiff_t>(state.labels);
        state.labels = wider.size();
        wider.insert(wider.end(), old, old + static_cast<std::ptrdiff_t>(width_));
        wider.push_back(0);
      }
      labels_ = std::move(wider);
      ++width_;
    }
    slot_[at(n)] = free_slots_.back();
    free_slots_.pop_back();
    return at(slot_[at(n)]);
  }

  void close(const std::vector<int>& nodes) {
    for (int n : nodes) {
      const std::size_t slot = at(slot_[at(n)]);
      for (State& state : states_) state.frontier ^= part(n, labels_[state.labels + slot]);
      slot_[at(n)] = -1;
      free_slots_.push_back(static_cast<int>(slot));
    }
  }

  void thin() {
    std::vector<int> front = fronts();
    if (front.size() > most_states_) {
      std::stable_sort(front.begin(), front.end(), [&](int a, int b) {
        return states_[at(a)].sum.value < states_[at(b)].sum.value;
      });
      front.resize(most_states_);
    }
    std::sort(front.begin(), front.end());
    std::vector<State> kept;
    std::vector<Trace> traces;
    for (int s : front) {
      State state = states_[at(s)];
      traces.push_back(traces_[at(state.trace)]);
      state.trace = static_cast<int>(first_trace_ + traces.size()) - 1;
      kept.push_back(state);
    }
    traces_.resize(first_trace_);
    traces_.insert(traces_.end(), traces.begin(), traces.end());
    states_ = std::move(kept);
  }

  // Per frontier and bucket of use the cheapest state; and of more use only if it costs less.
  std::vector<int> fronts() const {
    double least = kInfinity, most = 0;
    for (const State& state : states_) {
      least = std::min(least, state.sum.use);
      most = std::max(most, state.sum.use);
    }
    const double scale = most > least ? (kBuckets - 1) / (most - least) : 0;
    std::unordered_map<std::uint64_t, std::size_t> groups;
    std::vector<int> best;
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const State& state = states_[s];
      const auto [group, added] = groups.emplace(state.frontier, best.size());
      if (added) best.resize(best.size() + kBuckets, -1);
      const auto bucket = static_cast<std::size_t>((state.sum.use - least) * scale);
      int& kept = best[group->second + bucket];
      if (kept < 0 || state.sum.cost < states_[at(kept)].sum.cost) kept = static_cast<int>(s);
    }
    std::vector<int> front;
    double cheapest = kInfinity;
    for (std::size_t b = 0; b < best.size(); ++b) {
      if (b % kBuckets == 0) cheapest = kInfinity;
      if (best[b] < 0 || !(states_[at(best[b])].sum.cost < cheapest)) continue;
      cheapest = states_[at(best[b])].sum.cost;
      front.push_back(best[b]);
    }
    return front;
  }

  const Network& net_;
  const std::vector<int>& order_;
  double room_;
  double credit_;  // what the capacities are worth at the multipliers
  double most_use_;
  Vector prices_, weights_;  // sums over the rows before each
  std::size_t most_states_;
  std::vector<int> slot_;  // of the nodes of the frontier, else -1
  std::vector<int> free_slots_;
  std::size_t width_ = 0;
  std::vector<State> states_;
  std::vector<int> labels_;  // of the frontier, width_ per state
  std::vector<Trace> traces_;
  std::size_t first_trace_ = 0;
  double work_ = 0;
};

}  // namespace

std::vector<std::vector<int>> sweep(const Network& net, const std::vector<int>& order,
                                    const Vector& weights, double cutoff, std::size_t most,
                                    double& work) {
  Sweep run(net, order, weights, cutoff);
  run.run();
  work += run.work();
  return run.cheapest(most);
}

}  // namespace autopar::solver
