#include "search/rec/attempts.hpp"

#include <algorithm>
#include <map>

#include "search/batch.hpp"
#include "search/meshes.hpp"
#include "search/no_plan.hpp"
#include "search/pins.hpp"
#include "search/rec/meshes.hpp"
#include "search/stored_rules.hpp"

namespace autopar::rec {

namespace {

constexpr int kMaxAxes = 4;  // where the request does not say
// Estimates are rough: a mesh that is estimated to be so much dearer than another one may still be
// the better one, or lead to it.
constexpr double kDearer = 2, kLeads = 1.25;
constexpr std::size_t kMostMeshes = 4;
// The finest cuts only say which of them are alike: a rough answer will do.
constexpr DecideOptions kRough = {2, 2};

int max_axes(const SearchRequest& request) {
  return request.max_axes > 0 ? request.max_axes : kMaxAxes;
}

// Layouts and pins name the axes of a mesh that is not known yet.
SearchRequest without_names(const SearchRequest& request) {
  SearchRequest plain = request;
  plain.pins = {};
  for (BoundaryLayout* layout : {&plain.inputs, &plain.outputs}) {
    if (layout->kind == BoundaryLayout::Kind::kGiven) *layout = {};
  }
  return plain;
}

// Whether the cost model insists on meshes. Such a model also has its own candidates.
bool has_own_meshes(const SearchRequest& request) {
  return std::any_of(cost_models().begin(), cost_models().end(), [&](const CostModelRow& row) {
    return request.cost_model == row.name && row.meshes != nullptr;
  });
}

// Those that the cuts of the machine do not lead to: what is fixed, or pins may need. Of more than
// the axes of the exact search there are many.
std::vector<Mesh> given_meshes(const SearchRequest& request) {
  SearchRequest asked = request;
  if (asked.max_axes > kDefaultAxes) asked.max_axes = 0;
  return meshes_of(asked);
}

}  // namespace

// What pins (and --fill) leave of each class of ops on a mesh.
Result<Allowed> Attempts::allowed_on(const KeptPins& kept, CostModel& model) const {
  Allowed allowed(wiring.op_of_class.size());
  const Mesh& mesh = model.mesh();
  const bool any = !has_own_meshes(request);
  for (std::size_t c = 0; c < allowed.size(); ++c) {
    const OpId id = wiring.op_of_class[c];
    const Rule& rule = request.rules.rules[id.index()];
    const bool has_pin = kept.concerns(request.graph, id);
    const bool pick = has_pin || request.fill != Fill::kSearch;
    if (!pick && any) continue;
    MeshProblem::OpChoices all;
    const Op& op = request.graph.op(id);
    for (Assignment& a : pick ? model.choices_of_pin(op, rule) : model.choices(op, rule)) {
      all.specs.push_back(*specs_of(rule, a, mesh));
      all.assignments.push_back(std::move(a));
    }
    if (has_pin) {
      AUTOPAR_TRY(left, left_by(kept, std::move(all), request.graph, id, rule, mesh));
      allowed[c] = std::move(left.assignments);
      continue;
    }
    if (!pick) {
      allowed[c] = std::move(all.assignments);
      continue;
    }
    const int factor = request.fill == Fill::kDataParallel ? wiring.batch_factor_of_class[c] : -1;
    const std::size_t choice = data_parallel_choice(all.assignments, factor, mesh);
    allowed[c] = {all.assignments[std::min(choice, all.assignments.size() - 1)]};
  }
  return allowed;
}

// Joins go on only from meshes that are not much dearer than the best one.
Status Attempts::make_joined(const BytePrices& prices, std::vector<Attempt>& made) {
  clock.lap();
  const Mesh finest = finest_mesh(request.cluster);
  const SearchRequest plain = without_names(request);
  const Allowed all(wiring.op_of_class.size());
  RecursionOptions rough = options_of(prices);
  rough.decide = kRough;
  AUTOPAR_TRY(decisions, recurse(plain, {}, wiring, finest, all, rough));
  cuts_seconds += clock.lap();
  const JoinedMeshes meshes(request.cluster, finest, decisions);
  std::map<JoinedMeshes::Joins, double> estimates;
  double best_estimate = kInfinity;
  for (const JoinedMeshes::Joins& joins : meshes.all(max_axes(request))) {
    bool is_first = true, worth_it = false;
    for (std::size_t t = 0; t < joins.size(); ++t) {
      JoinedMeshes::Joins finer = joins;
      if (finer[t]-- == 0) continue;
      const auto known = estimates.find(finer);
      if (known == estimates.end()) continue;
      is_first = false;
      worth_it |= known->second <= kLeads * best_estimate;
    }
    estimates[joins] = kInfinity;
    if (!is_first && !worth_it) continue;
    if (!made.empty() && stopped()) break;
    Attempt attempt{meshes.mesh(joins)};
    const Status done = recurse_on(attempt, prices);
    if (done) {
      estimates[joins] = attempt.found.cost;
      best_estimate = std::min(best_estimate, attempt.found.cost);
      made.push_back(std::move(attempt));
    } else if (done.error().code == ErrorCode::kInput) {
      refuse(attempt.mesh, done.error());
    } else {
      return done;
    }
  }
  return Ok{};
}

Result<std::vector<Attempt>> Attempts::make(const BytePrices& prices) {
  std::vector<Attempt> made;
  const bool is_given = request.mesh || has_own_meshes(request);
  if (!is_given) AUTOPAR_RETURN_IF_ERROR(make_joined(prices, made));
  const bool is_pinned = !request.pins.ops.empty() || !request.pins.values.empty();
  std::vector<Mesh> others;
  if (is_given || is_pinned) others = given_meshes(request);
  for (const Mesh& mesh : others) {
    const auto same = [&](const auto& tried) { return tried.mesh == mesh; };
    if (std::any_of(made.begin(), made.end(), same)) continue;
    if (std::any_of(refused.begin(), refused.end(), same)) continue;
    if (!made.empty() && stopped()) break;
    Attempt attempt{mesh};
    const Status done = recurse_on(attempt, prices);
    if (done) {
      made.push_back(std::move(attempt));
    } else if (done.error().code == ErrorCode::kInput) {
      refuse(mesh, done.error());
    } else {
      return done.error();
    }
  }
  if (made.empty()) return *pins_not_kept(refused);
  std::stable_sort(made.begin(), made.end(),
                   [](const Attempt& a, const Attempt& b) { return a.found.cost < b.found.cost; });
  const double most = kDearer * made.front().found.cost;
  std::erase_if(made, [&](const Attempt& attempt) { return attempt.found.cost > most; });
  if (made.size() > kMostMeshes) made.resize(kMostMeshes);
  return made;
}

// Another mesh may keep the pins that this one cannot.
void Attempts::refuse(const Mesh& mesh, const Error& why) {
  MeshTrial trial;
  trial.mesh = mesh;
  trial.end = TrialEnd::kPinsNotKept;
  trial.why = why.message;
  refused.push_back(std::move(trial));
}

RecursionOptions Attempts::options_of(BytePrices prices) const {
  RecursionOptions options{std::move(prices)};
  if (may_end_without) options.is_over = [this] { return stopped(); };
  return options;
}

Status Attempts::recurse_on(Attempt& attempt, BytePrices prices) {
  clock.lap();
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, attempt.mesh));
  AUTOPAR_TRY(kept, keep_pins(request, *model));
  AUTOPAR_TRY(allowed, allowed_on(kept, *model));
  AUTOPAR_TRY(found,
              recurse(request, kept, wiring, attempt.mesh, allowed, options_of(std::move(prices))));
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
  // The recursion does not know of rules about what is stored: what reads it is decided here.
  const std::vector<bool> as_read = as_read_values(request, [](ValueId) { return true; });
  for (std::size_t o = 0; o < narrowing.assignments.size(); ++o) {
    const std::vector<ValueId>& inputs = request.graph.ops[o].inputs;
    const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](ValueId input) {
      return input.valid() && as_read[input.index()];
    });
    if (reads) narrowing.assignments[o].clear();
  }
  if (options.stored != nullptr) {
    narrowing.stored = {options.stored->stored.begin(), options.stored->stored.end()};
  }
  SearchRequest values = request;
  values.searcher = "dp";
  values.mesh = attempt.mesh;
  values.narrowing = std::make_shared<const Narrowing>(std::move(narrowing));
  values.limit_memory = request.limit_memory && options.limited;
  values.solve.cutoff = std::min(values.solve.cutoff, options.cutoff);
  values.solve.gap = std::max(values.solve.gap, options.gap);
  values.solve.most_effort = 1;
  values.solve.time_limit = std::max(1e-3, time_left());
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
  if (!best || found->cost.time() < best->cost.time()) best = std::move(*found);
  return true;
}

double Attempts::limit() const { return static_cast<double>(plan_limit(request)); }

Seconds Attempts::time_left() const {
  const Seconds limit = request.solve.time_limit;
  return limit + (best ? 0 : beyond(limit)) - clock.total();
}

bool Attempts::stopped() const {
  return time_left() <= 0 || (request.solve.stop != nullptr && request.solve.stop->load());
}

}  // namespace autopar::rec
