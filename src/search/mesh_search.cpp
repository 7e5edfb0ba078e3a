#include "search/mesh_search.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "search/build/build.hpp"

namespace autopar {

namespace {

// What building problems may take, in counted steps (Allowance): of all meshes together, and of one
// where there are many; and estimated bytes of one, since several may be there at once.
constexpr double kBuildingWork = 4e9;
constexpr double kBuildingWorkOfMesh = 2e8;
constexpr double kBuildingBytesOfMesh = 5e8;
// And where a searcher that proposes plans looks for one that is cheaper than a known one: meshes
// of four axes took 4e8, some five seconds each, before they were too large (a step of Llama 8B on
// 64 devices).
constexpr double kBuildingWorkBeside = 2e8;

// Ops of the meshes that are looked at together.
constexpr std::size_t kOpsAtOnce = 98304;

// Estimated bytes of the meshes that are kept. A problem and what has been seen of it takes 50 to
// 170 bytes for each candidate (steps of 8B, 405B, ViT-L and the forward graph of Mixtral, on
// meshes of three axes), and each entry of a table is there up to twice: where nothing repeats,
// most of it is tables. With 5.5e8, so that two are kept of a step of U-Net, 364 MiB took 24 CPU
// seconds in place of 30, and without a limit the same at 1.2 GiB in place of 0.94.
constexpr double kBytesKept = 4e8;
constexpr double kBytesPerCandidate = 120, kBytesPerEntry = 16;

double bytes_of(const Problem& problem) {
  double bytes = 0;
  for (const ProblemNode& node : problem.nodes) {
    bytes += kBytesPerCandidate * static_cast<double>(node.cost.size());
  }
  for (const CostTable& table : problem.tables) {
    bytes += kBytesPerEntry * static_cast<double>(table.values.size());
  }
  return bytes;
}

void note_too_large(MeshTrial& trial, const Allowance& allowance) {
  trial.end = TrialEnd::kTooLarge;
  const bool bytes = allowance.bytes > allowance.most_bytes;
  trial.why = bytes ? "the tables of its problem would take more than " +
                          std::to_string(std::llround(allowance.most_bytes / 0x1p20)) + " MiB"
                    : "pricing all its layouts would take too long";
}

}  // namespace

bool says_something(TrialEnd end) {
  return end != TrialEnd::kNotTried && end != TrialEnd::kPinsNotKept && end != TrialEnd::kTooLarge;
}

SearchFindings findings_of(const std::vector<MeshTrial>& trials) {
  Seconds bound = kInfinity, unlimited = kInfinity;
  for (const MeshTrial& trial : trials) {
    if (!says_something(trial.end)) continue;
    bound = std::min(bound, trial.lower_bound);
    unlimited = std::min(unlimited, trial.unlimited_lower_bound);
  }
  if (bound == kInfinity) bound = unlimited = 0;
  return {trials, bound, std::min(unlimited, bound)};
}

void KeptMeshes::keep(std::unique_ptr<Begun> begun, double rank) {
  const auto key = [](const Begun& its, double rank) {
    return std::tuple(-its.steps, rank, its.mesh);
  };
  const auto place = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& other) {
    return key(*begun, rank) < key(*other.begun, other.rank);
  });
  kept_.insert(place, {rank, std::move(begun)});
}

std::vector<std::unique_ptr<Begun>> KeptMeshes::make_room() {
  double bytes = 0;
  std::size_t few = 0;
  for (; few < kept_.size(); ++few) {
    bytes += bytes_of(kept_[few].begun->built.problem);
    if (few > 0 && bytes > kBytesKept) break;
  }
  std::vector<std::unique_ptr<Begun>> others;
  for (std::size_t k = few; k < kept_.size(); ++k) others.push_back(std::move(kept_[k].begun));
  kept_.resize(few);
  return others;
}

bool KeptMeshes::has(std::size_t mesh) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const Kept& its) { return its.begun->mesh == mesh; });
}

std::unique_ptr<Begun> KeptMeshes::take(std::size_t mesh) {
  const auto place = std::find_if(kept_.begin(), kept_.end(),
                                  [&](const Kept& other) { return other.begun->mesh == mesh; });
  if (place == kept_.end()) return nullptr;
  std::unique_ptr<Begun> taken = std::move(place->begun);
  kept_.erase(place);
  return taken;
}

MeshSearch::MeshSearch(const SearchRequest& request, const Searcher& searcher,
                       const std::vector<Mesh>& meshes, const MeshSearchReach& reach)
    : request(request), searcher(searcher), reach(reach), effort(request.solve.effort) {
  outcome.trials.resize(meshes.size());
  for (std::size_t m = 0; m < meshes.size(); ++m) outcome.trials[m].mesh = meshes[m];
  if (searcher.proves_bound) leave_those_known();
  forget_learnt();
}

void MeshSearch::make_room() {
  for (const std::unique_ptr<Begun>& begun : kept.make_room()) note_learnt(*begun);
}

void MeshSearch::note_learnt(const Begun& begun) {
  if (begun.solve.learnt) learnt_[begun.mesh] = begun.solve.learnt();
}

void MeshSearch::leave_those_known() {
  for (MeshTrial& trial : outcome.trials) {
    for (const KnownBound& known : request.known_bounds) {
      if (!(known.mesh == trial.mesh) || known.seconds < request.solve.cutoff) continue;
      trial.lower_bound = trial.unlimited_lower_bound = known.seconds;
      trial.end = TrialEnd::kPruned;
    }
  }
}

// Large problems take much memory.
std::size_t MeshSearch::meshes_at_once() const {
  return std::max<std::size_t>(1, kOpsAtOnce / std::max<std::size_t>(1, request.graph.ops.size()));
}

bool MeshSearch::stopped() const {
  return (request.solve.stop && request.solve.stop->load()) ||
         seconds_since(start) >= request.solve.time_limit;
}

// Of all meshes together, in equal parts: so a part depends on no other mesh, and on no thread.
Allowance MeshSearch::allowance_of_mesh(Seconds time) const {
  const auto begin = std::chrono::steady_clock::now();
  const auto meshes = static_cast<double>(std::max<std::size_t>(1, outcome.trials.size()));
  const bool beside = request.narrowing != nullptr && request.solve.cutoff < kInfinity;
  const double work = beside ? kBuildingWorkBeside : kBuildingWork;
  return {.most_work = std::max(kBuildingWorkOfMesh, work / meshes),
          .most_bytes = kBuildingBytesOfMesh,
          .stopped = [=, this] { return stopped() || seconds_since(begin) > time; }};
}

// Null: it was not built, for want of time or since it is too large. Errors are pins that this
// mesh cannot keep, or bugs of an op's rule.
Result<std::unique_ptr<Begun>> MeshSearch::price(MeshTrial& trial, Seconds time) const {
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

Result<bool> MeshSearch::note_least_of_ops(std::size_t m, Seconds time) {
  MeshTrial& trial = outcome.trials[m];
  const auto begin = std::chrono::steady_clock::now();
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, trial.mesh));
  Allowance allowance = allowance_of_mesh(time);
  AUTOPAR_TRY(least, least_of_ops(request, *model, &allowance));
  trial.build_seconds += seconds_since(begin);
  trial.lower_bound = std::max(trial.lower_bound, least);
  trial.unlimited_lower_bound = std::max(trial.unlimited_lower_bound, least);
  return !allowance.over();
}

SolveOptions MeshSearch::options_within(Seconds time) const {
  SolveOptions options = request.solve;
  options.time_limit = std::max(1e-3, time);
  options.effort = effort;
  return options;
}

Result<std::unique_ptr<Begun>> MeshSearch::begin(std::size_t m, Seconds time) {
  MeshTrial& trial = outcome.trials[m];
  const auto before = std::chrono::steady_clock::now();
  AUTOPAR_TRY(begun, price(trial, time));
  if (begun == nullptr) return std::move(begun);
  begun->mesh = m;
  const auto solving = std::chrono::steady_clock::now();
  SolveOptions options = options_within(time - seconds_since(before));
  options.progress = nullptr;
  begun->solve = searcher.begin(begun->built.problem, options, std::exchange(learnt_[m], nullptr));
  trial.solve_seconds += seconds_since(solving);
  note_bounds(m, begun->solve.so_far);
  note_stages(m, begun->solve.so_far, *begun);
  if (trial.end == TrialEnd::kNotTried) trial.end = TrialEnd::kLookedAt;
  return std::move(begun);
}

Result<bool> MeshSearch::search_mesh(std::size_t m, Seconds time, SolveOptions::Until until,
                                     const StepEnds& ends) {
  MeshTrial& trial = outcome.trials[m];
  const auto before = std::chrono::steady_clock::now();
  std::unique_ptr<Begun> begun = kept.take(m);
  if (begun == nullptr) make_room();
  if (begun != nullptr) {
    // Goes on.
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
  options.until = until;
  const double worth = std::min(options.cutoff, best);
  options.cutoff = std::min({worth, ends.far_enough, ends.below});
  options.known_bound = trial.lower_bound;
  Solution solution;
  if (begun->solve.finish) {
    solution = begun->solve.finish(options);
  } else {
    auto found = searcher.solve(request, begun->built, options);
    refuses_mesh = !found.ok();
    if (!found) return found.error();
    solution = std::move(*found);
  }
  if (solution.feasible && searcher.proves_bound) {
    const MeshProblem& built = begun->built;
    TieBreak best =
        begun->model->break_ties(built.problem, built.node_of_op, std::move(solution), options);
    solution = std::move(best.plan);
    trial.undone = std::move(best.undone);
  }
  trial.solve_seconds += seconds_since(solving);
  note_stages(m, solution, *begun);
  // Nothing that was done below another cutoff is good for more.
  if (solution.cut_off && options.cutoff < worth) {
    note_bounds(m, solution);
    const bool is_end = until == SolveOptions::Until::kEnd;
    if (!is_end) note_learnt(*begun);
    if (is_end && trial.end != TrialEnd::kPlan) trial.end = TrialEnd::kPruned;
    return !is_end;
  }
  AUTOPAR_TRY(deferred, take(m, *begun, solution, options.cutoff));
  if (deferred) {
    ++begun->steps;
    kept.keep(std::move(begun), trial.lower_bound);
  }
  return deferred;
}

// Keeps the better plan.
Result<bool> MeshSearch::take(std::size_t m, const Begun& begun, const Solution& solution,
                              double cutoff) {
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

Status MeshSearch::keep_better(const MeshProblem& built, const Solution& solution, CostModel& model,
                               MeshTrial& trial) {
  const auto before = std::chrono::steady_clock::now();
  trial.end = TrialEnd::kPlan;
  Strategy strategy = strategy_of(request.graph, built, solution.choices);
  AUTOPAR_TRY(cost, evaluate(request, strategy, model));
  trial.evaluate_seconds += seconds_since(before);
  const Seconds objective = request.objective(cost);
  const double tolerance = 1e-9 * std::max(1e-9, solution.cost);
  AUTOPAR_CHECK(std::abs(objective - solution.cost) <= tolerance,
                "the evaluator prices the plan at " + std::to_string(objective) +
                    " s, the searcher at " + std::to_string(solution.cost) + " s");
  trial.cost = std::min(trial.cost, cost.time());
  if (solution.lower_bound >= solution.cost) trial.lower_bound = objective;
  trial.lower_bound = std::min(trial.lower_bound, objective);
  const bool is_fastest = best == kInfinity || cost.time() < outcome.cost.time();
  best = std::min(best, objective);
  if (is_fastest) {
    outcome.strategy = std::move(strategy);
    outcome.cost = std::move(cost);
    if (searcher.explain) {
      AUTOPAR_RETURN_IF_ERROR(searcher.explain(request, built, solution, model, outcome));
    }
  }
  return Ok{};
}

void MeshSearch::note_infeasible(const Mesh& mesh, const Solution& solution) {
  if (solution.least_peak_use < tightest.peak) {
    tightest.peak = solution.least_peak_use;
    tightest.mesh = mesh;
    tightest.time = solution.tightest_time;
  }
  tightest.proven = tightest.proven && solution.lower_bound == kInfinity;
  ++tightest.meshes;
  if (solution.unlimited_lower_bound == kInfinity) ++tightest.without_any;
}

SearchFindings MeshSearch::findings() const {
  SearchFindings found = findings_of(outcome.trials);
  if (!searcher.proves_bound) found.lower_bound = found.unlimited_lower_bound = 0;
  return found;
}

// A searcher that looks at a part of the plans only proves nothing about the others.
void MeshSearch::note_bound() {
  const SearchFindings found = findings();
  outcome.lower_bound = found.lower_bound >= best * (1 - kBoundRounding) ? best : found.lower_bound;
  outcome.unlimited_lower_bound = std::min(found.unlimited_lower_bound, outcome.lower_bound);
  outcome.minimised = {best, outcome.lower_bound, outcome.unlimited_lower_bound};
  if (!searcher.proves_bound) {
    for (MeshTrial& trial : outcome.trials) trial.lower_bound = 0;
  }
}

// Those since the last time.
void MeshSearch::note_stages(std::size_t m, const Solution& solution, Begun& begun) {
  std::vector<StageReport>& stages = outcome.trials[m].stages;
  outcome.trials[m].solve_end = solution.end;
  for (; begun.stages_told < solution.stages.size(); ++begun.stages_told) {
    stages.push_back(solution.stages[begun.stages_told]);
  }
}

void MeshSearch::note_bounds(std::size_t m, const Solution& solution) {
  Seconds& bound = outcome.trials[m].lower_bound;
  bound = std::max(bound, solution.lower_bound);
  Seconds& unlimited = outcome.trials[m].unlimited_lower_bound;
  unlimited = std::max(unlimited, solution.unlimited_lower_bound);
}

}  // namespace autopar
