#include "autopar/iopddl.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "autopar/files.hpp"
#include "io/gzip.hpp"
#include "json/parse.hpp"

namespace autopar {
namespace {

using JsonValue = nlohmann::json;

// Finds members and numbers, with the place in the message where they are not as expected.
class IopddlReader {
 public:
  explicit IopddlReader(std::string file) : file_(std::move(file)) {}

  Result<IopddlProblem> read(const JsonValue& document) {
    AUTOPAR_TRY(root, member(document, "problem", "", JsonValue::value_t::object));
    const JsonValue& body = *root;
    if (const auto name = body.find("name"); name != body.end() && name->is_string()) {
      result_.name = name->get<std::string>();
    }
    AUTOPAR_RETURN_IF_ERROR(read_nodes(body));
    AUTOPAR_RETURN_IF_ERROR(read_edges(body));
    count_times();
    const auto limit = body.find("usage_limit");
    if (limit != body.end()) {
      AUTOPAR_TRY(bytes, number(*limit, "problem.usage_limit"));
      result_.problem.use_limit = bytes;
    }
    if (Status status = verify(result_.problem); !status) {
      return input_error(file_ + ": " + status.error().message);
    }
    return std::move(result_);
  }

 private:
  Error expected(const std::string& where, const std::string& what, const JsonValue& found) const {
    return input_error(file_ + ": " + where + ": expected " + what + ", found " +
                       found_text(found));
  }

  Result<const JsonValue*> member(const JsonValue& parent, const std::string& key,
                                  const std::string& path, JsonValue::value_t type) const {
    const std::string where = path.empty() ? key : path + "." + key;
    if (!parent.is_object()) return expected(path.empty() ? "the file" : path, "an object", parent);
    const auto found = parent.find(key);
    if (found == parent.end()) return input_error(file_ + ": " + where + " is missing");
    if (found->type() != type) {
      return expected(where, type == JsonValue::value_t::array ? "a list" : "an object", *found);
    }
    return &*found;
  }

  Result<double> number(const JsonValue& value, const std::string& where) const {
    if (!value.is_number()) return expected(where, "a number", value);
    const double found = value.get<double>();
    if (!(found >= 0)) return expected(where, "a number >= 0", value);
    return found;
  }

  Result<std::vector<double>> numbers(const JsonValue& list, const std::string& where) const {
    if (!list.is_array()) return expected(where, "a list of numbers", list);
    std::vector<double> values;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!list[i].is_number() || !(list[i].get<double>() >= 0)) {
        return expected(where + "[" + std::to_string(i) + "]", "a number >= 0", list[i]);
      }
      values.push_back(list[i].get<double>());
    }
    return values;
  }

  Result<std::vector<double>> costs(const JsonValue& list, const std::string& where) const {
    AUTOPAR_TRY(values, numbers(list, where));
    for (double& value : values) value = value >= kIopddlForbidden ? kInfinity : value;
    return std::move(values);
  }

  Result<std::pair<int, int>> integers(const JsonValue& list, const std::string& where) const {
    const auto fits = [](const JsonValue& value) {
      return value.is_number_integer() && value.get<std::int64_t>() >= 0 &&
             value.get<std::int64_t>() < std::numeric_limits<int>::max();
    };
    if (!list.is_array() || list.size() != 2 || !fits(list[0]) || !fits(list[1])) {
      return expected(where, "two integers >= 0", list);
    }
    return std::pair(list[0].get<int>(), list[1].get<int>());
  }

  Status read_nodes(const JsonValue& body) {
    AUTOPAR_TRY(nodes, member(body, "nodes", "problem", JsonValue::value_t::object));
    const std::string path = "problem.nodes";
    AUTOPAR_TRY(intervals, member(*nodes, "intervals", path, JsonValue::value_t::array));
    AUTOPAR_TRY(cost_lists, member(*nodes, "costs", path, JsonValue::value_t::array));
    AUTOPAR_TRY(use_lists, member(*nodes, "usages", path, JsonValue::value_t::array));
    const std::size_t count = cost_lists->size();
    if (intervals->size() != count || use_lists->size() != count) {
      return input_error(file_ + ": " + path + ": intervals, costs and usages have " +
                         std::to_string(intervals->size()) + ", " + std::to_string(count) +
                         " and " + std::to_string(use_lists->size()) +
                         " entries, expected the same number");
    }
    for (std::size_t n = 0; n < count; ++n) {
      const std::string index = "[" + std::to_string(n) + "]";
      ProblemNode node;
      AUTOPAR_TRY(interval, integers((*intervals)[n], path + ".intervals" + index));
      AUTOPAR_TRY(cost, costs((*cost_lists)[n], path + ".costs" + index));
      AUTOPAR_TRY(bytes, numbers((*use_lists)[n], path + ".usages" + index));
      node.cost = std::move(cost);
      const auto [begin, end] = interval;
      if (begin < end) node.uses.push_back({begin, end, std::move(bytes)});
      result_.problem.nodes.push_back(std::move(node));
    }
    return Ok{};
  }

  void count_times() {
    std::vector<int>& times = result_.times;
    const auto count = [&times](int time) {
      return static_cast<int>(std::lower_bound(times.begin(), times.end(), time) - times.begin());
    };
    for (const ProblemNode& node : result_.problem.nodes) {
      for (const NodeUse& use : node.uses) times.insert(times.end(), {use.begin, use.end});
    }
    std::sort(times.begin(), times.end());
    times.erase(std::unique(times.begin(), times.end()), times.end());
    for (ProblemNode& node : result_.problem.nodes) {
      for (NodeUse& use : node.uses) use = {count(use.begin), count(use.end), std::move(use.bytes)};
    }
    if (!times.empty()) times.pop_back();  // where the last interval ends
    result_.problem.horizon = static_cast<int>(times.size());
  }

  Status read_edges(const JsonValue& body) {
    AUTOPAR_TRY(edges, member(body, "edges", "problem", JsonValue::value_t::object));
    const std::string path = "problem.edges";
    AUTOPAR_TRY(ends, member(*edges, "nodes", path, JsonValue::value_t::array));
    AUTOPAR_TRY(cost_lists, member(*edges, "costs", path, JsonValue::value_t::array));
    if (ends->size() != cost_lists->size()) {
      return input_error(file_ + ": " + path + ": nodes and costs have " +
                         std::to_string(ends->size()) + " and " +
                         std::to_string(cost_lists->size()) + " entries, expected the same number");
    }
    Problem& problem = result_.problem;
    for (std::size_t e = 0; e < ends->size(); ++e) {
      const std::string index = "[" + std::to_string(e) + "]";
      AUTOPAR_TRY(pair, integers((*ends)[e], path + ".nodes" + index));
      AUTOPAR_TRY(values, costs((*cost_lists)[e], path + ".costs" + index));
      const auto [from, to] = pair;
      const std::size_t count = problem.nodes.size();
      if (static_cast<std::size_t>(from) >= count || static_cast<std::size_t>(to) >= count) {
        return expected(path + ".nodes" + index, "nodes below " + std::to_string(count),
                        (*ends)[e]);
      }
      const std::size_t rows = problem.nodes[static_cast<std::size_t>(from)].cost.size();
      const std::size_t columns = problem.nodes[static_cast<std::size_t>(to)].cost.size();
      if (values.size() != rows * columns) {
        return input_error(file_ + ": " + path + ".costs" + index + ": has " +
                           std::to_string(values.size()) + " values, expected " +
                           std::to_string(rows) + " x " + std::to_string(columns));
      }
      const int table =
          problem.add_table({static_cast<int>(rows), static_cast<int>(columns), std::move(values)});
      problem.edges.push_back({.from = from, .to = to, .cost_table = table, .uses = {}});
    }
    return Ok{};
  }

  std::string file_;
  IopddlProblem result_;
};

}  // namespace

Result<IopddlProblem> parse_iopddl(const std::string& text, const std::string& file) {
  AUTOPAR_TRY(document, parse_json(text, file));
  return IopddlReader(file).read(document);
}

Result<IopddlProblem> read_iopddl(const std::string& path) {
  AUTOPAR_TRY(bytes, read_file(path));
  AUTOPAR_TRY(text, unzipped(std::move(bytes), path));
  return parse_iopddl(text, path);
}

}  // namespace autopar
