// From a Problem to a Network: forbidden choices left out, tables compressed, times that cannot
// bind dropped.
#include <algorithm>
#include <utility>

#include "solve/network/network.hpp"

namespace autopar::solver {
namespace {

class NetworkBuilder {
 public:
  NetworkBuilder(const Problem& problem, std::vector<int> times)
      : problem_(problem), net_(std::make_unique<Network>()), tables_(problem.tables.size()) {
    net_->row_time = std::move(times);
    net_->capacity.assign(net_->row_time.size(), problem.use_limit - problem.base_use);
    net_->multiplier.assign(net_->row_time.size(), 0.0);
    net_->impossible = problem.base_use > problem.use_limit && !net_->row_time.empty();
  }

  std::unique_ptr<Network> run() {
    for (std::size_t n = 0; n < problem_.nodes.size(); ++n) add_node(n);
    for (const ProblemEdge& edge : problem_.edges) add_edge(edge);
    for (std::size_t n = 0; n < net_->nodes.size(); ++n) {
      if (!net_->impossible) normalise(*net_, static_cast<int>(n));
    }
    return std::move(net_);
  }

 private:
  void add_node(std::size_t n) {
    const ProblemNode& node = problem_.nodes[n];
    Labels kept;
    for (std::size_t c = 0; c < node.cost.size(); ++c) {
      if (node.cost[c] < kInfinity) kept.push_back(static_cast<int>(c));
    }
    if (kept.empty()) net_->impossible = true;
    Algebra& algebra = net_->algebra;
    kept_.push_back(algebra.add_labels(kept));
    Node made;
    made.cost = algebra.select_vector(algebra.add_vector(node.cost), kept_.back());
    for (const NodeUse& use : node.uses) {
      const RowUse rows = rows_of(use.begin, use.end);
      if (rows.begin == rows.end) continue;
      const int bytes = algebra.select_vector(algebra.add_vector(use.bytes), kept_.back());
      made.uses.push_back({rows.begin, rows.end, bytes});
    }
    net_->nodes.push_back(std::move(made));
    net_->origin.push_back(static_cast<int>(n));
    net_->origin_labels.push_back(std::move(kept));
  }

  Table table(int index, const ProblemEdge& edge) {
    Table& whole = tables_[at(index)];
    const CostTable& given = problem_.tables[at(index)];
    if (whole.core < 0) whole = whole_table(given);
    return {net_->algebra.select_labels(whole.map_a, kept_[at(edge.from)]),
            net_->algebra.select_labels(whole.map_b, kept_[at(edge.to)]), whole.core};
  }

  Table whole_table(const CostTable& given) {
    Algebra& algebra = net_->algebra;
    if (given.row_class.empty()) {
      return algebra.add_table(given.rows, given.columns, given.values);
    }
    const int row_classes = static_cast<int>(given.values.size()) / given.column_classes;
    const Table classes = algebra.add_table(row_classes, given.column_classes, given.values);
    return {algebra.select_labels(classes.map_a, algebra.add_labels(given.row_class)),
            algebra.select_labels(classes.map_b, algebra.add_labels(given.column_class)),
            classes.core};
  }

  void add_edge(const ProblemEdge& edge) {
    if (net_->impossible) return;
    std::vector<RowUse> uses;
    std::vector<Table> tables;
    for (const EdgeUse& use : edge.uses) {
      const RowUse rows = rows_of(use.begin, use.end);
      if (rows.begin == rows.end) continue;
      uses.push_back(rows);
      tables.push_back(table(use.table, edge));
    }
    if (edge.cost_table < 0 && uses.empty()) return;
    const auto labels = [&](int n) { return net_->origin_labels[at(n)].size(); };
    Table cost = edge.cost_table >= 0
                     ? table(edge.cost_table, edge)
                     : net_->algebra.blank_table(labels(edge.from), labels(edge.to));
    if (uses.empty()) cost = net_->algebra.tidy(cost);
    tables.insert(tables.begin(), cost);
    Edge made = {edge.from, edge.to, {}, std::move(uses)};
    set_tables(*net_, made, tables);
    solver::add_edge(*net_, std::move(made));
  }

  RowUse rows_of(int begin, int end) const {
    const std::vector<int>& times = net_->row_time;
    const auto row = [&](int time) {
      return static_cast<int>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
    };
    return {row(begin), std::max(row(begin), row(end)), -1};
  }

  const Problem& problem_;
  std::unique_ptr<Network> net_;
  std::vector<Table> tables_;
  std::vector<int> kept_;
};

}  // namespace

std::vector<int> maximal_times(const Problem& problem) {
  std::vector<char> begins(at(problem.horizon) + 1, 0), ends(at(problem.horizon) + 1, 0);
  const auto mark = [&](int begin, int end) {
    if (begin >= end) return;
    begins[at(begin)] = 1;
    ends[at(end)] = 1;
  };
  for (const ProblemNode& node : problem.nodes) {
    for (const NodeUse& use : node.uses) {
      if (*std::max_element(use.bytes.begin(), use.bytes.end()) > 0) mark(use.begin, use.end);
    }
  }
  for (const ProblemEdge& edge : problem.edges) {
    for (const EdgeUse& use : edge.uses) mark(use.begin, use.end);
  }
  std::vector<int> times;
  int last_begin = -1;
  for (int t = 0; t <= problem.horizon; ++t) {
    if (ends[at(t)] && last_begin >= 0) {
      times.push_back(last_begin);
      last_begin = -1;
    }
    if (begins[at(t)]) last_begin = t;
  }
  return times;
}

std::unique_ptr<Network> build_network(const Problem& problem, const std::vector<int>& times) {
  return NetworkBuilder(problem, times).run();
}

}  // namespace autopar::solver
