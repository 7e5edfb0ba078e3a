// The outer loop: every mesh, pruned by the best plan so far; the claimed cost is recomputed.
#include "autopar/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "search/pins.hpp"

namespace autopar {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string size_text(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = bytes;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[64];
  if (unit == 0) {
    std::snprintf(text, sizeof text, "%.0f bytes", bytes);
  } else {
    std::snprintf(text, sizeof text, "%.2f %s (%.0f bytes)", value, units[unit], bytes);
  }
  return text;
}

Result<const Searcher*> find_searcher(const std::string& name) {
  std::vector<std::string> names;
  for (const Searcher& s : searchers()) {
    if (name == s.name || name == s.long_name) return &s;
    names.emplace_back(s.name);
    if (names.back() != s.long_name) names.emplace_back(s.long_name);
  }
  const std::string near = nearest_name(name, names);
  std::string known;
  for (const Searcher& s : searchers()) known += (known.empty() ? "" : ", ") + std::string(s.name);
  return usage_error("unknown searcher '" + name + "'; " +
                     (near.empty() ? "" : "did you mean '" + near + "'? ") + "known: " + known);
}

// The peak that no plan could get below, over the meshes tried.
struct Tightest {
  double peak = kInfinity;
  Mesh mesh;
  int time = -1;
  bool proven = true;
};

struct Search {
  const SearchRequest& request;
  const Searcher& searcher;
  SearchOutcome outcome;
  double best = kInfinity;
  double unlimited_bound = kInfinity;
  std::optional<Error> pin_error;
  Tightest tightest;

  // Keeps the better plan. Errors are pins that this mesh cannot keep, or bugs of an op's rule.
  Status try_mesh(const Mesh& mesh) {
    MeshTrial trial;
    trial.mesh = mesh;
    auto start = std::chrono::steady_clock::now();
    AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, mesh));
    auto built = build_problem(request, *model);
    if (!built) return built.error();
    trial.build_seconds = seconds_since(start);
    trial.nodes = built->problem.nodes.size();
    trial.edges = built->problem.edges.size();
    for (const ProblemNode& node : built->problem.nodes) trial.candidates += node.cost.size();
    start = std::chrono::steady_clock::now();
    SolveOptions options = request.solve;
    options.cutoff = std::min(options.cutoff, best);
    AUTOPAR_TRY(solution, searcher.solve(request, *built, options));
    trial.solve_seconds = seconds_since(start);
    trial.lower_bound = solution.lower_bound;
    trial.pruned = solution.cut_off || (!solution.feasible && solution.lower_bound < kInfinity &&
                                        solution.lower_bound >= best);
    trial.feasible = solution.feasible;
    outcome.interrupted |= solution.interrupted;
    unlimited_bound = std::min(unlimited_bound, solution.unlimited_lower_bound);
    if (solution.feasible) {
      AUTOPAR_RETURN_IF_ERROR(keep_better(*built, solution, *model, trial));
    } else if (!trial.pruned) {
      note_infeasible(mesh, solution);
    }
    outcome.trials.push_back(trial);
    return Ok{};
  }

  Status keep_better(const MeshProblem& built, const Solution& solution, CostModel& model,
                     MeshTrial& trial) {
    Strategy strategy = strategy_of(request.graph, built, solution.choices);
    AUTOPAR_TRY(cost, evaluate(request.graph, request.rules, strategy, model, request.updates));
    trial.cost = cost.total();
    const double tolerance = 1e-9 * std::max(1e-9, solution.cost);
    AUTOPAR_CHECK(std::abs(cost.total() - solution.cost) <= tolerance,
                  "the evaluator prices the plan at " + std::to_string(cost.total()) +
                      " s, the searcher at " + std::to_string(solution.cost) + " s");
    if (solution.lower_bound >= solution.cost) trial.lower_bound = trial.cost;
    trial.lower_bound = std::min(trial.lower_bound, trial.cost);
    if (trial.cost < best) {
      best = trial.cost;
      outcome.strategy = std::move(strategy);
      outcome.cost = std::move(cost);
      if (searcher.explain) {
        AUTOPAR_RETURN_IF_ERROR(searcher.explain(request, built, solution, model, outcome));
      }
    }
    return Ok{};
  }

  void skip(const Mesh& mesh, const Error& error) {
    MeshTrial trial;
    trial.mesh = mesh;
    trial.skipped = error.message;
    trial.lower_bound = kInfinity;
    outcome.trials.push_back(std::move(trial));
  }

  void note_infeasible(const Mesh& mesh, const Solution& solution) {
    if (solution.least_peak_use < tightest.peak) {
      tightest.peak = solution.least_peak_use;
      tightest.mesh = mesh;
      tightest.time = solution.tightest_time;
    }
    tightest.proven = tightest.proven && solution.lower_bound == kInfinity;
  }

  // A searcher that looks at a part of the plans only proves nothing about the others.
  void bound() {
    outcome.lower_bound = kInfinity;
    for (const MeshTrial& trial : outcome.trials) {
      outcome.lower_bound = std::min(outcome.lower_bound, trial.lower_bound);
    }
    outcome.lower_bound = std::min(outcome.lower_bound, outcome.cost.total());
    if (!searcher.proves_bound) {
      outcome.lower_bound = 0;
      for (MeshTrial& trial : outcome.trials) trial.lower_bound = 0;
    }
    outcome.unlimited_lower_bound = std::min(unlimited_bound, outcome.lower_bound);
  }

  Error no_plan() const {
    const double limit = static_cast<double>(
        request.memory_limit > 0 ? request.memory_limit : request.cluster.device.memory_bytes);
    if (tightest.peak == kInfinity) {
      return infeasible_error("no plan fits into " + size_text(limit) +
                              " per device; no plan was found at all. Try more devices, --memory "
                              "with a larger size, or fewer pins");
    }
    std::string text = "no plan " + std::string(tightest.proven ? "fits" : "was found that fits") +
                       " into " + size_text(limit) + " per device: the smallest peak found is " +
                       size_text(tightest.peak) + " on mesh " + to_text(tightest.mesh);
    const auto time = static_cast<std::size_t>(std::max(0, tightest.time));
    if (tightest.time >= 0 && time < request.graph.ops.size()) {
      text += ", during op '" + request.graph.ops[time].name + "'";
    }
    return infeasible_error(text +
                            ". Try more devices, --memory with a larger size, or fewer pins");
  }
};

std::vector<Mesh> meshes_of(const SearchRequest& request) {
  if (request.mesh) return {*request.mesh};
  for (const CostModelRow& row : cost_models()) {
    if (request.cost_model == row.name && row.meshes) return row.meshes(request.cluster);
  }
  // Split counts in a pin name no axes: which of two axes of one tier is which then matters.
  bool by_counts = false;
  for (const auto& [name, pin] : request.pins.ops) by_counts |= !pin.assignment.has_value();
  return mesh_candidates(request.cluster, request.max_axes, by_counts);
}

}  // namespace

Result<MeshProblem> build_problem(const SearchRequest& request, const Mesh& mesh) {
  RooflineModel model(request.cluster, mesh);
  return build_problem(request, model);
}

Result<SearchOutcome> search(const SearchRequest& request) {
  AUTOPAR_TRY(searcher, find_searcher(request.searcher));
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  if (searcher->search != nullptr) return searcher->search(request);
  const bool pinned = !request.pins.ops.empty() || !request.pins.values.empty();
  // A baseline looks at one candidate per op: no need to price the others.
  SearchRequest narrowed = request;
  if (narrowed.fill == Fill::kSearch) narrowed.fill = searcher->fill;
  Search state{narrowed, *searcher, {}, kInfinity, kInfinity, {}, {}};
  for (const Mesh& mesh : meshes_of(request)) {
    const Status tried = state.try_mesh(mesh);
    if (tried) continue;
    // Another mesh may keep the pins that this one cannot.
    if (!pinned || request.mesh || tried.error().code != ErrorCode::kInput) return tried.error();
    state.pin_error = tried.error();
    state.skip(mesh, tried.error());
  }
  if (state.best == kInfinity) {
    const auto& trials = state.outcome.trials;
    const bool none = std::all_of(trials.begin(), trials.end(),
                                  [](const MeshTrial& t) { return !t.skipped.empty(); });
    if (none && state.pin_error) return *state.pin_error;
    return state.no_plan();
  }
  state.outcome.searcher = searcher->name;
  state.bound();
  return std::move(state.outcome);
}

}  // namespace autopar
