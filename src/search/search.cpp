// A search from its request to its outcome: what is checked before, the loop over the meshes, and
// what is done where that ends without a plan.
#include "autopar/search.hpp"

#include <algorithm>
#include <chrono>

#include "search/counts.hpp"
#include "search/meshes.hpp"
#include "search/no_plan.hpp"
#include "search/outer_loop.hpp"
#include "search/pins.hpp"
#include "search/weighted.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

// Templates may follow the name: "uniform:dp=8 tp=8 zero=1".
Result<const Searcher*> find_searcher(const std::string& asked) {
  const std::string name = is_templates(asked) ? asked.substr(0, asked.find(':')) : asked;
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

// What a search that was interrupted without a plan may take for a baseline.
constexpr Seconds kFallBackSeconds = 2;

void try_baseline(MeshSearch& search, const char* name, const Mesh& mesh, bool limited,
                  Seconds time) {
  const auto baseline = find_searcher(name);
  AUTOPAR_CHECK(baseline.ok(), "a baseline is not among the searchers");
  SearchRequest plain = search.request;
  plain.solve.stop = nullptr;
  plain.solve.time_limit = limited ? time : kInfinity;
  plain.limit_memory = limited;
  plain.fill = (*baseline)->fill;
  MeshSearch attempt(plain, **baseline, {mesh});
  const auto tried = attempt.search_mesh(0, limited ? time : kInfinity, SolveOptions::Until::kEnd);
  if (!tried || attempt.best == kInfinity) return;
  const bool fits = attempt.outcome.cost.memory.total <= plan_limit(search.request);
  if (search.request.limit_memory && !fits) return;
  search.best = attempt.best;
  search.outcome.strategy = std::move(attempt.outcome.strategy);
  search.outcome.cost = std::move(attempt.outcome.cost);
}

// Interrupted before the searcher had a plan: better a baseline than nothing, but soon. The
// cheapest baseline is found quickly, and often fits; what fits is looked for in the time left.
void fall_back(MeshSearch& search) {
  const auto begin = std::chrono::steady_clock::now();
  bool tried = false;  // one is, however late it is
  for (const bool limited : {false, true}) {
    if (limited && !search.request.limit_memory) return;
    for (const char* name : {"data_parallel", "replicate"}) {
      for (const MeshTrial& trial : search.outcome.trials) {
        const Seconds limit = search.request.solve.time_limit;
        const Seconds left = limit < kInfinity ? limit + beyond(limit) - seconds_since(search.start)
                                               : kFallBackSeconds - seconds_since(begin);
        if (search.best < kInfinity || (left <= 0 && tried)) return;
        tried = true;
        if (trial.end == TrialEnd::kPinsNotKept) continue;
        try_baseline(search, name, trial.mesh, limited, left);
      }
    }
  }
}

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
    if (!(trial.mesh == mesh) || trial.undone.empty()) continue;
    outcome.notes.push_back("cost model " + request.cost_model + ": " + trial.undone);
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

Result<SearchOutcome> search_on(const SearchRequest& request, const Searcher& searcher,
                                const std::vector<Mesh>& meshes, const MeshSearchReach& reach) {
  MeshSearch state(request, searcher, meshes, reach);
  AUTOPAR_RETURN_IF_ERROR(search_meshes(state));
  // A searcher that does not say so itself.
  const auto& trials = state.outcome.trials;
  const bool is_open =
      state.best == kInfinity && std::any_of(trials.begin(), trials.end(), [](const auto& trial) {
        return trial.end == TrialEnd::kNothingFound || trial.end == TrialEnd::kNotTried;
      });
  state.outcome.interrupted |= is_open && state.stopped();
  if (request.tell) request.tell(trials);
  if (request.findings != nullptr) {
    *request.findings = state.findings();
  } else if (state.best == kInfinity && state.outcome.interrupted) {
    fall_back(state);
  }
  if (state.best == kInfinity) {
    const std::optional<Error> pins = pins_not_kept(state.outcome.trials);
    const std::optional<Error> large = too_large(state.outcome.trials);
    return pins    ? *pins
           : large ? *large
                   : no_plan(request, state.tightest, state.outcome.interrupted);
  }
  state.outcome.searcher = searcher.name;
  state.note_bound();
  AUTOPAR_RETURN_IF_ERROR(add_notes(request, state.outcome));
  return std::move(state.outcome);
}

Seconds SearchRequest::objective(const StrategyCost& cost) const {
  return weights ? cost.step->busy.weighted(*weights) : cost.total();
}

namespace {

// Where that is known without looking at any mesh.
SearchFindings none_fit(const SearchRequest& request) {
  SearchFindings findings{{}, kInfinity, 0};
  for (const Mesh& mesh : meshes_of(request)) {
    MeshTrial& trial = findings.trials.emplace_back();
    trial.mesh = mesh;
    trial.end = TrialEnd::kNothingFits;
    trial.lower_bound = kInfinity;
  }
  return findings;
}

Result<SearchOutcome> search_within(const SearchRequest& request) {
  AUTOPAR_TRY(searcher, find_searcher(request.searcher));
  AUTOPAR_RETURN_IF_ERROR(check_names(request.pins, request.graph));
  AUTOPAR_RETURN_IF_ERROR(check_counts(request));
  if (const Status fits = check_memory(request); !fits) {
    if (request.findings != nullptr) *request.findings = none_fit(request);
    return fits.error();
  }
  if (searcher->search != nullptr) return searcher->search(request);
  // A baseline looks at one candidate per op: no need to price the others.
  SearchRequest narrowed = request;
  if (narrowed.fill == Fill::kSearch) narrowed.fill = searcher->fill;
  return !narrowed.weights && is_weighted(narrowed, *searcher)
             ? search_weighted(narrowed, *searcher)
             : search_on(narrowed, *searcher, meshes_of(narrowed));
}

}  // namespace

Result<SearchOutcome> search(const SearchRequest& request) {
  auto found = search_within(request);
  const bool has_other = request.findings != nullptr ||
                         plan_limit(request) == memory_limit(request) ||
                         !check_memory(request).ok();
  if (found || found.error().code != ErrorCode::kInfeasible || !request.limit_memory || has_other) {
    return found;
  }
  SearchRequest tighter = request;
  tighter.fits_surely = false;
  const auto may_fit = search_within(tighter);
  if (may_fit) return fits_not_surely(request, *may_fit);
  return may_fit.error();
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
