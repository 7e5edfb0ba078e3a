#include "search/auto.hpp"

#include <algorithm>
#include <chrono>
#include <future>

#include "search/bound_beside.hpp"
#include "search/meshes.hpp"
#include "search/no_plan.hpp"
#include "search/rec/rec.hpp"
#include "search/small_step.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

constexpr double kAffordable = 2e10;  // a minute or so of one core
constexpr double kTooLate = 0.02;     // of the time limit: with less left nothing more is begun
constexpr Seconds kInterruptedSeconds = 1;  // for each baseline after an interrupt without a plan
constexpr double kBetterAtMost = 0.9;       // times what a quick searcher found
constexpr int kMaxImprovedAxes = 4;
// With more axes than the exact search tries by itself, tables are what a search takes: 8 to 30
// bytes for each of these (measured on four axes), so about a GiB at most.
constexpr double kAffordableOnManyAxes = 3e7;
// A small training step whose plan is further than that above its bound is also planned by
// templates, which takes as long as the exact search: where the host that issues kernels or links
// are what takes the time, sums of busy times may favour a plan that is slower than theirs. Of two
// steps of a small GPT on 8 devices it was 4 and 6 % slower.
constexpr double kWorthTemplates = 0.02;
constexpr int kMaxAxes = 6;  // of a mesh on which candidates are counted at all

// About what the exact search has to look at: per op the squares of its number of candidates, over
// all meshes. Counts no clock, so that the same input gives the same plan anywhere.
// No more than just above `affordable`.
double size_of_exact_search(const SearchRequest& request, double affordable) {
  const std::vector<Mesh> meshes = meshes_of(request);
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
      if (size > affordable) return size;
    }
  }
  return size;
}

// Something that propagation can start from.
bool has_seeds(const SearchRequest& request) {
  return !request.pins.ops.empty() || !request.pins.values.empty() ||
         request.inputs.kind != BoundaryLayout::Kind::kFree ||
         request.outputs.kind != BoundaryLayout::Kind::kFree;
}

struct Auto {
  const SearchRequest& request;
  double affordable = kAffordable;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::vector<SearcherTrial> tried = {};
  std::optional<SearchOutcome> best = {};
  std::optional<Error> error = {};
  double bound = 0, unlimited_bound = 0;
  std::vector<MeshTrial> searched = {};  // exactly
  bool cut_short = false;                // the exact search was stopped without a plan

  void keep(const std::string& name, Result<SearchOutcome> found) {
    if (!found) {
      tried.push_back({name, false, 0, found.error().message});
      // The exact searcher knows best why nothing fits.
      if (!error || name == "dp") error = found.error();
      return;
    }
    tried.push_back({name, true, found->cost.time(), ""});
    if (found->searcher == "dp") {
      searched.insert(searched.end(), found->trials.begin(), found->trials.end());
    }
    bound = std::max(bound, found->lower_bound);
    unlimited_bound = std::max(unlimited_bound, found->unlimited_lower_bound);
    const bool better = !best || found->cost.time() < best->cost.time();
    const bool interrupted = found->interrupted || (best && best->interrupted);
    if (better) best = std::move(*found);
    best->interrupted = interrupted;
  }

  // What the exact search found out holds where it has no plan, too.
  void keep_exact(const std::string& name, Result<SearchOutcome> found,
                  const SearchFindings& findings) {
    if (!found) {
      searched.insert(searched.end(), findings.trials.begin(), findings.trials.end());
      bound = std::max(bound, findings.lower_bound);
      unlimited_bound = std::max(unlimited_bound, findings.unlimited_lower_bound);
      cut_short = cut_short || stopped();
    }
    keep(name, std::move(found));
  }

  bool has_exact_plan() const {
    return std::any_of(tried.begin(), tried.end(), [](const SearcherTrial& trial) {
      return trial.searcher == "dp" && trial.found;
    });
  }

  // As if it ran alone, within the time that is left.
  void run(const std::string& name, const std::optional<Mesh>& mesh = {}) {
    SearchRequest asked = request;
    asked.searcher = name;
    if (mesh) asked.mesh = mesh;
    asked.solve.time_limit = time_left();
    asked.solve.least_peak = request.solve.least_peak && !best;
    SearchFindings unread;  // where nothing is found in time fall_back() has a plan
    if (stops_by_time()) asked.findings = &unread;
    keep(name, search(asked));
  }

  // To find out what of it fits takes long on large models; so first without the limit, which
  // shows whether that matters.
  void run_if_it_may_win(const std::string& name, const std::optional<Mesh>& mesh = {}) {
    if (!best || !request.limit_memory) return run(name, mesh);
    SearchRequest asked = request;
    asked.searcher = name;
    if (mesh) asked.mesh = mesh;
    asked.solve.time_limit = time_left();
    asked.limit_memory = false;
    auto unlimited = search(asked);
    if (!unlimited) return keep(name, std::move(unlimited));
    if (unlimited->cost.memory.total <= plan_limit(request))
      return keep(name, std::move(unlimited));
    const double least = unlimited->cost.time() * (1 - request.solve.gap) * kBetterAtMost;
    if (best->cost.time() > least) return run(name, mesh);
    tried.push_back({name, false, 0, "it does not fit, and is no cheaper without a memory limit"});
  }

  // A plan that is within the memory, and no cheaper than the best one.
  void note_no_less(const std::string& name, std::string why) {
    tried.push_back({name, false, best->cost.time(), std::move(why)});
  }

  // What the exact search says about the meshes that it tried: on which of them no plan is cheaper
  // than the best one by more than the gap, and on which one may be.
  struct Known {
    Proven proven;
    std::vector<Mesh> open;
  };
  std::optional<Known> known() const {
    if (!best || best->searcher != "dp" || best->interrupted) return {};
    const Seconds enough = best->cost.time() * (1 - request.solve.gap);
    Known found{{enough, {}}, {}};
    for (const MeshTrial& trial : searched) {
      if (trial.end == TrialEnd::kNotTried) return {};
      const bool silent = trial.end == TrialEnd::kPinsNotKept || trial.end == TrialEnd::kTooLarge;
      if (silent) continue;
      const bool closed = trial.lower_bound >= enough;
      (closed ? found.proven.meshes : found.open).push_back(trial.mesh);
    }
    return found;
  }

  void run_rec_beside(Proven proven) {
    SearchRequest asked = request;
    asked.searcher = "rec";
    auto found = search_rec(asked, proven);
    if (!found) {
      keep("rec", found.error());
    } else if (*found) {
      keep("rec", std::move(**found));
    } else {
      note_no_less("rec", "it has no plan that is cheaper than that of dp");
    }
  }

  // The quick ones after the exact one. Those that try its meshes, and look at a part of its plans,
  // have nothing to add to what is proven; `rec` has some meshes of its own.
  void run_beside(const Known& known) {
    run_rec_beside(known.proven);
    if (may_be_template()) run("uniform");
    for (const std::string name : {"data_parallel", "propagate"}) {
      if (name == "propagate" && !has_seeds(request)) continue;
      if (known.open.empty()) {
        note_no_less(name,
                     "not run: no plan on the meshes of dp is cheaper than its own, as proven");
      } else if (name == "propagate") {
        run(name);
      } else if (known.open.size() == 1) {
        run_if_it_may_win(name, known.open.front());
      } else {
        run_if_it_may_win(name);
      }
    }
  }

  bool may_be_template() const {
    const std::vector<Op>& ops = request.graph.ops;
    const bool trains = std::any_of(ops.begin(), ops.end(),
                                    [](const Op& op) { return op.phase == Phase::kUpdate; });
    const bool is_free = request.pins.ops.empty() && request.pins.values.empty() && !request.mesh;
    return trains && is_free && ops.size() <= kSmallStep && best->cost.step &&
           bound < (1 - kWorthTemplates) * best->cost.time() && !stopped();
  }

  // Within the time that is left.
  void run_exact() {
    SearchRequest asked = request;
    SearchFindings findings;
    asked.searcher = "dp";
    asked.solve.time_limit = time_left();
    asked.findings = &findings;
    auto found = search(asked);
    keep_exact("dp", std::move(found), findings);
  }

  Seconds over() const {
    const Seconds limit = request.solve.time_limit;
    return limit + beyond(limit) - seconds_since(start);
  }

  // Stopped before anything had a plan: better a baseline than nothing, but soon. The cheapest of
  // its kind is found at once, and often fits; what fits is looked for in the time left.
  void fall_back() {
    for (const bool limited : {false, true}) {
      for (const char* name : {"data_parallel", "replicate"}) {
        if (best || (limited && !request.limit_memory)) return;
        SearchRequest asked = request;
        asked.searcher = name;
        if (!searched.empty()) asked.mesh = searched.front().mesh;
        asked.solve.stop = nullptr;
        asked.limit_memory = limited;
        asked.solve.time_limit = limited ? time_for_baseline() : kInfinity;
        if (asked.solve.time_limit <= 0) return;
        auto found = search(asked);
        const bool fits =
            !found || !request.limit_memory || found->cost.memory.total <= plan_limit(request);
        if (fits) keep(name, std::move(found));
      }
    }
  }

  bool stops_by_time() const { return request.solve.time_limit < kInfinity; }

  Seconds time_for_baseline() const { return stops_by_time() ? over() : kInterruptedSeconds; }

  Seconds time_left() const {
    return std::max(1e-3, request.solve.time_limit - seconds_since(start));
  }
  bool stopped() const {
    return (request.solve.stop != nullptr && request.solve.stop->load()) ||
           time_left() <= kTooLate * std::min(request.solve.time_limit, 1e9);
  }

  // The best plan may live on a mesh that the exact search did not try. Then it is tried too, if
  // there is the time and the problem is small enough; else the bound is one over the other meshes,
  // and this one is listed as not tried.
  void search_mesh_of_best() {
    if (!best || bound == 0) return;
    const Mesh mesh = best->strategy.mesh;
    for (const MeshTrial& trial : searched) {
      if (trial.mesh == mesh) return;
    }
    const double others = bound, unlimited_others = unlimited_bound;
    SearchRequest asked = request;
    asked.searcher = "dp";
    asked.mesh = mesh;
    asked.solve.time_limit = time_left();
    const std::size_t before = searched.size();
    const bool many = mesh.rank() > std::max(request.max_axes, kDefaultAxes);
    const double most = many ? std::min(affordable, kAffordableOnManyAxes) : affordable;
    if (!stopped() && size_of_exact_search(asked, most) <= most) {
      bound = unlimited_bound = 0;
      keep("dp on mesh " + to_text(mesh), search(asked));
    }
    if (searched.size() > before && searched.back().lower_bound > 0) {
      bound = std::min(bound, others);
      unlimited_bound = std::min(unlimited_bound, unlimited_others);
      return;
    }
    searched.resize(before);
    MeshTrial not_tried;
    not_tried.mesh = mesh;
    searched.push_back(not_tried);
    bound = others;
    unlimited_bound = unlimited_others;
  }

  // All plans that differ from the best one in one mesh axis per op, searched exactly.
  void improve() {
    const bool moving = request.moving != SearchRequest::Moving::kNo;
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
          if (is_moving(rule, other) && !moving) continue;
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
    asked.solve.most_effort = 1;
    asked.solve.time_limit = time_left();
    auto found = search(asked);
    if (found) found->lower_bound = found->unlimited_lower_bound = 0;
    const std::string name = best->searcher + ", improved";
    if (found) found->searcher = name;
    keep(name, std::move(found));
  }
};

void run_quick(Auto& state) {
  for (const char* name : {"rec", "data_parallel"}) state.run_if_it_may_win(name);
  if (has_seeds(state.request)) state.run("propagate");
}

// Within a time limit the quick ones come first: on large models only they may have a plan in time.
// Where there are several threads one is for them, and the exact search need not wait.
std::string run_in_time(Auto& state) {
  const SearchRequest& request = state.request;
  if (request.solve.threads < 2) {
    run_quick(state);
    state.cut_short = state.stopped();
    if (state.cut_short) return "the time limit left none for the exact search";
    state.run_exact();
    state.search_mesh_of_best();
    return "the exact search had what was left of the time limit";
  }
  SearchRequest apart = request, exact = request;
  SearchFindings findings;
  exact.findings = &findings;
  apart.solve.progress = nullptr;
  apart.solve.threads = 1;
  exact.searcher = "dp";
  exact.solve.threads -= 1;
  Auto quick{apart, state.affordable, state.start};
  auto ran = std::async(std::launch::async, [&quick] { run_quick(quick); });
  auto found = search(exact);
  ran.get();
  state.tried = std::move(quick.tried);
  state.best = std::move(quick.best);
  state.error = std::move(quick.error);
  state.keep_exact("dp", std::move(found), findings);
  state.search_mesh_of_best();
  return "the exact search ran beside the quick ones for the time limit";
}

// Runs what there is to run; says why just that.
std::string run_all(Auto& state) {
  if (state.request.solve.time_limit < kInfinity) return run_in_time(state);
  const bool small = size_of_exact_search(state.request, state.affordable) <= state.affordable;
  if (small || state.request.solve.gap > 0) {
    state.run_exact();
    state.cut_short = state.stopped();
    if (state.cut_short) return "it was interrupted before the others ran";
    const bool none_is_cheaper = !state.best && state.request.solve.cutoff < kInfinity;
    if (none_is_cheaper) return "the exact search found nothing cheaper than what is known";
    if (const auto known = state.known()) {
      state.run_beside(*known);
    } else {
      run_quick(state);
    }
    state.search_mesh_of_best();
    if (!state.has_exact_plan()) {
      return "the exact search has no plan, and --searcher dp says why";
    }
    return small ? "the problem is small enough for the exact search"
                 : "a gap was asked for, which only the exact search can tell";
  }
  run_quick(state);
  std::string why =
      "the problem is too large for the exact search (--time-limit or --searcher dp "
      "runs it)";
  if (!state.best || state.stopped() || state.best->strategy.mesh.rank() > kMaxImprovedAxes) {
    return why;
  }
  state.improve();
  return why + ", so the best plan was improved op by op";
}

}  // namespace

Result<SearchOutcome> search_auto(const SearchRequest& request) {
  return search_auto(request, kAffordable);
}

Result<SearchOutcome> search_auto(const SearchRequest& request, double affordable) {
  Auto state{request, affordable};
  std::string why = run_all(state);
  if (!state.best && state.cut_short) state.fall_back();
  if (request.findings != nullptr) {
    *request.findings = {state.searched, state.bound, state.unlimited_bound};
  }
  if (!state.best) return *state.error;
  SearchOutcome outcome = std::move(*state.best);
  outcome.interrupted = outcome.interrupted || state.cut_short;
  if (!state.searched.empty()) outcome.trials = std::move(state.searched);
  const Seconds time = outcome.cost.time();
  // A bound on other meshes may be above the plan.
  outcome.lower_bound =
      outcome.bounds_own_mesh() ? bound_beside(state.bound, time) : std::min(state.bound, time);
  outcome.unlimited_lower_bound = std::min(state.unlimited_bound, outcome.lower_bound);
  if (!outcome.cost.step) {
    outcome.minimised = {outcome.cost.time(), outcome.lower_bound, outcome.unlimited_lower_bound};
  }
  outcome.picked = {outcome.searcher, std::move(why), std::move(state.tried)};
  outcome.searcher = "auto";
  return outcome;
}

}  // namespace autopar
