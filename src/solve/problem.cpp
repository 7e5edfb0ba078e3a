#include "autopar/problem.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace autopar {
namespace {

std::string node_label(const Problem& problem, std::size_t n) {
  const std::string& name = problem.nodes[n].name;
  return "node " + std::to_string(n) + (name.empty() ? "" : " (" + name + ")");
}

std::string edge_label(const Problem& problem, std::size_t e) {
  return "edge " + std::to_string(e) + " (" + std::to_string(problem.edges[e].from) + " -> " +
         std::to_string(problem.edges[e].to) + ")";
}

Status verify_times(int begin, int end, int horizon, const std::string& where) {
  if (begin < 0 || end < begin || end > horizon) {
    return input_error(where + ": live in [" + std::to_string(begin) + ", " + std::to_string(end) +
                       "), expected times within [0, " + std::to_string(horizon) + ")");
  }
  return Ok{};
}

Status verify_values(const std::vector<double>& values, bool infinite_allowed,
                     const std::string& where) {
  for (double value : values) {
    if (std::isnan(value) || value < 0 || (!infinite_allowed && std::isinf(value))) {
      return input_error(where + ": found " + std::to_string(value) + ", expected a number >= 0" +
                         (infinite_allowed ? "" : " and finite"));
    }
  }
  return Ok{};
}

Status verify_table(const Problem& problem, int table, const ProblemEdge& edge,
                    const std::string& where) {
  if (table < 0 || table >= static_cast<int>(problem.tables.size())) {
    return input_error(where + ": table " + std::to_string(table) + " does not exist; there are " +
                       std::to_string(problem.tables.size()));
  }
  const CostTable& found = problem.tables[static_cast<std::size_t>(table)];
  const std::size_t rows = problem.nodes[static_cast<std::size_t>(edge.from)].cost.size();
  const std::size_t columns = problem.nodes[static_cast<std::size_t>(edge.to)].cost.size();
  if (static_cast<std::size_t>(found.rows) != rows ||
      static_cast<std::size_t>(found.columns) != columns) {
    return input_error(where + ": table " + std::to_string(table) + " is " +
                       std::to_string(found.rows) + " x " + std::to_string(found.columns) +
                       ", expected " + std::to_string(rows) + " x " + std::to_string(columns));
  }
  return Ok{};
}

Status verify_node(const Problem& problem, std::size_t n) {
  const ProblemNode& node = problem.nodes[n];
  const std::string where = node_label(problem, n);
  if (node.cost.empty()) return input_error(where + ": has no choices, expected at least one");
  AUTOPAR_RETURN_IF_ERROR(verify_values(node.cost, true, where + ": costs"));
  for (const NodeUse& use : node.uses) {
    AUTOPAR_RETURN_IF_ERROR(verify_times(use.begin, use.end, problem.horizon, where));
    AUTOPAR_RETURN_IF_ERROR(verify_values(use.bytes, false, where + ": uses"));
    if (use.bytes.size() != node.cost.size()) {
      return input_error(where + ": a use has " + std::to_string(use.bytes.size()) +
                         " values, expected one per choice, " + std::to_string(node.cost.size()));
    }
  }
  return Ok{};
}

Status verify_edge(const Problem& problem, std::size_t e) {
  const ProblemEdge& edge = problem.edges[e];
  const std::string where = edge_label(problem, e);
  const int count = static_cast<int>(problem.nodes.size());
  if (edge.from < 0 || edge.from >= count || edge.to < 0 || edge.to >= count) {
    return input_error(where + ": joins nodes that do not exist; there are " +
                       std::to_string(count));
  }
  if (edge.from == edge.to) return input_error(where + ": joins a node with itself");
  if (edge.cost_table != -1) {
    AUTOPAR_RETURN_IF_ERROR(verify_table(problem, edge.cost_table, edge, where));
  }
  for (const EdgeUse& use : edge.uses) {
    AUTOPAR_RETURN_IF_ERROR(verify_times(use.begin, use.end, problem.horizon, where));
    AUTOPAR_RETURN_IF_ERROR(verify_table(problem, use.table, edge, where + ": use"));
    AUTOPAR_RETURN_IF_ERROR(verify_values(
        problem.tables[static_cast<std::size_t>(use.table)].values, false, where + ": uses"));
  }
  return Ok{};
}

double choice_use(const Problem& problem, const EdgeUse& use, const ProblemEdge& edge,
                  const std::vector<int>& choices) {
  return problem.tables[static_cast<std::size_t>(use.table)].at(
      choices[static_cast<std::size_t>(edge.from)], choices[static_cast<std::size_t>(edge.to)]);
}

}  // namespace

int Problem::add_table(CostTable table) {
  tables.push_back(std::move(table));
  return static_cast<int>(tables.size()) - 1;
}

namespace {

// Number of classes where each has a number below it; 0: it is not so.
int class_count(const std::vector<int>& classes, int members) {
  if (static_cast<int>(classes.size()) != members) return 0;
  const int count = *std::max_element(classes.begin(), classes.end()) + 1;
  return *std::min_element(classes.begin(), classes.end()) >= 0 ? count : 0;
}

Status verify_size(const CostTable& table, const std::string& where) {
  int rows = table.rows, columns = table.columns;
  if (rows > 0 && columns > 0 && !table.row_class.empty()) {
    rows = class_count(table.row_class, rows);
    columns =
        class_count(table.column_class, columns) == table.column_classes ? table.column_classes : 0;
  }
  if (rows > 0 && columns > 0 &&
      table.values.size() == static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns)) {
    return Ok{};
  }
  return input_error(where + ": has " + std::to_string(table.values.size()) + " values, expected " +
                     std::to_string(rows) + " x " + std::to_string(columns));
}

}  // namespace

Status verify(const Problem& problem) {
  if (problem.horizon < 0) return input_error("the problem's horizon is negative");
  if (std::isnan(problem.use_limit) || std::isnan(problem.base_use) || problem.base_use < 0 ||
      std::isinf(problem.base_use)) {
    return input_error("the problem's use limit or base use is not a number >= 0");
  }
  for (std::size_t t = 0; t < problem.tables.size(); ++t) {
    const CostTable& table = problem.tables[t];
    const std::string where = "table " + std::to_string(t);
    AUTOPAR_RETURN_IF_ERROR(verify_size(table, where));
    AUTOPAR_RETURN_IF_ERROR(verify_values(table.values, true, where));
  }
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    AUTOPAR_RETURN_IF_ERROR(verify_node(problem, n));
  }
  for (std::size_t e = 0; e < problem.edges.size(); ++e) {
    AUTOPAR_RETURN_IF_ERROR(verify_edge(problem, e));
  }
  return Ok{};
}

Evaluation evaluate(const Problem& problem, const std::vector<int>& choices) {
  AUTOPAR_CHECK(choices.size() == problem.nodes.size(), "one choice per node");
  Evaluation result;
  // Differences over time, so that long intervals cost no more than short ones. Ends are
  // subtracted only after the peak of their time step is taken, so sums of integers stay exact.
  std::vector<double> change(static_cast<std::size_t>(problem.horizon) + 1, 0.0);
  const auto add = [&](int begin, int end, double bytes) {
    if (begin >= end) return;
    change[static_cast<std::size_t>(begin)] += bytes;
    change[static_cast<std::size_t>(end)] -= bytes;
  };
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    const std::size_t choice = static_cast<std::size_t>(choices[n]);
    AUTOPAR_CHECK(choice < problem.nodes[n].cost.size(), "a choice is out of range");
    result.cost += problem.nodes[n].cost[choice];
    for (const NodeUse& use : problem.nodes[n].uses) add(use.begin, use.end, use.bytes[choice]);
  }
  for (const ProblemEdge& edge : problem.edges) {
    if (edge.cost_table != -1) {
      result.cost += problem.tables[static_cast<std::size_t>(edge.cost_table)].at(
          choices[static_cast<std::size_t>(edge.from)], choices[static_cast<std::size_t>(edge.to)]);
    }
    for (const EdgeUse& use : edge.uses) {
      add(use.begin, use.end, choice_use(problem, use, edge, choices));
    }
  }
  double use = problem.base_use;
  result.peak_use = use;
  for (std::size_t t = 0; t + 1 < change.size(); ++t) {
    use += change[t];
    if (use > result.peak_use) {
      result.peak_use = use;
      result.peak_time = static_cast<int>(t);
    }
  }
  return result;
}

Solution solve_restricted(const Problem& problem, const std::vector<std::vector<int>>& allowed,
                          const SolveOptions& options) {
  AUTOPAR_CHECK(allowed.size() == problem.nodes.size(), "one list of allowed choices per node");
  Problem narrowed = problem;
  for (std::size_t n = 0; n < allowed.size(); ++n) {
    if (allowed[n].empty()) continue;
    std::vector<double>& cost = narrowed.nodes[n].cost;
    std::vector<double> kept(cost.size(), kInfinity);
    for (int choice : allowed[n]) {
      AUTOPAR_CHECK(choice >= 0 && choice < static_cast<int>(cost.size()),
                    "an allowed choice is out of range");
      kept[static_cast<std::size_t>(choice)] = cost[static_cast<std::size_t>(choice)];
    }
    cost = std::move(kept);
  }
  return solve_dp(narrowed, options);
}

}  // namespace autopar
