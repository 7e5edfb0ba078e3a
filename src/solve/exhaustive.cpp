// The gold standard: every combination, apart from those of which a plain sum
// says that they are no better than one that was met. Shares nothing with the
// other searchers but the problem.
//
// Depth first; a node's choice goes over to its neighbours' (forward checking:
// Larrosa, Meseguer and Schiex, "Maintaining reversible DAC for Max-CSP", 1999,
// without its directed arcs), so that once all ops of a graph are chosen, the
// layouts between them are minimised each for itself. The node with the fewest
// open choices comes next. Exponential.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "autopar/problem.hpp"

namespace autopar {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

struct Neighbour {
  const ProblemEdge* edge;
  std::size_t node;
};

class Tree {
 public:
  enum class Goal { kCost, kPeak };

  // Looks for less than `best` (of the goal's kind) within `use_limit`. Takes
  // the choices that it looks at, again and again, from `steps`, until none are
  // left.
  Tree(const Problem& problem, Goal goal, double use_limit, double best, double& steps)
      : problem_(problem),
        goal_(goal),
        use_limit_(use_limit),
        best_(best),
        steps_(steps),
        neighbours_(problem.nodes.size()),
        choices_(problem.nodes.size(), -1),
        use_(at(problem.horizon), problem.base_use) {
    for (const ProblemEdge& edge : problem.edges) {
      neighbours_[at(edge.from)].push_back({&edge, at(edge.to)});
      neighbours_[at(edge.to)].push_back({&edge, at(edge.from)});
    }
    for (const ProblemNode& node : problem.nodes) lower_.push_back(node.cost);
    // What every node uses at least, whatever is chosen.
    for (std::size_t n = 0; n < problem.nodes.size(); ++n) use_least(n, 1);
  }

  // False: the steps did not suffice.
  bool run() {
    visit(0, 0);
    return steps_ > 0;
  }
  const std::vector<int>& found() const { return found_; }  // empty: nothing

 private:
  void use_least(std::size_t n, double sign) {
    for (const NodeUse& use : problem_.nodes[n].uses) {
      add(use.begin, use.end, sign * *std::min_element(use.bytes.begin(), use.bytes.end()));
    }
  }
  void add(int begin, int end, double bytes) {
    for (int t = begin; t < end; ++t) use_[at(t)] += bytes;
  }
  double pair(int table, const ProblemEdge& edge) const {
    return problem_.tables[at(table)].at(choices_[at(edge.from)], choices_[at(edge.to)]);
  }

  // A bound that is only larger by rounding does not end a branch.
  bool is_within_limit(double peak) const { return peak <= use_limit_ * (1 + 1e-12); }

  double peak() const {
    return use_.empty() ? problem_.base_use : *std::max_element(use_.begin(), use_.end());
  }
  static double least(const std::vector<double>& values) {
    return *std::min_element(values.begin(), values.end());
  }

  // The open node with the fewest choices that could still lead to something
  // better.
  std::size_t next_node(double cost, double rest) const {
    std::size_t next = choices_.size(), fewest = 0;
    for (std::size_t n = 0; n < choices_.size(); ++n) {
      if (choices_[n] >= 0) continue;
      const double others = cost + rest - least(lower_[n]);
      std::size_t open = 0;
      for (double value : lower_[n]) open += is_open(others + value) ? 1 : 0;
      if (next < choices_.size() && open >= fewest) continue;
      next = n;
      fewest = open;
    }
    return next;
  }
  bool is_open(double cost) const { return goal_ == Goal::kCost ? cost < best_ : cost < kInfinity; }

  void visit(std::size_t depth, double cost) {
    double rest = 0;
    for (std::size_t n = 0; n < choices_.size(); ++n) {
      if (choices_[n] >= 0) continue;
      rest += least(lower_[n]);
      steps_ -= static_cast<double>(lower_[n].size());
    }
    const double use = peak();
    if (!is_open(cost + rest) || !is_within_limit(use)) return;
    if (goal_ == Goal::kPeak && !(use < best_)) return;
    if (depth == choices_.size()) return complete();
    const std::size_t n = next_node(cost, rest);
    const std::vector<double> own = lower_[n];
    use_least(n, -1);
    for (std::size_t c = 0; c < own.size() && steps_ > 0; ++c) {
      if (!is_open(cost + rest - least(own) + own[c])) continue;
      choose(n, static_cast<int>(c), depth, cost + own[c]);
    }
    choices_[n] = -1;
    use_least(n, 1);
  }

  void choose(std::size_t n, int choice, std::size_t depth, double cost) {
    choices_[n] = choice;
    use_of(n, 1);
    std::vector<std::pair<std::size_t, std::vector<double>>> before;
    for (const Neighbour& neighbour : neighbours_[n]) {
      const ProblemEdge& edge = *neighbour.edge;
      const std::size_t m = neighbour.node;
      if (choices_[m] >= 0 || edge.cost_table < 0) continue;
      before.emplace_back(m, lower_[m]);
      for (std::size_t c = 0; c < lower_[m].size(); ++c) {
        choices_[m] = static_cast<int>(c);
        lower_[m][c] += pair(edge.cost_table, edge);
      }
      choices_[m] = -1;
    }
    visit(depth + 1, cost);
    for (; !before.empty(); before.pop_back()) {
      lower_[before.back().first] = std::move(before.back().second);
    }
    use_of(n, -1);
  }

  // What the choice of a node brings, with the edges to those chosen before.
  void use_of(std::size_t n, double sign) {
    for (const NodeUse& use : problem_.nodes[n].uses) {
      add(use.begin, use.end, sign * use.bytes[at(choices_[n])]);
    }
    for (const Neighbour& neighbour : neighbours_[n]) {
      if (choices_[neighbour.node] < 0) continue;
      for (const EdgeUse& use : neighbour.edge->uses) {
        add(use.begin, use.end, sign * pair(use.table, *neighbour.edge));
      }
    }
  }

  void complete() {
    const Evaluation exact = evaluate(problem_, choices_);
    if (exact.peak_use > use_limit_ || exact.cost == kInfinity) return;
    const double value = goal_ == Goal::kCost ? exact.cost : exact.peak_use;
    if (!(value < best_)) return;
    best_ = value;
    found_ = choices_;
  }

  const Problem& problem_;
  const Goal goal_;
  const double use_limit_;
  double best_;
  double& steps_;
  std::vector<std::vector<Neighbour>> neighbours_;
  std::vector<std::vector<double>> lower_;  // of open nodes: each choice with those made so far
  std::vector<int> choices_;                // -1: open
  std::vector<double> use_;  // of the choices made, and of open nodes what they need at least
  std::vector<int> found_;
};

Error too_many(const Problem& problem, double limit) {
  double digits = 0;
  for (const ProblemNode& node : problem.nodes) {
    digits += std::log10(
        std::count_if(node.cost.begin(), node.cost.end(), [](double c) { return c < kInfinity; }));
  }
  char text[240];
  std::snprintf(text, sizeof text,
                "some 10^%.0f combinations are too many for the exhaustive search: "
                "they were not all tried "
                "or ruled out after looking at choices %.3g times, its limit; "
                "use the searcher dp",
                digits, limit);
  return input_error(text);
}

void take(const Problem& problem, const std::vector<int>& choices, Solution& solution) {
  const Evaluation found = evaluate(problem, choices);
  solution.feasible = true;
  solution.choices = choices;
  solution.cost = found.cost;
  solution.peak_use = found.peak_use;
}

void note_peak(const Problem& problem, const std::vector<int>& choices, Solution& solution) {
  const Evaluation found = evaluate(problem, choices);
  if (!(found.peak_use < solution.least_peak_use)) return;
  solution.least_peak_use = found.peak_use;
  solution.tightest_time = found.peak_time;
}

}  // namespace

Result<Solution> solve_exhaustive(const Problem& problem, double limit) {
  AUTOPAR_RETURN_IF_ERROR(verify(problem));
  double steps = limit;
  Solution solution;
  solution.end = SolveEnd::kProven;
  Tree unlimited(problem, Tree::Goal::kCost, kInfinity, kInfinity, steps);
  if (!unlimited.run()) return too_many(problem, limit);
  solution.lower_bound = solution.unlimited_lower_bound = kInfinity;
  if (unlimited.found().empty()) return solution;  // all is forbidden
  solution.unlimited_lower_bound = evaluate(problem, unlimited.found()).cost;
  note_peak(problem, unlimited.found(), solution);
  std::vector<int> best = unlimited.found();
  if (solution.least_peak_use > problem.use_limit) {
    Tree limited(problem, Tree::Goal::kCost, problem.use_limit, kInfinity, steps);
    if (!limited.run()) return too_many(problem, limit);
    best = limited.found();
  }
  if (!best.empty()) {
    take(problem, best, solution);
    solution.lower_bound = solution.cost;
    return solution;
  }
  // Nothing fits: how much would have to.
  Tree flattest(problem, Tree::Goal::kPeak, kInfinity, solution.least_peak_use, steps);
  solution.least_peak_proven = flattest.run();
  if (!flattest.found().empty()) note_peak(problem, flattest.found(), solution);
  return solution;
}

}  // namespace autopar
