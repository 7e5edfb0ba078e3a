// A problem in the form of the IOPDDL contest.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "autopar/iopddl.hpp"

namespace autopar {
namespace {

// Hands text on in pieces, since tables may be larger than memory.
class TextPieces {
 public:
  explicit TextPieces(const TakeText& take) : take_(take) {}

  void add(std::string_view text) {
    if (buffer_.size() + text.size() > kPiece) finish();
    buffer_ += text;
  }
  void add(std::int64_t number) {
    std::array<char, 24> digits;
    const char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    add(std::string_view(digits.data(), end));
  }
  // `add_item(i)` adds the i-th of so many.
  template <class AddItem>
  void add_array(std::size_t count, AddItem add_item) {
    add("[");
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) add(",");
      add_item(i);
    }
    add("]");
  }
  void add_array(const std::vector<std::int64_t>& numbers) {
    add_array(numbers.size(), [&](std::size_t i) { add(numbers[i]); });
  }
  // The error of what takes it, or 0.
  int finish() {
    if (error_ == 0) error_ = take_(buffer_);
    buffer_.clear();
    return error_;
  }

 private:
  static constexpr std::size_t kPiece = 1 << 20;  // bytes: some thousand numbers; not measured
  const TakeText& take_;
  std::string buffer_;
  int error_ = 0;
};

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

class IopddlWriter {
 public:
  IopddlWriter(const Problem& problem, double cost_factor, double use_factor)
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

  int write(const std::string& name, const TakeText& take) {
    add_all();
    TextPieces text(take);
    text.add("{\"problem\":{\"name\":" + nlohmann::json(name).dump());
    text.add(",\"nodes\":{\"intervals\":");
    text.add_array(nodes_.size(), [&](std::size_t n) {
      text.add_array({nodes_[n].begin, nodes_[n].end});
    });
    text.add(",\"costs\":");
    text.add_array(nodes_.size(), [&](std::size_t n) { text.add_array(nodes_[n].costs); });
    text.add(",\"usages\":");
    text.add_array(nodes_.size(), [&](std::size_t n) { text.add_array(nodes_[n].uses); });
    text.add("},\"edges\":{\"nodes\":");
    text.add_array(edges_.size(), [&](std::size_t e) {
      text.add_array({edges_[e].from, edges_[e].to});
    });
    text.add(",\"costs\":");
    text.add_array(edges_.size(), [&](std::size_t e) { add_costs(edges_[e], text); });
    text.add("},\"usage_limit\":");
    text.add(problem_.use_limit == kInfinity ? whole(most_) : limit());
    text.add("}}\n");
    return text.finish();
  }

 private:
  struct WrittenNode {
    std::int64_t begin, end;
    std::vector<std::int64_t> costs, uses;
  };
  // With a table, or one that allows choices of equal numbers alone.
  struct WrittenEdge {
    int from, to;
    const CostTable* table = nullptr;
    std::vector<int> from_numbers = {}, to_numbers = {};
  };

  static std::int64_t whole(double value) { return static_cast<std::int64_t>(value); }
  std::int64_t cost(double value) const {
    return whole(value == kInfinity ? kIopddlForbidden : std::round(value * cost_factor_));
  }
  std::int64_t limit() const {
    return whole(std::max(0.0, std::floor((problem_.use_limit - problem_.base_use) * use_factor_)));
  }

  // Whether the most that can be in use exceeds the limit then; else the uses do not matter.
  bool may_overflow(int begin, int end) const {
    return std::any_of(most_at_.begin() + begin, most_at_.begin() + std::max(begin, end),
                       [this](double most) { return most > problem_.use_limit; });
  }

  void add_all() {
    for (const ProblemNode& node : problem_.nodes) {
      add_node(node.cost, node.uses.empty() ? nullptr : &node.uses[0]);
    }
    for (const ProblemEdge& edge : problem_.edges) {
      if (edge.cost_table < 0) continue;
      const CostTable& table = problem_.tables[static_cast<std::size_t>(edge.cost_table)];
      edges_.push_back({edge.from, edge.to, &table});
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
  }

  // Returns the number of the node.
  int add_node(const std::vector<double>& cost_of_choice, const NodeUse* use) {
    WrittenNode node = {use == nullptr ? 0 : use->begin, use == nullptr ? 0 : use->end, {}, {}};
    double most = 0;
    for (std::size_t c = 0; c < cost_of_choice.size(); ++c) {
      const double bytes = use == nullptr ? 0 : std::ceil(use->bytes[c] * use_factor_);
      most = std::max(most, bytes);
      node.costs.push_back(cost(cost_of_choice[c]));
      node.uses.push_back(whole(bytes));
    }
    most_ += most;
    nodes_.push_back(std::move(node));
    return static_cast<int>(nodes_.size()) - 1;
  }

  void add_further_use(int node, const NodeUse& use) {
    const int made = add_node(std::vector<double>(use.bytes.size(), 0.0), &use);
    std::vector<int> numbers(use.bytes.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    edges_.push_back({node, made, nullptr, numbers, numbers});
  }

  void add_edge_use(const ProblemEdge& edge, const EdgeUse& use) {
    const CostTable& bytes = problem_.tables[static_cast<std::size_t>(use.table)];
    Classes rows = equal_lines(bytes, true), columns = equal_lines(bytes, false);
    NodeUse pairs = {use.begin, use.end, {}};
    std::vector<int> row_of, column_of;  // per pair
    for (std::size_t r = 0; r < rows.first.size(); ++r) {
      for (std::size_t c = 0; c < columns.first.size(); ++c) {
        pairs.bytes.push_back(bytes.at(rows.first[r], columns.first[c]));
        row_of.push_back(static_cast<int>(r));
        column_of.push_back(static_cast<int>(c));
      }
    }
    const int made = add_node(std::vector<double>(pairs.bytes.size(), 0.0), &pairs);
    edges_.push_back({edge.from, made, nullptr, std::move(rows.of), std::move(row_of)});
    edges_.push_back({edge.to, made, nullptr, std::move(columns.of), std::move(column_of)});
  }

  void add_costs(const WrittenEdge& edge, TextPieces& text) const {
    const auto add_pairs = [&](std::size_t rows, std::size_t columns, const auto& cost_of) {
      text.add_array(rows * columns, [&](std::size_t i) {
        text.add(cost(cost_of(static_cast<int>(i / columns), static_cast<int>(i % columns))));
      });
    };
    if (edge.table != nullptr) {
      return add_pairs(static_cast<std::size_t>(edge.table->rows),
                       static_cast<std::size_t>(edge.table->columns),
                       [&](int r, int c) { return edge.table->at(r, c); });
    }
    add_pairs(edge.from_numbers.size(), edge.to_numbers.size(), [&](int i, int j) {
      const bool is_allowed = edge.from_numbers[static_cast<std::size_t>(i)] ==
                              edge.to_numbers[static_cast<std::size_t>(j)];
      return is_allowed ? 0.0 : kInfinity;
    });
  }

  const Problem& problem_;
  double cost_factor_, use_factor_;
  double most_ = 0;
  std::vector<double> most_at_;  // that can be in use, per time
  std::vector<WrittenNode> nodes_;
  std::vector<WrittenEdge> edges_;
};

}  // namespace

int problem_to_iopddl(const Problem& problem, const std::string& name, double cost_factor,
                      double use_factor, const TakeText& take) {
  return IopddlWriter(problem, cost_factor, use_factor).write(name, take);
}

std::string problem_to_iopddl(const Problem& problem, const std::string& name) {
  std::string text;
  problem_to_iopddl(problem, name, 1, 1, [&](std::string_view piece) {
    text += piece;
    return 0;
  });
  return text;
}

}  // namespace autopar
