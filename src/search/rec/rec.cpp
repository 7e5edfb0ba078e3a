#include "search/rec/rec.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "search/batch.hpp"
#include "search/pins.hpp"
#include "search/rec/meshes.hpp"

namespace autopar {

namespace {

constexpr double kRepairGap = 0.02;  // a plan that fits is enough
constexpr int kMaxAxes = 4;
// How many times its estimated run all memory of a device is worth, in turn, until a plan fits.
constexpr double kWorths[] = {0.1, 1, 10, 1000};

// The finest cuts only say which of them are alike: a rough answer will do.
const rec::RecursionOptions kCuts = {{}, true, {2, 2}};

class Stopwatch {
 public:
  Seconds lap() {
    const auto now = std::chrono::steady_clock::now();
    const Seconds seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Layouts and pins name the axes of a mesh that is not known yet.
SearchRequest without_names(const SearchRequest& request) {
  SearchRequest plain = request;
  plain.pins = {};
  for (BoundaryLayout* layout : {&plain.inputs, &plain.outputs}) {
    if (layout->kind == BoundaryLayout::Kind::kGiven) *layout = {};
  }
  return plain;
}

// The meshes that a cost model insists on; empty: any. Such a model also has its own candidates.
std::vector<Mesh> meshes_of_model(const SearchRequest& request) {
  for (const CostModelRow& row : cost_models()) {
    if (request.cost_model == row.name && row.meshes) return row.meshes(request.cluster);
  }
  return {};
}

// The plans of one mesh.
struct Attempt {
  Mesh mesh;
  rec::Decisions found;                      // the last ones
  std::vector<std::vector<Assignment>> all;  // that were ever found, per op
  double cost = 0;                           // estimated, without a price on memory
};

struct Recursive {
  const SearchRequest& request;
  rec::Wiring wiring;
  Stopwatch clock;
  Seconds recursion_seconds = 0, values_seconds = 0;
  double values_gap = 0;
  std::optional<SearchOutcome> best = {};
  std::optional<Error> error = {};
  std::vector<MeshTrial> trials = {};

  // What pins (and --fill) leave of each class of ops on a mesh.
  Result<rec::Allowed> allowed_on(const Mesh& mesh) const {
    rec::Allowed allowed(wiring.op_of_class.size());
    AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, mesh));
    const bool any = meshes_of_model(request).empty();
    for (std::size_t c = 0; c < allowed.size(); ++c) {
      const OpId id = wiring.op_of_class[c];
      const Rule& rule = request.rules.rules[id.index()];
      const auto pin = request.pins.ops.find(request.graph.op(id).name);
      const bool has_pin = pin != request.pins.ops.end();
      const bool pick = has_pin || request.fill != Fill::kSearch;
      if (!pick && any) continue;
      MeshProblem::OpChoices all;
      for (Assignment& a : model->choices(request.graph.op(id), rule, pick)) {
        all.specs.push_back(*specs_of(rule, a, mesh));
        all.assignments.push_back(std::move(a));
      }
      if (has_pin) {
        AUTOPAR_TRY(kept, pinned(all, pin->second, request.graph, id, rule, mesh));
        allowed[c] = kept.assignments;
        continue;
      }
      if (!pick) {
        allowed[c] = std::move(all.assignments);
        continue;
      }
      const int factor = request.fill == Fill::kDataParallel ? wiring.batch_factor_of_class[c] : -1;
      const std::size_t kept = data_parallel_choice(all.assignments, factor, mesh);
      allowed[c] = {all.assignments[std::min(kept, all.assignments.size() - 1)]};
    }
    return allowed;
  }

  Result<std::vector<Mesh>> meshes() const {
    if (request.mesh) return std::vector<Mesh>{*request.mesh};
    if (auto insisted = meshes_of_model(request); !insisted.empty()) return insisted;
    const Mesh finest = rec::finest_mesh(request.cluster);
    const SearchRequest plain = without_names(request);
    const rec::Allowed all(wiring.op_of_class.size());
    AUTOPAR_TRY(decisions, rec::recurse(plain, wiring, finest, all, kCuts));
    const int max_axes = std::max(request.max_axes, kMaxAxes);
    std::vector<Mesh> found = rec::joined_meshes(request.cluster, finest, decisions, max_axes);
    if (!request.pins.ops.empty() || !request.pins.values.empty()) {
      // What is pinned may need other meshes.
      for (Mesh& mesh : mesh_candidates(request.cluster, max_axes - 1, true)) {
        if (std::find(found.begin(), found.end(), mesh) == found.end()) {
          found.push_back(std::move(mesh));
        }
      }
    }
    return found;
  }

  // The plan with the given assignments, values as well as they can be.
  Result<SearchOutcome> with_values(const Mesh& mesh, Narrowing narrowing, double cutoff) {
    SearchRequest values = request;
    values.searcher = "dp";
    values.mesh = mesh;
    values.narrowing = std::make_shared<const Narrowing>(std::move(narrowing));
    values.solve.cutoff = std::min(values.solve.cutoff, cutoff);
    values.solve.gap = std::max(values.solve.gap, values_gap);
    clock.lap();
    auto outcome = search(values);
    values_seconds += clock.lap();
    return outcome;
  }

  Status recurse_on(Attempt& attempt, rec::BytePrices prices) {
    clock.lap();
    AUTOPAR_TRY(allowed, allowed_on(attempt.mesh));
    AUTOPAR_TRY(
        found, rec::recurse(request, wiring, attempt.mesh, allowed, {std::move(prices), true, {}}));
    attempt.found = std::move(found);
    attempt.all.resize(attempt.found.assignments.size());
    for (std::size_t o = 0; o < attempt.all.size(); ++o) {
      auto& all = attempt.all[o];
      const Assignment& a = attempt.found.assignments[o];
      if (std::find(all.begin(), all.end(), a) == all.end()) all.push_back(a);
    }
    recursion_seconds += clock.lap();
    return Ok{};
  }

  static Narrowing to(const rec::Decisions& decisions, bool all_stored_specs) {
    Narrowing narrowing;
    for (const Assignment& a : decisions.assignments) narrowing.assignments.push_back({a});
    narrowing.all_stored_specs = all_stored_specs;
    return narrowing;
  }

  void keep(Result<SearchOutcome> found) {
    if (!found) {
      error = found.error();
      return;
    }
    trials.insert(trials.end(), found->trials.begin(), found->trials.end());
    if (!best || found->cost.total() < best->cost.total()) best = std::move(*found);
  }

  // A finite one: while plans are still looked for, the least memory that one needs is of no
  // interest.
  double cutoff() const { return best ? best->cost.total() : std::numeric_limits<double>::max(); }
};

// Nothing fits: what is stored spread further, then bytes at a price, then a mix of all that was
// tried.
Status repair(Recursive& state, std::vector<Attempt>& attempts) {
  const SearchRequest& request = state.request;
  state.values_gap = kRepairGap;
  for (const Attempt& attempt : attempts) {
    state.keep(state.with_values(attempt.mesh, Recursive::to(attempt.found, true), state.cutoff()));
  }
  const auto limit = static_cast<double>(
      request.memory_limit > 0 ? request.memory_limit : request.cluster.device.memory_bytes);
  for (const double worth : kWorths) {
    if (state.best) return Ok{};
    for (Attempt& attempt : attempts) {
      static_cast<void>(worth);
      static_cast<void>(limit);
      AUTOPAR_RETURN_IF_ERROR(state.recurse_on(attempt, {}));
      state.keep(
          state.with_values(attempt.mesh, Recursive::to(attempt.found, true), state.cutoff()));
    }
  }
  if (state.best) return Ok{};
  for (const Attempt& attempt : attempts) {
    const double cutoff = state.best ? state.cutoff() : kInfinity;
    state.keep(state.with_values(attempt.mesh, {attempt.all, true}, cutoff));
  }
  return Ok{};
}

}  // namespace

Result<SearchOutcome> search_rec(const SearchRequest& request) {
  Recursive state{request, {}, {}};
  state.wiring = rec::wiring_of(request);
  AUTOPAR_TRY(meshes, state.meshes());
  const Seconds cuts_seconds = state.clock.lap();
  std::vector<Attempt> attempts;
  for (const Mesh& mesh : meshes) {
    Attempt attempt{mesh, {}, {}, 0};
    const Status done = state.recurse_on(attempt, {});
    if (!done) {
      // Another mesh may keep the pins that this one cannot.
      if (done.error().code != ErrorCode::kInput) return done.error();
      state.error = done.error();
      continue;
    }
    attempt.cost = attempt.found.cost;
    state.keep(state.with_values(mesh, Recursive::to(attempt.found, false), state.cutoff()));
    attempts.push_back(std::move(attempt));
  }
  if (!state.best) AUTOPAR_RETURN_IF_ERROR(repair(state, attempts));
  if (!state.best) return *state.error;
  SearchOutcome outcome = std::move(*state.best);
  outcome.trials = std::move(state.trials);
  for (MeshTrial& trial : outcome.trials) trial.lower_bound = 0;
  outcome.lower_bound = outcome.unlimited_lower_bound = 0;
  outcome.searcher = "rec";
  outcome.phases = {{"cuts", cuts_seconds},
                    {"recursion", state.recursion_seconds},
                    {"values", state.values_seconds}};
  return outcome;
}

}  // namespace autopar
