// A problem in the form of the IOPDDL contest.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "autopar/iopddl.hpp"

namespace autopar {
namespace {

using JsonValue = nlohmann::json;

// Per row (or column) of a table the number of its class: rows of one class are equal.
struct Classes {
  std::vector<int> of;
  std::vector<int> first;  // a member of each
};
Classes equal_lines(const CostTable& table, bool rows) {
  Classes classes;
  std::map<std::vector<double>, int> known;
  for (int i = 0; i < (rows ? table.rows : table.columns); ++i) {
    std::vector<double> line;
    for (int j = 0; j < (rows ? table.columns : table.rows); ++j) {
      line.push_back(rows ? table.at(i, j) : table.at(j, i));
    }
    const auto [found, added] =
        known.emplace(std::move(line), static_cast<int>(classes.first.size()));
    if (added) classes.first.push_back(i);
    classes.of.push_back(found->second);
  }
  return classes;
}

class Writer {
 public:
  Writer(const Problem& problem, double cost_factor, double use_factor)
      : problem_(problem),
        cost_factor_(cost_factor),
        use_factor_(use_factor),
        most_at_(static_cast<std::size_t>(problem.horizon) + 1, 0.0) {
    const auto add = [this](int begin, int end, const std::vector<double>& bytes) {
      const double most = *std::max_element(bytes.begin(), bytes.end());
      most_at_[static_cast<std::size_t>(begin)] += begin < end ? most : 0;
      most_at_[static_cast<std::size_t>(end)] -= begin < end ? most : 0;
    };
    for (const ProblemNode& node : problem.nodes) {
      for (const NodeUse& use : node.uses) add(use.begin, use.end, use.bytes);
    }
    for (const ProblemEdge& edge : problem.edges) {
      for (const EdgeUse& use : edge.uses) {
        add(use.begin, use.end, problem.tables[static_cast<std::size_t>(use.table)].values);
      }
    }
    double sum = problem.base_use;
    for (double& most : most_at_) most = sum += most;
  }

  nlohmann::ordered_json write(const std::string& name) {
    for (const ProblemNode& node : problem_.nodes) {
      add_node(node.cost, node.uses.empty() ? nullptr : &node.uses[0]);
    }
    for (const ProblemEdge& edge : problem_.edges) {
      if (edge.cost_table >= 0) {
        add_edge(edge.from, edge.to, problem_.tables[static_cast<std::size_t>(edge.cost_table)]);
      }
    }
    for (std::size_t n = 0; n < problem_.nodes.size(); ++n) {
      const std::vector<NodeUse>& uses = problem_.nodes[n].uses;
      for (std::size_t u = 1; u < uses.size(); ++u) add_further_use(static_cast<int>(n), uses[u]);
    }
    for (const ProblemEdge& edge : problem_.edges) {
      for (const EdgeUse& use : edge.uses) {
        if (may_overflow(use.begin, use.end)) add_edge_use(edge, use);
      }
    }
    // No limit is below 0 there; where nothing fits, one more node does not fit.
    if (problem_.base_use > problem_.use_limit) {
      const NodeUse too_much = {0, 1, {std::max(1.0, 1 / use_factor_)}};
      add_node({0.0}, &too_much);
    }
    nlohmann::ordered_json body;
    body["name"] = name;
    body["nodes"]["intervals"] = std::move(intervals_);
    body["nodes"]["costs"] = std::move(costs_);
    body["nodes"]["usages"] = std::move(usages_);
    body["edges"]["nodes"] = std::move(ends_);
    body["edges"]["costs"] = std::move(tables_);
    body["usage_limit"] = problem_.use_limit == kInfinity ? whole(most_) : limit();
    return nlohmann::ordered_json({{"problem", std::move(body)}});
  }

 private:
  static JsonValue whole(double value) { return static_cast<std::int64_t>(value); }
  JsonValue cost(double value) const {
    return whole(value == kInfinity ? kIopddlForbidden : std::round(value * cost_factor_));
  }
  JsonValue limit() const {
    return whole(std::max(0.0, std::floor((problem_.use_limit - problem_.base_use) * use_factor_)));
  }

  // Whether the most that can be in use exceeds the limit then; else the uses do not matter.
  bool may_overflow(int begin, int end) const {
    return std::any_of(most_at_.begin() + begin, most_at_.begin() + std::max(begin, end),
                       [this](double most) { return most > problem_.use_limit; });
  }

  // Returns the number of the node.
  int add_node(const std::vector<double>& cost_of_choice, const NodeUse* use) {
    JsonValue node_costs = JsonValue::array(), node_uses = JsonValue::array();
    double most = 0;
    for (std::size_t c = 0; c < cost_of_choice.size(); ++c) {
      const double bytes = use == nullptr ? 0 : std::ceil(use->bytes[c] * use_factor_);
      most = std::max(most, bytes);
      node_costs.push_back(cost(cost_of_choice[c]));
      node_uses.push_back(whole(bytes));
    }
    most_ += most;
    intervals_.push_back({use == nullptr ? 0 : use->begin, use == nullptr ? 0 : use->end});
    costs_.push_back(std::move(node_costs));
    usages_.push_back(std::move(node_uses));
    return static_cast<int>(costs_.size()) - 1;
  }

  void add_edge(int from, int to, const CostTable& table) {
    JsonValue values = JsonValue::array();
    for (int r = 0; r < table.rows; ++r) {
      for (int c = 0; c < table.columns; ++c) values.push_back(cost(table.at(r, c)));
    }
    ends_.push_back({from, to});
    tables_.push_back(std::move(values));
  }

  // Only pairs for which allowed(choice of `from`, choice of `to`) holds.
  template <class Allowed>
  void tie(int from, int from_count, int to, int to_count, Allowed allowed) {
    CostTable table = {from_count, to_count, {}};
    for (int i = 0; i < from_count; ++i) {
      for (int j = 0; j < to_count; ++j) {
        table.values.push_back(allowed(i, j) ? 0.0 : kInfinity);
      }
    }
    add_edge(from, to, table);
  }

  void add_further_use(int node, const NodeUse& use) {
    const int count = static_cast<int>(use.bytes.size());
    const int made = add_node(std::vector<double>(use.bytes.size(), 0.0), &use);
    tie(node, count, made, count, [](int i, int j) { return i == j; });
  }

  void add_edge_use(const ProblemEdge& edge, const EdgeUse& use) {
    const CostTable& bytes = problem_.tables[static_cast<std::size_t>(use.table)];
    const Classes rows = equal_lines(bytes, true), columns = equal_lines(bytes, false);
    const int width = static_cast<int>(columns.first.size());
    NodeUse pairs = {use.begin, use.end, {}};
    for (int r : rows.first) {
      for (int c : columns.first) pairs.bytes.push_back(bytes.at(r, c));
    }
    const int count = static_cast<int>(pairs.bytes.size());
    const int made = add_node(std::vector<double>(pairs.bytes.size(), 0.0), &pairs);
    tie(edge.from, bytes.rows, made, count,
        [&](int i, int pair) { return rows.of[static_cast<std::size_t>(i)] == pair / width; });
    tie(edge.to, bytes.columns, made, count,
        [&](int i, int pair) { return columns.of[static_cast<std::size_t>(i)] == pair % width; });
  }

  const Problem& problem_;
  double cost_factor_, use_factor_;
  double most_ = 0;
  std::vector<double> most_at_;  // that can be in use, per time
  JsonValue intervals_ = JsonValue::array(), costs_ = JsonValue::array();
  JsonValue usages_ = JsonValue::array();
  JsonValue ends_ = JsonValue::array(), tables_ = JsonValue::array();
};

}  // namespace

std::string problem_to_iopddl(const Problem& problem, const std::string& name, double cost_factor,
                              double use_factor) {
  return Writer(problem, cost_factor, use_factor).write(name).dump() + "\n";
}

}  // namespace autopar
