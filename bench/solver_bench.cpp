// Seconds, cost, bound and gap of the search on bare problems, as JSON lines: made ones that look
// like the forward graph of a language model (`--layers N --axes 2|3 --memory PART`), or files in
// the form of IOPDDL.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "autopar/iopddl.hpp"
#include "autopar/problem.hpp"

namespace {

using namespace autopar;

// Candidates of a node: per mesh axis one of a few factors, so 5 choices on an axis are 25 on two.
// Tables are random but structured: the cost to go from one factor to another, summed over axes
// with a price per axis, and shared by all layers.
class LayeredModel {
 public:
  LayeredModel(int layers, int axes, bool with_memory) : with_memory_(with_memory), axes_(axes) {
    for (int a = 0; a < axes; ++a) axis_price_.push_back(1e-4 * (1 + 3 * a));
    layers_ = layers;
  }

  Problem make() {
    const int cos = add_node(4), sin = add_node(4), mask = add_node(3);
    int stream = add_node(5);
    for (int l = 0; l < layers_; ++l) {
      kind_ = 0;
      const int norm = op(5, {stream});
      const int normed = hub(5, norm);
      std::vector<int> heads;
      for (int branch = 0; branch < 3; ++branch) {
        const int projected = op(5, {normed, parameter()});
        const int split = op(5, {op(4, {projected})});
        if (branch == 2) {
          heads.push_back(split);
          continue;
        }
        const int turned = op(5, {op(4, {split})});
        const int with_cos = op(5, {split, cos}), with_sin = op(5, {turned, sin});
        heads.push_back(op(5, {with_cos, with_sin}));
      }
      const int scores = op(5, {heads[0], op(4, {heads[1]})});
      const int soft = op(5, {op(5, {scores, mask})});
      const int context = op(4, {op(5, {soft, heads[2]})});
      const int after = op(5, {stream, op(5, {context, parameter()})});
      const int residual = hub(5, after);
      const int second = hub(5, op(5, {residual}));
      const int gate = op(5, {second, parameter()}), up = op(5, {second, parameter()});
      const int product = op(5, {op(4, {gate}), up});
      stream = hub(5, op(5, {residual, op(5, {product, parameter()})}));
    }
    if (with_memory_) add_memory();
    return std::move(problem_);
  }

 private:
  // Values live until their last reader, parameters always; a table's reshard needs room while its
  // reader runs. A split halves.
  void add_memory() {
    const int count = static_cast<int>(problem_.nodes.size());
    problem_.horizon = count;
    std::vector<int> last(problem_.nodes.size());
    for (int n = 0; n < count; ++n) last[static_cast<std::size_t>(n)] = n + 1;
    std::vector<int> room(problem_.tables.size(), -1);
    for (ProblemEdge& edge : problem_.edges) {
      int& end = last[static_cast<std::size_t>(edge.from)];
      end = std::max(end, edge.to + 1);
      int& table = room[static_cast<std::size_t>(edge.cost_table)];
      if (table < 0) {
        CostTable bytes = problem_.tables[static_cast<std::size_t>(edge.cost_table)];
        for (double& value : bytes.values) value = std::floor(value * 1e11);
        table = problem_.add_table(std::move(bytes));
      }
      edge.uses.push_back({edge.to, edge.to + 1, table});
    }
    for (int n = 0; n < count; ++n) {
      ProblemNode& node = problem_.nodes[static_cast<std::size_t>(n)];
      const int per_axis = per_axis_[static_cast<std::size_t>(n)];
      const bool parameter = per_axis == 3 && n > 3;
      NodeUse use = {parameter ? 0 : n, parameter ? count : last[static_cast<std::size_t>(n)], {}};
      for (std::size_t c = 0; c < node.cost.size(); ++c) {
        double bytes = parameter ? 64e6 : 32e6;
        for (int rest = static_cast<int>(c), a = 0; a < axes_; ++a, rest /= per_axis) {
          if (rest % per_axis != 0) bytes /= 4;
        }
        use.bytes.push_back(std::floor(bytes));
      }
      node.uses.push_back(std::move(use));
    }
  }

  int choices(int per_axis) const {
    int count = 1;
    for (int a = 0; a < axes_; ++a) count *= per_axis;
    return count;
  }

  int add_node(int per_axis) {
    // The same place in every layer has the same costs.
    std::mt19937 shared(static_cast<unsigned>(17 + kind_++));
    ProblemNode node;
    for (int c = 0; c < choices(per_axis); ++c) {
      double cost = 1e-3;
      for (int rest = c, a = 0; a < axes_; ++a, rest /= per_axis) {
        // Factor 0 is "not split": the work stays whole.
        cost *= rest % per_axis == 0 ? 1.0 : 0.3 + 0.05 * static_cast<double>(shared() % 4);
      }
      node.cost.push_back(cost);
    }
    per_axis_.push_back(per_axis);
    problem_.nodes.push_back(node);
    return static_cast<int>(problem_.nodes.size()) - 1;
  }

  int op(int per_axis, const std::vector<int>& inputs) {
    const int n = add_node(per_axis);
    int slot = 0;
    for (int input : inputs) connect(input, n, slot++);
    return n;
  }
  int hub(int per_axis, int value) {
    const int n = op(per_axis, {value});
    std::fill(problem_.nodes.back().cost.begin(), problem_.nodes.back().cost.end(), 0.0);
    return n;
  }
  int parameter() {
    const int n = add_node(3);
    std::fill(problem_.nodes.back().cost.begin(), problem_.nodes.back().cost.end(), 0.0);
    return n;
  }

  void connect(int from, int to, int slot) {
    const int key =
        (per_axis_[static_cast<std::size_t>(from)] * 8 + per_axis_[static_cast<std::size_t>(to)]) *
            97 +
        (kind_ * 3 + slot) % 97;
    auto found = std::find(keys_.begin(), keys_.end(), key);
    if (found == keys_.end()) {
      keys_.push_back(key);
      tables_.push_back(add_table(from, to, key));
      found = keys_.end() - 1;
    }
    const int table = tables_[static_cast<std::size_t>(found - keys_.begin())];
    problem_.edges.push_back({.from = from, .to = to, .cost_table = table, .uses = {}});
  }

  int add_table(int from, int to, int key) {
    const int rows = per_axis_[static_cast<std::size_t>(from)];
    const int columns = per_axis_[static_cast<std::size_t>(to)];
    std::mt19937 shared(static_cast<unsigned>(key));
    // What a factor is to the value on the edge: one of four placements of an axis.
    std::vector<int> made(static_cast<std::size_t>(rows)),
        wanted(static_cast<std::size_t>(columns));
    for (int& m : made) m = static_cast<int>(shared() % 4);
    for (int& w : wanted) w = static_cast<int>(shared() % 3);
    const double size = 1.0 + static_cast<double>(shared() % 8);
    CostTable table = {choices(rows), choices(columns), {}};
    for (int r = 0; r < table.rows; ++r) {
      for (int c = 0; c < table.columns; ++c) {
        double cost = 0, part = size;
        int from_rest = r, to_rest = c;
        for (int a = 0; a < axes_; ++a, from_rest /= rows, to_rest /= columns) {
          const int have = made[static_cast<std::size_t>(from_rest % rows)];
          const int want = wanted[static_cast<std::size_t>(to_rest % columns)];
          if (have == want) {
            part *= have == 0 ? 1.0 : 0.25;
          } else {
            cost += axis_price_[static_cast<std::size_t>(a)] * part * (have == 3 ? 2.0 : 1.0);
          }
        }
        table.values.push_back(cost);
      }
    }
    return problem_.add_table(std::move(table));
  }

  bool with_memory_;
  int axes_;
  int layers_ = 0;
  int kind_ = 0;
  std::vector<double> axis_price_;
  std::vector<int> per_axis_, keys_, tables_;
  Problem problem_;
};

int report(const std::string& name, const Problem& problem, double time_limit, Solution* answer) {
  if (Status status = verify(problem); !status) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    return 1;
  }
  SolveOptions options;
  options.time_limit = time_limit;
  const std::clock_t cpu = std::clock();
  const auto begin = std::chrono::steady_clock::now();
  const Solution found = solve_dp(problem, options);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double cpu_seconds = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  std::size_t labels = 0;
  for (const ProblemNode& node : problem.nodes) labels += node.cost.size();
  std::printf(
      "{\"problem\": \"%s\", \"nodes\": %zu, \"edges\": %zu, \"choices\": %zu, \"feasible\": %s, "
      "\"cost\": %.12g, \"lower_bound\": %.12g, \"gap\": %.3g, \"unlimited_lower_bound\": %.12g, "
      "\"peak_use\": %.12g, \"use_limit\": %.12g, \"least_peak_use\": %.12g, "
      "\"least_peak_proven\": %s, \"seconds\": %.3f, \"cpu_seconds\": %.3f}\n",
      name.c_str(), problem.nodes.size(), problem.edges.size(), labels,
      found.feasible ? "true" : "false", found.cost, found.lower_bound, found.gap(),
      found.unlimited_lower_bound, found.peak_use, problem.use_limit, found.least_peak_use,
      found.least_peak_proven ? "true" : "false", seconds, cpu_seconds);
  std::fflush(stdout);
  if (answer != nullptr) *answer = found;
  return 0;
}

// Without a limit, then within parts of what the best plan uses.
int report_layers(int layers, int axes, const std::vector<double>& parts, double time_limit) {
  const std::string name = std::to_string(layers) + " layers, " + std::to_string(axes) + " axes";
  if (report(name, LayeredModel(layers, axes, false).make(), time_limit, nullptr) != 0) return 1;
  Problem problem = LayeredModel(layers, axes, true).make();
  Solution free;
  if (report(name + ", memory", problem, time_limit, &free) != 0) return 1;
  for (const double part : parts) {
    problem.use_limit = std::floor(part * free.peak_use);
    const std::string limited = name + ", memory " + std::to_string(part).substr(0, 4);
    if (report(limited, problem, time_limit, nullptr) != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int layers = 32, axes = 0;
  double time_limit = kInfinity;
  std::vector<double> parts;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (more && std::strcmp(argv[i], "--layers") == 0) {
      layers = std::atoi(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--axes") == 0) {
      axes = std::atoi(argv[++i]);
    } else if (more && std::strcmp(argv[i], "--memory") == 0) {
      parts.push_back(std::atof(argv[++i]));
    } else if (more && std::strcmp(argv[i], "--time-limit") == 0) {
      time_limit = std::atof(argv[++i]);
    } else {
      files.push_back(argv[i]);
    }
  }
  if (parts.empty()) parts = {0.98, 0.9, 0.75, 0.5, 0.1};
  for (const std::string& file : files) {
    const Result<IopddlProblem> read = read_iopddl(file);
    if (!read) {
      std::fprintf(stderr, "%s\n", read.error().message.c_str());
      return 1;
    }
    if (report(read->name, read->problem, time_limit, nullptr) != 0) return 1;
  }
  for (int a = 2; a <= 3 && files.empty(); ++a) {
    if (axes != 0 && axes != a) continue;
    if (report_layers(layers, a, parts, time_limit) != 0) return 1;
  }
  return 0;
}
