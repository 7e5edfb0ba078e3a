#include "solve/patient/neighbourhood.hpp"

#include <algorithm>
#include <future>
#include <random>

#include "solve/effort.hpp"
#include "solve/limit/within_limit.hpp"
#include "solve/network/algebra.hpp"

namespace autopar::solver {
namespace {

using namespace effort::neighbourhood;

// The nodes that are free, the rest as it is; times are stretches in which the free nodes' uses do
// not change.
struct Part {
  Problem problem;
  std::vector<int> nodes;
  std::vector<int> choices;  // the present ones
  Budget budget = {};
  std::vector<int> found = {};  // better ones, if any
  bool closed = false;          // nothing is left open below the present ones' cost
};

class NeighbourhoodSearch {
 public:
  NeighbourhoodSearch(Race& race, int threads)
      : problem_(race.problem),
        race_(race),
        threads_(threads),
        budget_(race.budget),
        edges_of_(problem_.nodes.size()),
        position_(problem_.nodes.size(), -1) {
    for (std::size_t e = 0; e < problem_.edges.size(); ++e) {
      edges_of_[at(problem_.edges[e].from)].push_back(static_cast<int>(e));
      edges_of_[at(problem_.edges[e].to)].push_back(static_cast<int>(e));
    }
    for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
      if (problem_.nodes[n].cost.size() > 1) open_.push_back(static_cast<int>(n));
    }
  }

  void run() {
    while (!open_.empty() && race_.cost > race_.bound * (1 + 4e-12) && !budget_.over()) {
      profile_ = profile(race_.choices);
      std::vector<Part> parts;
      for (int k = 0; k < kRound; ++k) parts.push_back(make_part(draw_nodes(k % 2 == 0)));
      solve(parts);
      for (const Part& part : parts) {
        budget_.add(part.budget.work);
        take(part);
      }
    }
  }

 private:
  void solve(std::vector<Part>& parts) {
    const auto work = [&](std::size_t first) {
      for (std::size_t k = first; k < parts.size(); k += at(threads_)) solve(parts[k]);
    };
    std::vector<std::future<void>> others;
    for (int t = 1; t < threads_; ++t) {
      others.push_back(std::async(std::launch::async, work, at(t)));
    }
    work(0);
    for (std::future<void>& other : others) other.get();
  }

  void solve(Part& part) const {
    part.budget = budget_;
    part.budget.work = 0;
    part.budget.work_limit = kWork;
    part.budget.patient = false;
    const double cutoff = budget_.strictly_below(evaluate(part.problem, part.choices).cost);
    Race race(part.problem, part.budget, cutoff);
    search_within_limit(race, part.choices, 0);
    part.closed = race.bound >= cutoff;
    if (!(race.cost < cutoff)) return;
    part.closed = true;
    part.found = race.choices;
  }

  // Parts of one round may free the same nodes or the same memory, so each is looked at again.
  void take(const Part& part) {
    size_ = next_size(size_, part.closed, static_cast<double>(open_.size()));
    if (part.found.empty()) return;
    std::vector<int> choices = race_.choices;
    for (std::size_t n = 0; n < part.nodes.size(); ++n) choices[at(part.nodes[n])] = part.found[n];
    race_.offer(choices);
  }

  std::size_t below(std::size_t count) { return random_() % count; }

  // Around a node; or of those in use at a full time and around them.
  std::vector<int> draw_nodes(bool around_one) {
    std::vector<int> nodes;
    const auto add = [&](int n) {
      if (position_[at(n)] >= 0 || problem_.nodes[at(n)].cost.size() == 1) return;
      position_[at(n)] = static_cast<int>(nodes.size());
      nodes.push_back(n);
    };
    const std::size_t size = std::min(static_cast<std::size_t>(size_), open_.size());
    const std::vector<int> at_once = around_one ? std::vector<int>() : live_at_full_time();
    std::size_t next = 0;
    while (nodes.size() < size) {
      const bool grow = next < nodes.size() && (around_one || next + 4 > nodes.size());
      if (!grow) {
        const std::vector<int>& from = at_once.empty() || below(4) == 0 ? open_ : at_once;
        add(from[below(from.size())]);
        if (around_one) next = nodes.size() - 1;
        continue;
      }
      for (int e : edges_of_[at(nodes[next])]) {
        const ProblemEdge& edge = problem_.edges[at(e)];
        if (nodes.size() < size) add(edge.from == nodes[next] ? edge.to : edge.from);
      }
      ++next;
    }
    for (int n : nodes) position_[at(n)] = -1;
    std::sort(nodes.begin(), nodes.end());
    return nodes;
  }

  std::vector<int> live_at_full_time() {
    std::vector<int> full;
    for (std::size_t t = 0; t < profile_.size(); ++t) {
      if (profile_[t] > 0.999 * problem_.use_limit) full.push_back(static_cast<int>(t));
    }
    std::vector<int> nodes;
    if (full.empty()) return nodes;
    const int time = full[below(full.size())];
    for (int n : open_) {
      for (const NodeUse& use : problem_.nodes[at(n)].uses) {
        if (use.begin > time || use.end <= time) continue;
        nodes.push_back(n);
        break;
      }
    }
    return nodes;
  }

  // In use at every time.
  Vector profile(const std::vector<int>& choices) const {
    Vector change(at(problem_.horizon) + 1, 0.0);
    const auto add = [&](int begin, int end, double bytes) {
      if (begin >= end) return;
      change[at(begin)] += bytes;
      change[at(end)] -= bytes;
    };
    for (std::size_t n = 0; n < choices.size(); ++n) {
      for (const NodeUse& use : problem_.nodes[n].uses) {
        add(use.begin, use.end, use.bytes[at(choices[n])]);
      }
    }
    for (const ProblemEdge& edge : problem_.edges) {
      for (const EdgeUse& use : edge.uses) {
        add(use.begin, use.end,
            problem_.tables[at(use.table)].at(choices[at(edge.from)], choices[at(edge.to)]));
      }
    }
    double sum = problem_.base_use;
    for (double& value : change) value = sum += value;
    change.pop_back();
    return change;
  }

  Part make_part(std::vector<int> nodes) {
    Part part = {.problem = {}, .nodes = std::move(nodes), .choices = {}};
    Problem& made = part.problem;
    for (int n : part.nodes) {
      position_[at(n)] = static_cast<int>(made.nodes.size());
      made.nodes.push_back(problem_.nodes[at(n)]);
      part.choices.push_back(race_.choices[at(n)]);
    }
    for (int n : part.nodes) {
      for (int e : edges_of_[at(n)]) add_edge(problem_.edges[at(e)], n, made);
    }
    for (int n : part.nodes) position_[at(n)] = -1;
    if (problem_.use_limit < kInfinity) limit(part);
    return part;
  }

  // Within the part, or to a node that keeps its choice: then it is a cost and a use of n.
  void add_edge(const ProblemEdge& edge, int n, Problem& made) {
    const bool is_from = edge.from == n;
    const int other = is_from ? edge.to : edge.from;
    if (position_[at(other)] >= 0) {
      if (!is_from) return;  // the other end adds it
      ProblemEdge inner = edge;
      inner.from = position_[at(edge.from)];
      inner.to = position_[at(edge.to)];
      if (edge.cost_table >= 0)
        inner.cost_table = made.add_table(problem_.tables[at(edge.cost_table)]);
      for (EdgeUse& use : inner.uses) use.table = made.add_table(problem_.tables[at(use.table)]);
      made.edges.push_back(std::move(inner));
      return;
    }
    ProblemNode& node = made.nodes[at(position_[at(n)])];
    const auto value = [&](int table, std::size_t l) {
      const int mine = static_cast<int>(l), kept = race_.choices[at(other)];
      return problem_.tables[at(table)].at(is_from ? mine : kept, is_from ? kept : mine);
    };
    for (std::size_t l = 0; l < node.cost.size() && edge.cost_table >= 0; ++l) {
      node.cost[l] += value(edge.cost_table, l);
    }
    for (const EdgeUse& use : edge.uses) {
      NodeUse priced = {use.begin, use.end, {}};
      for (std::size_t l = 0; l < node.cost.size(); ++l)
        priced.bytes.push_back(value(use.table, l));
      node.uses.push_back(std::move(priced));
    }
  }

  // Time in stretches; one more node stands for what the others use in each.
  void limit(Part& part) const {
    Problem& made = part.problem;
    std::vector<int> ends = {0, problem_.horizon};
    for_each_use(made, [&](auto& use) {
      ends.push_back(use.begin);
      ends.push_back(use.end);
    });
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    const auto stretch = [&](int time) {
      return static_cast<int>(std::lower_bound(ends.begin(), ends.end(), time) - ends.begin());
    };
    for_each_use(made, [&](auto& use) {
      use.begin = stretch(use.begin);
      use.end = stretch(use.end);
    });
    made.horizon = static_cast<int>(ends.size()) - 1;
    made.use_limit = problem_.use_limit;
    // What they use now, taken off the fullest time of the stretch.
    Vector own(ends.size(), 0.0);
    for (std::size_t n = 0; n < part.choices.size(); ++n) {
      for (const NodeUse& use : made.nodes[n].uses) {
        for (int s = use.begin; s < use.end; ++s) own[at(s)] += use.bytes[at(part.choices[n])];
      }
    }
    for (const ProblemEdge& edge : made.edges) {
      for (const EdgeUse& use : edge.uses) {
        const double bytes =
            made.tables[at(use.table)].at(part.choices[at(edge.from)], part.choices[at(edge.to)]);
        for (int s = use.begin; s < use.end; ++s) own[at(s)] += bytes;
      }
    }
    ProblemNode rest = {.name = "the others", .cost = {0.0}, .uses = {}};
    for (int s = 0; s < made.horizon; ++s) {
      const double most =
          *std::max_element(profile_.begin() + ends[at(s)], profile_.begin() + ends[at(s) + 1]);
      rest.uses.push_back({s, s + 1, {std::max(0.0, most - own[at(s)])}});
    }
    made.nodes.push_back(std::move(rest));
    part.choices.push_back(0);
  }

  template <class Visit>
  static void for_each_use(Problem& problem, Visit visit) {
    for (ProblemNode& node : problem.nodes) {
      for (NodeUse& use : node.uses) visit(use);
    }
    for (ProblemEdge& edge : problem.edges) {
      for (EdgeUse& use : edge.uses) visit(use);
    }
  }

  const Problem& problem_;
  Race& race_;
  int threads_;
  Budget& budget_;
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> open_;      // nodes with several choices
  std::vector<int> position_;  // in the part being made; -1: not in it
  double size_ = kFirstSize;
  Vector profile_;
  std::mt19937 random_{1};
};

}  // namespace

double next_size(double size, bool closed, double most) {
  return std::clamp(size * (closed ? 1.02 : 0.9), kLeastSize, std::max(kLeastSize, most));
}

void search_neighbourhoods(Race& race, int threads) {
  NeighbourhoodSearch(race, std::max(1, threads)).run();
}

}  // namespace autopar::solver
