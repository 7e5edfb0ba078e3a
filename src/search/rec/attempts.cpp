#include "search/rec/attempts.hpp"

#include <algorithm>

#include "search/batch.hpp"
#include "search/pins.hpp"
#include "search/rec/meshes.hpp"

namespace autopar::rec {

namespace {

constexpr int kMaxAxes = 4;
// The finest cuts only say which of them are alike: a rough answer will do.
constexpr DecideOptions kRough = {2, 2};

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

}  // namespace

Seconds Stopwatch::lap() {
  const auto now = std::chrono::steady_clock::now();
  const Seconds seconds = std::chrono::duration<double>(now - last_).count();
  last_ = now;
  return seconds;
}

Seconds Stopwatch::total() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

// What pins (and --fill) leave of each class of ops on a mesh.
Result<Allowed> Attempts::allowed_on(const Mesh& mesh) const {
  Allowed allowed(wiring.op_of_class.size());
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

Result<std::vector<Mesh>> Attempts::meshes(const BytePrices& prices) const {
  if (request.mesh) return std::vector<Mesh>{*request.mesh};
  if (auto insisted = meshes_of_model(request); !insisted.empty()) return insisted;
  const Mesh finest = finest_mesh(request.cluster);
  const SearchRequest plain = without_names(request);
  const Allowed all(wiring.op_of_class.size());
  AUTOPAR_TRY(decisions, recurse(plain, wiring, finest, all, {prices, true, kRough}));
  const int max_axes = std::max(request.max_axes, kMaxAxes);
  std::vector<Mesh> found = joined_meshes(request.cluster, finest, decisions, max_axes);
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

Status Attempts::recurse_on(Attempt& attempt, BytePrices prices) {
  clock.lap();
  AUTOPAR_TRY(allowed, allowed_on(attempt.mesh));
  AUTOPAR_TRY(found,
              recurse(request, wiring, attempt.mesh, allowed, {std::move(prices), true, {}}));
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

Result<SearchOutcome> Attempts::with_values(const Attempt& attempt, bool all_assignments,
                                            const ValuesOptions& options) {
  Narrowing narrowing;
  narrowing.all_stored_specs = options.all_stored_specs;
  if (all_assignments) {
    narrowing.assignments = attempt.all;
  } else {
    for (const Assignment& a : attempt.found.assignments) narrowing.assignments.push_back({a});
  }
  SearchRequest values = request;
  values.searcher = "dp";
  values.mesh = attempt.mesh;
  values.narrowing = std::make_shared<const Narrowing>(std::move(narrowing));
  values.limit_memory = request.limit_memory && options.limited;
  values.solve.cutoff = std::min(values.solve.cutoff, options.cutoff);
  values.solve.gap = std::max(values.solve.gap, options.gap);
  values.solve.time_limit = std::max(1e-3, request.solve.time_limit - clock.total());
  if (options.stored != nullptr) {
    for (const auto& [value, spec] : options.stored->stored) {
      std::string& pin = values.pins.values[request.graph.value(value).name].spec;
      if (pin.empty()) pin = to_text(spec, attempt.mesh);
    }
  }
  clock.lap();
  auto outcome = search(values);
  values_seconds += clock.lap();
  return outcome;
}

// Of several plans on one mesh the best one is told.
bool Attempts::keep(Result<SearchOutcome> found) {
  if (!found) {
    error = found.error();
    return false;
  }
  for (MeshTrial& trial : found->trials) {
    trial.lower_bound = 0;
    const auto same = std::find_if(trials.begin(), trials.end(),
                                   [&](const MeshTrial& t) { return t.mesh == trial.mesh; });
    if (same == trials.end()) {
      trials.push_back(trial);
    } else if (trial.cost < same->cost) {
      *same = trial;
    }
  }
  if (!best || found->cost.total() < best->cost.total()) best = std::move(*found);
  return true;
}

double Attempts::limit() const {
  return static_cast<double>(request.memory_limit > 0 ? request.memory_limit
                                                      : request.cluster.device.memory_bytes);
}

bool Attempts::stopped() const {
  return clock.total() >= request.solve.time_limit ||
         (request.solve.stop != nullptr && request.solve.stop->load());
}

}  // namespace autopar::rec
