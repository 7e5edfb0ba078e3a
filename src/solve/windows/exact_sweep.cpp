#include "solve/windows/exact_sweep.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/effort.hpp"
#include "solve/windows/row_plan.hpp"

namespace autopar::solver {
namespace {

using namespace effort::exact_sweep;

// Least and most that a variable must leave, as far as the layers to come can tell.
struct Limits {
  double least = 0;  // below this nothing fits
  double most = 0;   // more than this cannot be used
  double price = 0;  // of what is not used, in units per use
};

// States of a layer, grouped by frontier.
struct States {
  std::vector<std::size_t> begins = {0};
  std::vector<Units> value, cost;
  Vector room;  // [state * variables + variable]
  std::size_t variables = 1;
  std::size_t size() const { return value.size(); }
};

struct Trace {
  int from = 0;
  int label = 0;
};

// The rooms of the states that are kept, which come by rising cost.
class Front {
 public:
  explicit Front(std::size_t width) : width_(width) {}

  // False if one of those before has as much room everywhere.
  bool add(const double* room) {
    if (width_ == 1) return std::exchange(most_, std::max(most_, room[0])) < room[0];
    for (std::size_t k = all_.size(); k > 0; k -= width_) {
      ++work_;
      const double* other = all_.data() + k - width_;
      bool less = false;
      for (std::size_t v = 0; v < width_ && !less; ++v) less = other[v] < room[v];
      if (!less) return false;
    }
    all_.insert(all_.end(), room, room + width_);
    return true;
  }
  double work() const { return work_; }

 private:
  std::size_t width_;
  Vector all_;
  double most_ = -kInfinity, work_ = 0;
};

// A state is what the nodes so far can be: the frontier, the value by the multipliers, the cost
// without prices, and the room left per variable of the rows. It goes if even the best rest leads
// to the cutoff or above, and if another of the same frontier costs no more and leaves no less.
// Source: label setting for shortest paths with resource constraints; Desrochers, Soumis, "A
// generalized permanent labelling algorithm", INFOR 1988.
class ExactSweep {
 public:
  ExactSweep(const Network& net, const Trellis& trellis, Budget& budget)
      : net_(net), trellis_(trellis), budget_(budget) {
    std::vector<std::vector<RowsUsed>> uses;
    for (const TrellisLayer& layer : trellis.layers) uses.push_back(layer.uses);
    plan_ = plan_rows(uses, net.capacity, net.multiplier);
    find_limits();
  }

  Swept run() {
    states_.begins = {0, 1};
    states_.value = {0};
    states_.cost = {0};
    states_.room = {0};
    std::size_t traces = 0;
    for (std::size_t i = 0; i < trellis_.layers.size(); ++i) {
      if (!step(i)) return {.left_out = trellis_.least};
      traces += traces_.back().size();
      if (traces > kMostTraces) return {.left_out = trellis_.least};
    }
    return {best_labels(), trellis_.room};
  }

 private:
  struct Candidate {
    Units value, cost;
    std::size_t room;  // where it begins
    Trace trace;
  };

  std::vector<int> best_labels() const {
    if (states_.size() == 0) return {};
    const auto best = std::min_element(states_.cost.begin(), states_.cost.end());
    std::vector<int> labels(net_.nodes.size(), 0);
    int state = static_cast<int>(best - states_.cost.begin());
    for (std::size_t i = traces_.size(); i-- > 0;) {
      const Trace& trace = traces_[i][at(state)];
      labels[at(trellis_.layers[i].node)] = trace.label;
      state = trace.from;
    }
    return labels;
  }

  // What part p of the step takes off on an arc.
  double taken(std::size_t i, std::size_t arc, std::size_t p) const {
    const TrellisLayer& layer = trellis_.layers[i];
    const double* bytes = layer.bytes.data() + arc * layer.uses.size();
    double sum = 0;
    for (int use : plan_.steps[i].parts[p].uses) sum += bytes[use];
    return sum;
  }

  // Backward: least and most use of the layers to come, per class of rows.
  void find_limits() {
    limits_.resize(trellis_.layers.size());
    taken_.resize(trellis_.layers.size());
    Vector least(1, 0.0), most(1, 0.0);
    for (std::size_t i = trellis_.layers.size(); i-- > 0;) {
      const RowPlan::Step& step = plan_.steps[i];
      limits_[i].assign(step.variables.size(), {.least = -kInfinity, .most = -kInfinity});
      for (std::size_t c = 0; c < step.variable_of.size(); ++c) {
        Limits& its = limits_[i][at(step.variable_of[c])];
        its.least = std::max(its.least, least[c] - step.offset[c]);
        its.most = std::max(its.most, most[c] - step.offset[c]);
        its.price += step.price[c] * trellis_.scale;
      }
      Vector part_least(step.parts.size(), kInfinity), part_most(step.parts.size(), 0.0);
      const std::size_t arcs = trellis_.layers[i].arcs.size();
      taken_[i].resize(arcs * step.parts.size());
      for (std::size_t a = 0; a < arcs; ++a) {
        for (std::size_t p = 0; p < step.parts.size(); ++p) {
          const double bytes = taken(i, a, p);
          taken_[i][a * step.parts.size() + p] = bytes;
          part_least[p] = std::min(part_least[p], bytes);
          part_most[p] = std::max(part_most[p], bytes);
        }
      }
      Vector least_before, most_before;
      for (std::size_t c = 0; c < step.part_of.size(); ++c) {
        least_before.push_back(part_least[at(step.part_of[c])] + least[at(step.class_after[c])]);
        most_before.push_back(part_most[at(step.part_of[c])] + most[at(step.class_after[c])]);
      }
      least = std::move(least_before);
      most = std::move(most_before);
    }
  }

  // False: there are too many states, or the budget is over.
  bool step(std::size_t i) {
    const TrellisLayer& layer = trellis_.layers[i];
    States next;
    next.variables = plan_.steps[i].variables.size();
    std::vector<Trace> traces;
    for (std::size_t f = 0; f < layer.frontiers(); ++f) {
      found_.clear();
      room_.clear();
      for (std::size_t a = layer.begins[f]; a < layer.begins[f + 1]; ++a) extend(i, a);
      if (!keep_best(next, traces)) return false;
      next.begins.push_back(next.size());
    }
    states_ = std::move(next);
    traces_.push_back(std::move(traces));
    return !budget_.over();
  }

  void extend(std::size_t i, std::size_t a) {
    const TrellisLayer& layer = trellis_.layers[i];
    const RowPlan::Step& step = plan_.steps[i];
    const TrellisArc& arc = layer.arcs[a];
    const Units most = trellis_.room - layer.to_go[at(arc.to)];
    const double* taken = taken_[i].data() + a * step.parts.size();
    const std::size_t begin = states_.begins[at(arc.from)];
    const std::size_t end = states_.begins[at(arc.from) + 1];
    budget_.add(static_cast<double>(end - begin) * kStateWork);
    for (std::size_t s = begin; s < end; ++s) {
      Units value = states_.value[s] + arc.value;
      if (value >= most) continue;
      const double* before = states_.room.data() + s * states_.variables;
      const std::size_t room = room_.size();
      bool fits = true;
      for (std::size_t v = 0; v < step.variables.size() && fits; ++v) {
        double left = kInfinity;
        for (const auto& [p, offset] : step.variables[v].least_of) {
          left = std::min(left, before[step.parts[at(p)].from] - taken[p] + offset);
        }
        const Limits& limits = limits_[i][v];
        fits = left >= limits.least;
        if (left > limits.most) {  // what cannot be used was paid for
          value += static_cast<Units>((left - limits.most) * limits.price);
          left = limits.most;
        }
        room_.push_back(left);
      }
      if (!fits || value >= most) {
        room_.resize(room);
        continue;
      }
      found_.push_back({value, states_.cost[s] + arc.cost, room, {static_cast<int>(s), arc.label}});
    }
  }

  // Of the candidates for one frontier, those that no other is at least as good as. False: as
  // step().
  bool keep_best(States& next, std::vector<Trace>& traces) {
    const std::size_t width = next.variables;
    std::stable_sort(found_.begin(), found_.end(), [&](const Candidate& a, const Candidate& b) {
      return a.cost != b.cost ? a.cost < b.cost : room_[a.room] > room_[b.room];
    });
    Front front(width);
    double compared = 0;
    std::size_t looked_at = 0;
    budget_.add(static_cast<double>(found_.size()) * kStateWork);
    for (const Candidate& candidate : found_) {
      if (++looked_at % kStatesAtOnce == 0) {
        budget_.add((front.work() - compared) * kCompareWork);
        compared = front.work();
        if (next.size() > kMostStates || budget_.over()) return false;
      }
      const double* room = room_.data() + candidate.room;
      if (!front.add(room)) continue;
      next.value.push_back(candidate.value);
      next.cost.push_back(candidate.cost);
      next.room.insert(next.room.end(), room, room + width);
      traces.push_back(candidate.trace);
    }
    budget_.add((front.work() - compared) * kCompareWork);
    return next.size() <= kMostStates;
  }

  const Network& net_;
  const Trellis& trellis_;
  Budget& budget_;
  RowPlan plan_;
  std::vector<std::vector<Limits>> limits_;  // per layer and variable after it
  std::vector<Vector> taken_;                // per layer: [arc * parts + part]
  States states_;
  std::vector<std::vector<Trace>> traces_;  // per layer and state after it
  std::vector<Candidate> found_;
  Vector room_;  // of these
};

}  // namespace

Swept sweep_exactly(const Network& net, const Trellis& trellis, Budget& budget) {
  return ExactSweep(net, trellis, budget).run();
}

}  // namespace autopar::solver
