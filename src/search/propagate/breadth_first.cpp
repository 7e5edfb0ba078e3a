// The order in which ops are decided; see the header for its rules.
#include <algorithm>
#include <cmath>
#include <set>

#include "search/batch.hpp"
#include "search/propagate/at.hpp"
#include "search/propagate/beliefs.hpp"
#include "search/propagate/origins.hpp"
#include "search/propagate/propagate.hpp"

namespace autopar {

namespace {

// Who makes what an op reads, and who reads what it makes; by activations, ascending.
struct Flow {
  std::vector<std::vector<OpId>> producers, readers;

  explicit Flow(const Graph& graph) : producers(graph.ops.size()), readers(graph.ops.size()) {
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      std::set<OpId> from;
      for (std::size_t i = 0; i < graph.ops[o].inputs.size(); ++i) {
        if (!graph.ops[o].has_input(i)) continue;
        const OpId producer = graph.value(graph.ops[o].inputs[i]).producer;
        if (producer.valid()) from.insert(producer);
      }
      producers[o] = {from.begin(), from.end()};
      for (OpId p : from) readers[p.index()].push_back(OpId(static_cast<std::int64_t>(o)));
    }
  }
};

class BreadthFirst {
 public:
  BreadthFirst(const SearchRequest& request, const MeshProblem& problem, const Seeds& seeds)
      : request_(request),
        graph_(request.graph),
        problem_(problem),
        seeds_(seeds),
        flow_(request.graph),
        uses_(uses_of(request.graph)),
        beliefs_(request.graph, problem),
        origins_(request.graph, problem, seeds),
        in_flow_(graph_.ops.size(), false) {
    trace_.place.assign(graph_.ops.size(), -1);
    trace_.level.assign(graph_.ops.size(), 0);
    trace_.origin.assign(graph_.ops.size(), PropagationTrace::kFilled);
  }

  PropagationTrace run() {
    decide_seeds();
    reach_values(false);
    drain();
    reach_values(true);
    drain();
    while (reach_shared()) drain();
    fill();
    trace_.choices = beliefs_.complete();
    return std::move(trace_);
  }

 private:
  // An op that may be decided next; the smallest entry is.
  struct Entry {
    int level = 0;
    bool backward = false;  // reached from its reader
    OpId op;
    auto operator<=>(const Entry&) const = default;
  };

  // Pins that leave one candidate come first: the others are chosen beside them.
  void decide_seeds() {
    for (const bool single : {true, false}) {
      for (const Seeds::Seed& seed : seeds_.seeds) {
        if (!seed.op.valid()) continue;
        const bool is_single = problem_.choices_of_op[seed.op.index()]->assignments.size() == 1;
        if (is_single == single) decide(seed.op, 0);
      }
    }
    for (const Seeds::Seed& seed : seeds_.seeds) {
      if (seed.op.valid()) reach_neighbours(seed.op);
    }
  }

  // Readers and producers of the pinned tensors, or of inputs and outputs with a given layout.
  void reach_values(bool layouts) {
    const auto matches = [&](int seed) {
      return seed >= 0 && seeds_.seeds[at(seed)].layout == layouts;
    };
    const int level = last_level_ + 1;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const bool read = matches(seeds_.of_source[v]) || matches(seeds_.of_hub[v]);
      const bool left =
          matches(seeds_.of_made[v]) || matches(seeds_.of_hub[v]) || matches(seeds_.of_output[v]);
      const OpId producer = graph_.values[v].producer;
      if (left && producer.valid()) reach(producer, level, true);
      for (const Use& use : uses_[v]) {
        if (!read) break;
        mark_flow(use.op);
        reach(use.op, level, false);
      }
    }
  }

  // The undecided readers of inputs and parameters that a decided op reads (or updates). False:
  // there are none.
  bool reach_shared() {
    const int level = last_level_ + 1;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const ValueId value(static_cast<std::int64_t>(v));
      if (!origins_.first_at(value).valid()) continue;
      for (const Use& use : uses_[v]) reach(use.op, level, false);
      const OpId updater = origins_.updater_of(value);
      if (updater.valid()) reach(updater, level, true);
    }
    return !queue_.empty();
  }

  void drain() {
    while (!queue_.empty()) {
      const Entry entry = *queue_.begin();
      queue_.erase(queue_.begin());
      if (beliefs_.decided(entry.op) || waits(entry.op)) continue;
      decide(entry.op, entry.level);
      reach_neighbours(entry.op);
    }
  }

  // An input that is still to come; whoever makes it reaches the op again.
  bool waits(OpId op) const {
    const auto& producers = flow_.producers[op.index()];
    return std::any_of(producers.begin(), producers.end(),
                       [&](OpId p) { return in_flow_[p.index()] && !beliefs_.decided(p); });
  }

  void reach(OpId op, int level, bool backward) {
    if (!beliefs_.decided(op)) queue_.insert({level, backward, op});
  }

  void reach_neighbours(OpId op) {
    const int level = trace_.level[op.index()] + 1;
    for (OpId reader : flow_.readers[op.index()]) reach(reader, level, false);
    for (OpId producer : flow_.producers[op.index()]) reach(producer, level, true);
  }

  // An op and all that depends on it; every op once.
  void mark_flow(OpId op) {
    std::vector<OpId> stack = {op};
    while (!stack.empty()) {
      const OpId next = stack.back();
      stack.pop_back();
      if (in_flow_[next.index()]) continue;
      in_flow_[next.index()] = true;
      for (OpId reader : flow_.readers[next.index()]) {
        if (!in_flow_[reader.index()]) stack.push_back(reader);
      }
    }
  }

  // The price of the op itself, per candidate, or what the cost model says in its place.
  const std::vector<double>& own_prices(OpId op) const {
    const auto& producers = flow_.producers[op.index()];
    const auto decided = std::count_if(producers.begin(), producers.end(),
                                       [&](OpId p) { return beliefs_.decided(p); });
    const auto& of_follower = problem_.choices_of_op[op.index()]->follower_prices;
    if (!of_follower.empty() && decided < 2) return of_follower;
    return problem_.problem.nodes[at(problem_.node_of_op[op.index()])].cost;
  }

  void decide(OpId op, int level) {
    const Beliefs::Prices prices = beliefs_.prices(op);
    const auto& cost = problem_.problem.nodes[at(problem_.node_of_op[op.index()])].cost;
    const std::vector<double>& own = own_prices(op);
    const auto better = [&](std::size_t a, std::size_t b) {
      for (const auto* values : {&prices.now, &prices.ahead, &own}) {
        if (clearly_less((*values)[a], (*values)[b])) return true;
        if (clearly_less((*values)[b], (*values)[a])) return false;
      }
      return false;
    };
    std::size_t best = 0;
    for (std::size_t c = 1; c < cost.size(); ++c) {
      const bool forbidden = std::isinf(cost[c]);
      if (!forbidden && (std::isinf(cost[best]) || better(c, best))) best = c;
    }
    const int choice = static_cast<int>(best);
    settle(op, choice, level, origins_.follow(op, choice));
    mark_flow(op);
  }

  void settle(OpId op, int choice, int level, int origin) {
    trace_.place[op.index()] = static_cast<int>(trace_.order.size());
    trace_.order.push_back(op);
    trace_.level[op.index()] = level;
    trace_.origin[op.index()] = origin;
    last_level_ = std::max(last_level_, level);
    beliefs_.decide(op, choice);
    origins_.decide(op, choice, origin);
  }

  // What no flow reaches gets the same split as everywhere else that it is not searched for.
  void fill() {
    const std::vector<int> batch = batch_factors(graph_, request_.rules);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const OpId op(static_cast<std::int64_t>(o));
      if (beliefs_.decided(op)) continue;
      ++trace_.filled;
      const auto& assignments = problem_.choices_of_op[o]->assignments;
      const int factor = request_.unreached == Fill::kReplicate ? -1 : batch[o];
      const std::size_t split = data_parallel_choice(assignments, factor, problem_.mesh);
      const std::size_t none = assignments.size() - 1;  // all-none comes last
      settle(op, static_cast<int>(std::min(split, none)), last_level_, PropagationTrace::kFilled);
    }
  }

  PropagationTrace trace_;
  const SearchRequest& request_;
  const Graph& graph_;
  const MeshProblem& problem_;
  const Seeds& seeds_;
  Flow flow_;
  std::vector<std::vector<Use>> uses_;
  Beliefs beliefs_;
  Origins origins_;
  std::vector<bool> in_flow_;  // depends on a decided op or is one
  std::set<Entry> queue_;
  int last_level_ = 0;
};

}  // namespace

PropagationTrace propagate_breadth_first(const SearchRequest& request, const MeshProblem& problem,
                                         const Seeds& seeds) {
  return BreadthFirst(request, problem, seeds).run();
}

}  // namespace autopar
