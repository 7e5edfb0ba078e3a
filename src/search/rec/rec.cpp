#include "search/rec/rec.hpp"

#include <algorithm>
#include <chrono>

#include "search/batch.hpp"
#include "search/pins.hpp"
#include "search/rec/meshes.hpp"

namespace autopar {

namespace {

constexpr int kMaxAxes = 4;

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

struct Recursive {
  const SearchRequest& request;
  rec::Wiring wiring;
  Stopwatch clock;
  Seconds meshes_seconds = 0, recursion_seconds = 0, values_seconds = 0;

  // What pins (and --fill) leave of each class of ops on a mesh.
  Result<rec::Allowed> allowed_on(const Mesh& mesh) const {
    rec::Allowed allowed(wiring.op_of_class.size());
    for (std::size_t c = 0; c < allowed.size(); ++c) {
      const OpId id = wiring.op_of_class[c];
      const Rule& rule = request.rules.rules[id.index()];
      const auto pin = request.pins.ops.find(request.graph.op(id).name);
      const bool has_pin = pin != request.pins.ops.end();
      if (!has_pin && request.fill == Fill::kSearch) continue;
      MeshProblem::OpChoices all;
      for (Assignment& a : candidates(rule, mesh)) {
        all.specs.push_back(*specs_of(rule, a, mesh));
        all.assignments.push_back(std::move(a));
      }
      if (has_pin) {
        AUTOPAR_TRY(kept, pinned(all, pin->second, request.graph, id, rule, mesh));
        allowed[c] = kept.assignments;
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
    const Mesh finest = rec::finest_mesh(request.cluster);
    const SearchRequest plain = without_names(request);
    const rec::Allowed all(wiring.op_of_class.size());
    AUTOPAR_TRY(decisions, rec::recurse(plain, wiring, finest, all, {}));
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

  Result<SearchOutcome> on_mesh(const Mesh& mesh, double byte_price, double cutoff) {
    AUTOPAR_TRY(allowed, allowed_on(mesh));
    AUTOPAR_TRY(decisions, rec::recurse(request, wiring, mesh, allowed, {byte_price}));
    recursion_seconds += clock.lap();
    auto narrowing = std::make_shared<Narrowing>();
    for (Assignment& a : decisions.assignments) narrowing->assignments.push_back({std::move(a)});
    narrowing->all_stored_specs = byte_price > 0;
    SearchRequest values = request;
    values.searcher = "dp";
    values.mesh = mesh;
    values.narrowing = std::move(narrowing);
    values.solve.cutoff = std::min(values.solve.cutoff, cutoff);
    auto outcome = search(values);
    values_seconds += clock.lap();
    return outcome;
  }
};

}  // namespace

Result<SearchOutcome> search_rec(const SearchRequest& request) {
  Recursive state{request, {}, {}};
  state.wiring = rec::wiring_of(request);
  AUTOPAR_TRY(meshes, state.meshes());
  state.meshes_seconds = state.clock.lap();
  std::optional<SearchOutcome> best;
  std::optional<Error> error;
  std::vector<MeshTrial> trials;
  // The price of a byte such that all memory of a device is worth this many times the run.
  for (const double worth : {0.0, 0.1, 1.0, 10.0, 1000.0}) {
    for (const Mesh& mesh : meshes) {
      const double cutoff = best ? best->cost.total() : kInfinity;
      auto found = state.on_mesh(mesh, worth * 1e-12, cutoff);
      if (!found) {
        error = found.error();
        continue;
      }
      trials.insert(trials.end(), found->trials.begin(), found->trials.end());
      if (!best || found->cost.total() < best->cost.total()) best = std::move(*found);
    }
    if (best) break;
  }
  if (!best) return *error;
  best->trials = std::move(trials);
  for (MeshTrial& trial : best->trials) trial.lower_bound = 0;
  best->lower_bound = best->unlimited_lower_bound = 0;
  best->searcher = "rec";
  best->phases = {{"cuts", state.meshes_seconds},
                  {"recursion", state.recursion_seconds},
                  {"values", state.values_seconds}};
  return std::move(*best);
}

}  // namespace autopar
