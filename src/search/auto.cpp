#include "search/auto.hpp"

#include <algorithm>
#include <chrono>
#include <set>

namespace autopar {

namespace {

// Entries of the exact search's tables, over all meshes, up to which it is run without a time
// limit: a minute or so of one core.
constexpr double kAffordable = 2e10;
constexpr double kQuickPart = 0.2;  // of the time that is left, where there is a limit
constexpr double kExactPart = 0.8;
constexpr int kMaxProvenAxes = 3;
constexpr int kMaxAxes = 6;  // of a mesh on which candidates are counted at all

bool is_searcher(const char* name) {
  const auto& table = searchers();
  return std::any_of(table.begin(), table.end(),
                     [&](const Searcher& s) { return std::string(s.name) == name; });
}

// About what the exact search has to look at: per op the squares of its number of candidates, over
// all meshes. Counts no clock, so that the same input gives the same plan anywhere.
double size_of_exact_search(const SearchRequest& request) {
  const int max_axes = request.max_axes > 0 ? request.max_axes : kDefaultAxes;
  std::vector<Mesh> meshes = mesh_candidates(request.cluster, max_axes);
  for (const CostModelRow& row : cost_models()) {
    if (request.cost_model == row.name && row.meshes) meshes = row.meshes(request.cluster);
  }
  if (request.mesh) meshes = {*request.mesh};
  std::map<std::string, double> uses;  // by rule
  std::map<std::string, const Rule*> rule_of_text;
  for (const Rule& rule : request.rules.rules) {
    const std::string text = to_text(rule);
    uses[text] += 1;
    rule_of_text[text] = &rule;
  }
  double size = 0;
  for (const Mesh& mesh : meshes) {
    if (mesh.rank() > kMaxAxes) return kInfinity;
    for (const auto& [text, count] : uses) {
      const auto all = static_cast<double>(candidates(*rule_of_text[text], mesh).size());
      size += count * all * all;
      if (size > kAffordable) return size;
    }
  }
  return size;
}

struct Auto {
  const SearchRequest& request;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<SearcherTrial> tried = {};
  std::optional<SearchOutcome> best = {};
  std::optional<Error> error = {};
  double bound = 0, unlimited_bound = 0;
  std::vector<MeshTrial> searched = {};  // exactly

  // Whether it answered.
  bool keep(const std::string& name, Result<SearchOutcome> found) {
    if (!found) {
      tried.push_back({name, false, 0, found.error().message});
      // The exact searcher knows best why nothing fits.
      if (!error || name == "dp") error = found.error();
      return false;
    }
    tried.push_back({name, true, found->cost.total(), ""});
    if (name == "dp") {
      searched.insert(searched.end(), found->trials.begin(), found->trials.end());
    }
    bound = std::max(bound, found->lower_bound);
    unlimited_bound = std::max(unlimited_bound, found->unlimited_lower_bound);
    const bool better = !best || found->cost.total() < best->cost.total();
    const bool interrupted = found->interrupted || (best && best->interrupted);
    if (better) best = std::move(*found);
    best->interrupted = interrupted;
    return true;
  }

  // Within a part of the time that is left.
  bool run(const std::string& name, double part = 1) {
    SearchRequest asked = request;
    asked.searcher = name;
    asked.solve.time_limit = part * time_left();
    if (best) asked.solve.cutoff = std::min(asked.solve.cutoff, best->cost.total());
    return keep(name, search(asked));
  }

  Seconds time_left() const {
    const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
    return std::max(1e-3, request.solve.time_limit - used.count());
  }

  // The best plan may live on a mesh that the exact search did not try. Then it is tried, or
  // nothing is proven.
  void search_mesh_of_best(bool timed) {
    if (!best || bound == 0) return;
    const Mesh mesh = best->strategy.mesh;
    for (const MeshTrial& trial : searched) {
      if (trial.mesh == mesh) return;
    }
    const double others = bound, unlimited_others = unlimited_bound;
    bound = unlimited_bound = 0;
    SearchRequest asked = request;
    asked.searcher = "dp";
    asked.mesh = mesh;
    asked.solve.time_limit = time_left();
    if (timed || mesh.rank() > kMaxProvenAxes || size_of_exact_search(asked) > kAffordable) return;
    keep("dp", search(asked));
    bound = std::min(bound, others);
    unlimited_bound = std::min(unlimited_bound, unlimited_others);
  }

  // All plans that differ from the best one in one mesh axis per op, searched exactly.
  void improve() {
    const Strategy& strategy = best->strategy;
    Narrowing narrowing;
    for (std::size_t o = 0; o < strategy.assignments.size(); ++o) {
      const Rule& rule = request.rules.rules[o];
      const Assignment& chosen = strategy.assignments[o];
      std::vector<Assignment> near = {chosen};
      const bool is_free = !request.pins.ops.count(request.graph.ops[o].name);
      for (std::size_t a = 0; is_free && a < chosen.factor_of_axis.size(); ++a) {
        for (int f = -1; f < static_cast<int>(rule.factors.size()); ++f) {
          Assignment other = chosen;
          other.factor_of_axis[a] = f;
          if (other == chosen || strategy.mesh.axes[a].size == 1) continue;
          if (specs_of(rule, other, strategy.mesh)) near.push_back(std::move(other));
        }
      }
      narrowing.assignments.push_back(std::move(near));
    }
    narrowing.all_stored_specs = strategy.mesh.rank() <= 2;
    SearchRequest asked = request;
    asked.searcher = "dp";
    asked.mesh = strategy.mesh;
    asked.narrowing = std::make_shared<const Narrowing>(std::move(narrowing));
    asked.solve.gap = std::max(asked.solve.gap, 0.01);
    asked.solve.time_limit = time_left();
    auto found = search(asked);
    if (found) found->lower_bound = found->unlimited_lower_bound = 0;
    if (found) found->searcher = best->searcher;
    keep(best->searcher + ", improved", std::move(found));
  }
};

}  // namespace

Result<SearchOutcome> search_auto(const SearchRequest& request) {
  Auto state{request};
  const bool timed = request.solve.time_limit < kInfinity;
  const bool affordable = timed || size_of_exact_search(request) <= kAffordable;
  // The others then look for something cheaper only: on meshes that the exact search did not try.
  if (affordable) state.run("dp", kExactPart);
  state.run("rec", kQuickPart);
  state.run("data_parallel", kQuickPart);
  const bool pinned = !request.pins.ops.empty() || !request.pins.values.empty();
  if (pinned && is_searcher("propagate")) state.run("propagate", kQuickPart);
  std::string why;
  if (affordable) {
    state.search_mesh_of_best(timed);
    why = timed ? "the exact search was run within the time limit"
                : "the problem is small enough for the exact search";
  } else {
    if (state.best) state.improve();
    why = "the problem is too large for the exact search (--time-limit or --searcher dp runs it)";
  }
  if (!state.best) return *state.error;
  SearchOutcome outcome = std::move(*state.best);
  outcome.lower_bound = std::min(state.bound, outcome.cost.total());
  outcome.unlimited_lower_bound = std::min(state.unlimited_bound, outcome.lower_bound);
  if (!state.searched.empty()) outcome.trials = std::move(state.searched);
  outcome.picked = {outcome.searcher, why, std::move(state.tried)};
  outcome.searcher = "auto";
  return outcome;
}

}  // namespace autopar
