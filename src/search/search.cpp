// The outer loop: every mesh, pruned by the best plan so far; the claimed cost is recomputed.
#include "autopar/search.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <mutex>
#include <tuple>

#include "search/counts.hpp"
#include "search/meshes.hpp"
#include "search/no_plan.hpp"
#include "search/pins.hpp"

namespace autopar {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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

// Ops of the meshes that are looked at together.
constexpr std::size_t kOpsAtOnce = 98304;

// Of the time, where it is limited, for looking at all meshes before one is searched.
constexpr double kLookingPart = 0.5;

// Of what lies between bound and plan.
constexpr double kDoubt = 0.1;

// What a search that was interrupted without a plan may take for a baseline.
constexpr Seconds kFallBackSeconds = 2;

// Where more was asked for than a default search finds, so many times the effort in each further
// round; and so many rounds that change nothing are the last.
constexpr double kMoreEffort = 4;
constexpr int kIdleRounds = 2;
// A bound that is as close to the best plan is no other number than its cost.
constexpr double kRounding = 4e-12;

// What building problems may take, in counted steps (Allowance): of all meshes together, and of one
// where there are many; and estimated bytes of one, since several may be there at once.
constexpr double kBuildingWork = 4e9;
constexpr double kBuildingWorkOfMesh = 2e8;
constexpr double kBuildingBytesOfMesh = 5e8;

// A mesh's problem and, where the searcher works in two parts, what it has seen of it.
struct Begun {
  std::size_t mesh = 0;
  std::unique_ptr<CostModel> model;
  MeshProblem built;
  BegunSolve solve;
};

struct Search {
  const SearchRequest& request;
  const Searcher& searcher;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  SearchOutcome outcome = {};
  double best = kInfinity;
  std::vector<double> unlimited_bounds = {};  // per mesh
  Tightest tightest = {};
  std::unique_ptr<Begun> kept = nullptr;
  double effort = 1;  // of the round at hand

  Status try_all(const std::vector<Mesh>& meshes) {
    outcome.trials.resize(meshes.size());
    unlimited_bounds.assign(meshes.size(), 0);
    for (std::size_t m = 0; m < meshes.size(); ++m) outcome.trials[m].mesh = meshes[m];
    std::vector<std::size_t> left;
    for (std::size_t m = 0; m < meshes.size(); ++m) left.push_back(m);
    if (searcher.begin != nullptr && meshes.size() > 1) {
      AUTOPAR_RETURN_IF_ERROR(look_at_all(left));
      // Stopped by now, what was seen is what there is.
      if (kept != nullptr && kept->solve.so_far.feasible && stopped()) {
        outcome.interrupted = true;
        return keep_better(kept->built, kept->solve.so_far, *kept->model,
                           outcome.trials[kept->mesh]);
      }
      // Meshes whose best plan is not within the memory limit wait until the others have shown how
      // cheap a plan has to be.
      AUTOPAR_RETURN_IF_ERROR(search_all(left, true));
    }
    AUTOPAR_RETURN_IF_ERROR(search_all(left, false));
    return go_on();
  }

  // A default search spends a fixed effort. Where a gap was asked for that it leaves open, or a
  // time that it leaves over, rounds of more effort follow; each begins with the best plan and the
  // bounds of those before it, so that what is found is never worse than what less effort finds.
  Status go_on() {
    int idle = 0;
    while (may_go_on() && idle < kIdleRounds) {
      effort *= kMoreEffort;
      const std::pair before(best, bound_of_open());
      std::vector<std::size_t> open;
      for (std::size_t m = 0; m < outcome.trials.size(); ++m) {
        if (is_open(outcome.trials[m])) open.push_back(m);
      }
      AUTOPAR_RETURN_IF_ERROR(search_all(open, false));
      idle = std::pair(best, bound_of_open()) == before ? idle + 1 : 0;
    }
    return Ok{};
  }

  bool may_go_on() const {
    const bool more = effort * kMoreEffort <= request.solve.most_effort;
    return more && searcher.begin != nullptr && !stopped() && bound_of_open() < kInfinity;
  }

  // The best plan on it may be better than the best so far by more than the gap.
  bool is_open(const MeshTrial& trial) const {
    const bool closed = trial.end == TrialEnd::kPinsNotKept ||
                        trial.end == TrialEnd::kNothingFits || trial.end == TrialEnd::kTooLarge;
    const Seconds enough = best * (1 - std::max(request.solve.gap, kRounding));
    return !closed && !(trial.lower_bound >= enough);
  }

  // Infinite: nothing is open.
  Seconds bound_of_open() const {
    Seconds least = kInfinity;
    for (const MeshTrial& trial : outcome.trials) {
      if (is_open(trial)) least = std::min(least, trial.lower_bound);
    }
    return least;
  }

  // A bound, and perhaps a plan, of every mesh. The most promising one's problem is kept.
  Status look_at_all(const std::vector<std::size_t>& meshes) {
    std::mutex mutex;
    std::size_t next = 0;
    std::map<std::size_t, Error> errors;
    const auto work = [&] {
      std::unique_lock lock(mutex);
      while (next < meshes.size() && !stopped()) {
        const std::size_t m = meshes[next];
        const Seconds left = kLookingPart * request.solve.time_limit - seconds_since(start);
        const Seconds time = left / static_cast<double>(meshes.size() - next++);
        lock.unlock();
        Result<std::unique_ptr<Begun>> look = begin(m, time);
        lock.lock();
        const auto taken = unless_pins_refuse(outcome.trials[m], take(std::move(look)));
        if (!taken) errors.emplace(m, taken.error());
      }
    };
    std::vector<std::future<void>> others;
    for (std::size_t t = 1; t < threads_at_once(); ++t) {
      others.push_back(std::async(std::launch::async, work));
    }
    work();
    for (std::future<void>& other : others) other.get();  // with what stopped it
    if (!errors.empty()) return errors.begin()->second;
    return Ok{};
  }

  // Each thread holds a problem, and large ones take much memory.
  std::size_t threads_at_once() const {
    const auto asked = static_cast<std::size_t>(std::max(1, request.solve.threads));
    const std::size_t ops = std::max<std::size_t>(1, request.graph.ops.size());
    return std::clamp<std::size_t>(kOpsAtOnce / ops, 1, asked);
  }

  Result<bool> take(Result<std::unique_ptr<Begun>> look) {
    if (!look) return look.error();
    if (*look == nullptr) return false;
    outcome.interrupted |= (*look)->solve.so_far.interrupted;
    if (kept == nullptr || more_promising(**look, *kept)) kept = std::move(*look);
    return true;
  }

  // The best plan is likely to be where the bound is low, a little less so where what was found is
  // far above it.
  bool more_promising(const Begun& one, const Begun& other) const {
    const auto key = [&](const Begun& begun) {
      const Seconds bound = outcome.trials[begun.mesh].lower_bound;
      const Seconds cost = std::min(begun.solve.so_far.cost, 2 * bound);
      return std::tuple(bound + kDoubt * (cost - bound), begun.mesh);
    };
    return key(one) < key(other);
  }

  // The most promising one first, then those with the least bound. Leaves those that were deferred.
  Status search_all(std::vector<std::size_t>& meshes, bool may_defer) {
    const auto key = [&](std::size_t m) {
      return std::pair(kept == nullptr || kept->mesh != m, outcome.trials[m].lower_bound);
    };
    std::stable_sort(meshes.begin(), meshes.end(),
                     [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
    std::vector<std::size_t> waiting;
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      MeshTrial& trial = outcome.trials[meshes[i]];
      if (trial.end == TrialEnd::kPinsNotKept || trial.end == TrialEnd::kTooLarge) continue;
      if (best < kInfinity && trial.lower_bound >= best * (1 - request.solve.gap)) {
        if (trial.end != TrialEnd::kPlan) trial.end = TrialEnd::kPruned;
        continue;
      }
      const auto search = [&](Seconds time) { return search_mesh(meshes[i], time, may_defer); };
      AUTOPAR_TRY(deferred, in_time(trial, meshes.size() - i, search));
      AUTOPAR_CHECK(may_defer || !deferred, "a search was deferred again");
      if (deferred) waiting.push_back(meshes[i]);
    }
    meshes = std::move(waiting);
    return Ok{};
  }

  // Within a part of the time that is left.
  template <class Try>
  Result<bool> in_time(MeshTrial& trial, std::size_t meshes_left, const Try& attempt) {
    if (stopped()) {
      outcome.interrupted = true;
      return false;
    }
    const Seconds left = request.solve.time_limit - seconds_since(start);
    return unless_pins_refuse(trial, attempt(left / static_cast<double>(meshes_left)));
  }

  // Another mesh may keep what this one cannot.
  Result<bool> unless_pins_refuse(MeshTrial& trial, Result<bool> result) const {
    if (result || !has_wishes() || result.error().code != ErrorCode::kInput) return result;
    trial.end = TrialEnd::kPinsNotKept;
    trial.why = result.error().message;
    return false;
  }

  bool stopped() const {
    return (request.solve.stop && request.solve.stop->load()) ||
           seconds_since(start) >= request.solve.time_limit;
  }

  // What the user fixed may name axes that not every mesh has.
  bool has_wishes() const {
    return !request.pins.ops.empty() || !request.pins.values.empty() ||
           request.inputs.kind == BoundaryLayout::Kind::kGiven ||
           request.outputs.kind == BoundaryLayout::Kind::kGiven;
  }

  // Of all meshes together, in equal parts: so a part depends on no other mesh, and on no thread.
  Allowance allowance_of_mesh(Seconds time) const {
    const auto begin = std::chrono::steady_clock::now();
    const auto meshes = static_cast<double>(std::max<std::size_t>(1, outcome.trials.size()));
    return {.most_work = std::max(kBuildingWorkOfMesh, kBuildingWork / meshes),
            .most_bytes = kBuildingBytesOfMesh,
            .stopped = [=, this] { return stopped() || seconds_since(begin) > time; }};
  }

  static void note_too_large(MeshTrial& trial, const Allowance& allowance) {
    trial.end = TrialEnd::kTooLarge;
    const bool bytes = allowance.bytes > allowance.most_bytes;
    trial.why = bytes ? "the tables of its problem would take more than " +
                            std::to_string(std::llround(allowance.most_bytes / 0x1p20)) + " MiB"
                      : "pricing all its layouts would take too long";
  }

  // Null: it was not built, for want of time or since it is too large. Errors are pins that this
  // mesh cannot keep, or bugs of an op's rule.
  Result<std::unique_ptr<Begun>> price(MeshTrial& trial, Seconds time) const {
    const auto begin = std::chrono::steady_clock::now();
    auto begun = std::make_unique<Begun>();
    AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, trial.mesh));
    Allowance allowance = allowance_of_mesh(time);
    AUTOPAR_TRY(built, build_problem(request, *model, &allowance));
    trial.build_seconds += seconds_since(begin);
    if (!built.whole) {
      if (allowance.spent()) note_too_large(trial, allowance);
      return std::unique_ptr<Begun>();
    }
    begun->model = std::move(model);
    begun->built = std::move(built);
    const Problem& problem = begun->built.problem;
    trial.candidates = 0;
    trial.nodes = problem.nodes.size();
    trial.edges = problem.edges.size();
    for (const ProblemNode& node : problem.nodes) trial.candidates += node.cost.size();
    return begun;
  }

  SolveOptions options_within(Seconds time) const {
    SolveOptions options = request.solve;
    options.time_limit = std::max(1e-3, time);
    options.effort = effort;
    return options;
  }

  // Of one mesh: several threads look at several.
  Result<std::unique_ptr<Begun>> begin(std::size_t m, Seconds time) {
    MeshTrial& trial = outcome.trials[m];
    const auto before = std::chrono::steady_clock::now();
    AUTOPAR_TRY(begun, price(trial, time));
    if (begun == nullptr) return std::move(begun);
    begun->mesh = m;
    const auto solving = std::chrono::steady_clock::now();
    SolveOptions options = options_within(time - seconds_since(before));
    options.progress = nullptr;
    begun->solve = searcher.begin(begun->built.problem, options);
    trial.solve_seconds += seconds_since(solving);
    note_bounds(m, begun->solve.so_far);
    if (trial.end == TrialEnd::kNotTried) trial.end = TrialEnd::kLookedAt;
    return std::move(begun);
  }

  // In whole, where the searcher does not work in two parts. True where the memory limit has not
  // been looked at.
  Result<bool> search_mesh(std::size_t m, Seconds time, bool may_defer) {
    MeshTrial& trial = outcome.trials[m];
    const auto before = std::chrono::steady_clock::now();
    std::unique_ptr<Begun> begun;
    if (kept != nullptr && kept->mesh == m) {
      begun = std::move(kept);
    } else if (searcher.begin != nullptr && outcome.trials.size() > 1) {
      AUTOPAR_TRY(again, begin(m, time));
      begun = std::move(again);
    } else {
      AUTOPAR_TRY(priced, price(trial, time));
      begun = std::move(priced);
    }
    if (begun == nullptr) return false;
    const auto solving = std::chrono::steady_clock::now();
    SolveOptions options = options_within(time - seconds_since(before));
    options.defer_limit = may_defer;
    options.cutoff = std::min(options.cutoff, best);
    options.known_bound = trial.lower_bound;
    Solution solution;
    if (begun->solve.finish) {
      solution = begun->solve.finish(options);
    } else {
      AUTOPAR_TRY(found, searcher.solve(request, begun->built, options));
      solution = std::move(found);
    }
    if (solution.feasible && searcher.proves_bound && begun->model->conventions().first_of_equals) {
      auto first = first_of_equals(begun->built, solution, options);
      trial.ties_left = !first;
      if (first) solution = std::move(*first);
    }
    trial.solve_seconds += seconds_since(solving);
    AUTOPAR_TRY(deferred, take(m, *begun, solution, options.cutoff));
    if (deferred && kept == nullptr) kept = std::move(begun);
    return deferred;
  }

  // Keeps the better plan.
  Result<bool> take(std::size_t m, const Begun& begun, const Solution& solution, double cutoff) {
    MeshTrial& trial = outcome.trials[m];
    note_bounds(m, solution);
    trial.stopped = solution.interrupted;
    outcome.interrupted |= solution.interrupted;
    if (solution.feasible) {
      AUTOPAR_RETURN_IF_ERROR(keep_better(begun.built, solution, *begun.model, trial));
      return solution.deferred;
    }
    if (solution.deferred) {
      if (trial.end != TrialEnd::kPlan) trial.end = TrialEnd::kNothingFound;
      return true;
    }
    if (trial.end == TrialEnd::kPlan) return false;
    if (solution.lower_bound == kInfinity) {
      trial.end = TrialEnd::kNothingFits;
    } else if (solution.cut_off || solution.lower_bound >= cutoff) {
      trial.end = TrialEnd::kPruned;
      return false;
    } else {
      trial.end = TrialEnd::kNothingFound;
    }
    note_infeasible(trial.mesh, solution);
    return false;
  }

  Status keep_better(const MeshProblem& built, const Solution& solution, CostModel& model,
                     MeshTrial& trial) {
    const auto before = std::chrono::steady_clock::now();
    trial.end = TrialEnd::kPlan;
    Strategy strategy = strategy_of(request.graph, built, solution.choices);
    AUTOPAR_TRY(cost, evaluate(request.graph, request.rules, strategy, model, request.updates));
    trial.evaluate_seconds += seconds_since(before);
    trial.cost = std::min(trial.cost, cost.total());
    const double tolerance = 1e-9 * std::max(1e-9, solution.cost);
    AUTOPAR_CHECK(std::abs(cost.total() - solution.cost) <= tolerance,
                  "the evaluator prices the plan at " + std::to_string(cost.total()) +
                      " s, the searcher at " + std::to_string(solution.cost) + " s");
    if (solution.lower_bound >= solution.cost) trial.lower_bound = trial.cost;
    trial.lower_bound = std::min(trial.lower_bound, trial.cost);
    if (cost.total() < best) {
      best = cost.total();
      outcome.strategy = std::move(strategy);
      outcome.cost = std::move(cost);
      if (searcher.explain) {
        AUTOPAR_RETURN_IF_ERROR(searcher.explain(request, built, solution, model, outcome));
      }
    }
    return Ok{};
  }

  void note_infeasible(const Mesh& mesh, const Solution& solution) {
    if (solution.least_peak_use < tightest.peak) {
      tightest.peak = solution.least_peak_use;
      tightest.mesh = mesh;
      tightest.time = solution.tightest_time;
    }
    tightest.proven = tightest.proven && solution.lower_bound == kInfinity;
  }

  SearchFindings findings() const {
    Seconds bound = kInfinity, unlimited = kInfinity;
    for (std::size_t m = 0; m < outcome.trials.size(); ++m) {
      if (!says_something(outcome.trials[m].end)) continue;
      bound = std::min(bound, outcome.trials[m].lower_bound);
      unlimited = std::min(unlimited, unlimited_bounds[m]);
    }
    if (bound == kInfinity || !searcher.proves_bound) bound = unlimited = 0;
    return {outcome.trials, bound, std::min(unlimited, bound)};
  }

  // Whether a mesh is one of those that the bound is about.
  static bool says_something(TrialEnd end) {
    return end != TrialEnd::kNotTried && end != TrialEnd::kPinsNotKept &&
           end != TrialEnd::kTooLarge;
  }

  // A searcher that looks at a part of the plans only proves nothing about the others.
  void bound() {
    const SearchFindings found = findings();
    const Seconds cost = outcome.cost.total();
    outcome.lower_bound = found.lower_bound >= cost * (1 - kRounding) ? cost : found.lower_bound;
    outcome.unlimited_lower_bound = std::min(found.unlimited_lower_bound, outcome.lower_bound);
    if (!searcher.proves_bound) {
      for (MeshTrial& trial : outcome.trials) trial.lower_bound = 0;
    }
  }

  void note_bounds(std::size_t m, const Solution& solution) {
    Seconds& bound = outcome.trials[m].lower_bound;
    bound = std::max(bound, solution.lower_bound);
    unlimited_bounds[m] = std::max(unlimited_bounds[m], solution.unlimited_lower_bound);
  }

  // Interrupted before the searcher had a plan: better a baseline than nothing, but soon. The
  // cheapest baseline is found quickly, and often fits; what fits is looked for in the time left.
  void fall_back() {
    const auto begin = std::chrono::steady_clock::now();
    bool tried = false;  // one is, however late it is
    for (const bool limited : {false, true}) {
      if (limited && !request.limit_memory) return;
      for (const char* name : {"data_parallel", "replicate"}) {
        for (const MeshTrial& trial : outcome.trials) {
          const Seconds limit = request.solve.time_limit;
          const Seconds left = limit < kInfinity ? limit + beyond(limit) - seconds_since(start)
                                                 : kFallBackSeconds - seconds_since(begin);
          if (best < kInfinity || (left <= 0 && tried)) return;
          tried = true;
          if (trial.end != TrialEnd::kPinsNotKept) try_baseline(name, trial.mesh, limited, left);
        }
      }
    }
  }

  void try_baseline(const char* name, const Mesh& mesh, bool limited, Seconds time) {
    const auto baseline = find_searcher(name);
    AUTOPAR_CHECK(baseline.ok(), "a baseline is not among the searchers");
    SearchRequest plain = request;
    plain.solve.stop = nullptr;
    plain.solve.time_limit = limited ? time : kInfinity;
    plain.limit_memory = limited;
    plain.fill = (*baseline)->fill;
    Search attempt{plain, **baseline};
    attempt.outcome.trials.resize(1);
    attempt.outcome.trials[0].mesh = mesh;
    attempt.unlimited_bounds.assign(1, 0);
    const auto tried = attempt.search_mesh(0, limited ? time : kInfinity, false);
    if (!tried || attempt.best == kInfinity) return;
    if (request.limit_memory && attempt.outcome.cost.memory.total > memory_limit(request)) return;
    best = attempt.best;
    outcome.strategy = std::move(attempt.outcome.strategy);
    outcome.cost = std::move(attempt.outcome.cost);
  }
};

}  // namespace

Result<MeshProblem> build_problem(const SearchRequest& request, const Mesh& mesh) {
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, mesh));
  return build_problem(request, *model);
}

namespace {

// What the plan may owe to a limit that no bound and no gap shows.
Status add_notes(const SearchRequest& request, SearchOutcome& outcome) {
  const Mesh& mesh = outcome.strategy.mesh;
  for (const MeshTrial& trial : outcome.trials) {
    if (!(trial.mesh == mesh) || !trial.ties_left) continue;
    outcome.notes.emplace_back(
        "cost model " + request.cost_model +
        ": of the plans that cost the same, this one need not be the one whose ops have the first "
        "choices: finding it takes more than 500 searches");
  }
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, mesh));
  for (std::size_t o = 0; o < request.graph.ops.size(); ++o) {
    const Op& op = request.graph.ops[o];
    if (request.pins.ops.count(op.name) == 0 || !model->leaves_out(request.rules.rules[o]))
      continue;
    outcome.notes.push_back(picked_from_a_part(op, mesh));
  }
  return Ok{};
}

}  // namespace

Result<SearchOutcome> search(const SearchRequest& request) {
  AUTOPAR_TRY(searcher, find_searcher(request.searcher));
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  AUTOPAR_RETURN_IF_ERROR(check_counts(request));
  AUTOPAR_RETURN_IF_ERROR(check_memory(request));
  if (searcher->search != nullptr) return searcher->search(request);
  // A baseline looks at one candidate per op: no need to price the others.
  SearchRequest narrowed = request;
  if (narrowed.fill == Fill::kSearch) narrowed.fill = searcher->fill;
  Search state{narrowed, *searcher};
  AUTOPAR_RETURN_IF_ERROR(state.try_all(meshes_of(narrowed)));
  if (narrowed.findings != nullptr) {
    *narrowed.findings = state.findings();
  } else if (state.best == kInfinity && state.outcome.interrupted) {
    state.fall_back();
  }
  if (state.best == kInfinity) {
    const std::optional<Error> pins = pins_not_kept(state.outcome.trials);
    const std::optional<Error> large = too_large(state.outcome.trials);
    return pins    ? *pins
           : large ? *large
                   : no_plan(narrowed, state.tightest, state.outcome.interrupted);
  }
  state.outcome.searcher = searcher->name;
  state.bound();
  AUTOPAR_RETURN_IF_ERROR(add_notes(narrowed, state.outcome));
  return std::move(state.outcome);
}

bool SearchOutcome::bounds_own_mesh() const {
  return std::none_of(trials.begin(), trials.end(), [&](const MeshTrial& trial) {
    return trial.mesh == strategy.mesh && trial.end == TrialEnd::kNotTried;
  });
}

const char* name_of(TrialEnd end) {
  switch (end) {
    case TrialEnd::kPlan:
      return "plan";
    case TrialEnd::kPruned:
      return "pruned";
    case TrialEnd::kNothingFits:
      return "nothing fits";
    case TrialEnd::kNothingFound:
      return "nothing found";
    case TrialEnd::kPinsNotKept:
      return "pins not kept";
    case TrialEnd::kLookedAt:
      return "looked at";
    case TrialEnd::kTooLarge:
      return "too large";
    case TrialEnd::kNotTried:
      return "not tried";
  }
  return "";
}

}  // namespace autopar
