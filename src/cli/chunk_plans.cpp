#include "cli/chunk_plans.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

namespace autopar::cli {

namespace {

// Of the effort of a search: several meshes and chunks share it. With all of it a chunk of 40 of
// 70B's layers took 12 to 17 s (wall, busy cores) per level of recomputation where memory binds.
constexpr double kEffort = 0.1;
// A mesh that was pruned is taken to have a plan that takes so many times its bound.
constexpr double kFar = 1.02;
// Chunks for which all meshes are tried (the first has the embedding, the second has not), and how
// many of the quickest for the others. Measured on steps of 8B: the same ones are best from the
// second chunk on, and all are within 2 %.
constexpr int kSearchedOnAll = 2;
constexpr std::size_t kMeshesOfOthers = 2;

Bytes bytes_of(const ChunkPlan& plan) { return plan.planned->outcome.cost.memory.total; }
std::string mesh_of(const Planned& planned) { return to_text(planned.outcome.strategy.mesh); }

}  // namespace

Inputs without_graph(const Inputs& whole, Cluster stage) {
  Inputs inputs = whole;
  inputs.model.graph = Graph();
  inputs.rules = GraphRules();
  inputs.training_bytes.clear();
  inputs.cluster = std::move(stage);
  return inputs;
}

std::vector<std::string> first_and_last(const Graph& graph) {
  std::vector<std::string> found;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::kForward) continue;
    if (found.empty()) found = {op.name, op.name};
    found[1] = op.name;
  }
  return found;
}

ChunkPlans::ChunkPlans(const ChunkSearch& search, Cluster stage)
    : search_(search), stage_(without_graph(search.whole, std::move(stage))) {}

Result<std::vector<ChunkPlan>> ChunkPlans::of(std::vector<Chunk> chunks,
                                              const std::vector<std::int64_t>& stage_of_chunk,
                                              Seconds cutoff) {
  cutoff_ = cutoff;
  std::vector<ChunkPlan> plans;
  std::vector<Inputs> inputs;
  std::map<std::int64_t, std::vector<std::size_t>> of_stage;
  ++cut_;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    ChunkPlan found;
    found.reduce_ops = std::move(chunks[c].reduce_ops);
    found.first_and_last = first_and_last(chunks[c].graph);
    found.in_flight = chunks[c].graph.in_flight;
    AUTOPAR_TRY(own, inputs_of(std::move(chunks[c].graph)));
    std::vector<std::size_t>& beside = of_stage[stage_of_chunk[c]];
    const std::string mesh = beside.empty() ? "" : mesh_of(*plans[beside.front()].planned);
    if (const Status planned = plan(c, {own, mesh, 0}, found); !planned.ok()) {
      Error error = planned.error();
      error.message = "stage " + std::to_string(stage_of_chunk[c]) + " (" +
                      found.first_and_last.front() + " to " + found.first_and_last.back() +
                      "): " + error.message;
      return error;
    }
    beside.push_back(c);
    plans.push_back(std::move(found));
    inputs.push_back(std::move(own));
  }
  for (const auto& [stage, members] : of_stage) {
    AUTOPAR_RETURN_IF_ERROR(share_memory(members, inputs, plans));
  }
  return plans;
}

Status ChunkPlans::plan(std::size_t chunk, Asked asked, ChunkPlan& found) {
  const Graph& graph = asked.inputs.model.graph;
  for (Known& known : known_) {
    const std::string mesh = mesh_of(*known.planned);
    const bool is_alike = (asked.mesh.empty() || asked.mesh == mesh) &&
                          known.asked.beside == asked.beside &&
                          same_values(known.asked.inputs.model.graph, graph);
    if (!is_alike) continue;
    AUTOPAR_TRY(common, options_of(mesh, asked.beside));
    AUTOPAR_TRY(planned, planned_like(std::make_unique<Inputs>(asked.inputs), *known.planned,
                                      search_.options, pins_of(graph), common));
    const bool fits = planned.outcome.cost.memory.total <= plan_limit(*planned.request);
    if (!fits && graph.in_flight > known.asked.inputs.model.graph.in_flight) continue;
    found.alike = known.cut == cut_ ? static_cast<int>(known.chunk) : -1;
    if (known.cut != cut_) std::tie(known.cut, known.chunk) = std::tuple(cut_, chunk);
    found.planned = std::make_shared<const Planned>(std::move(planned));
    return Ok{};
  }
  AUTOPAR_TRY(planned, searched(asked));
  found.alike = -1;
  found.planned = planned;
  known_.push_back({cut_, chunk, std::move(asked), std::move(planned)});
  return Ok{};
}

bool ChunkPlans::is_open() const {
  const auto& pins = search_.pins;
  const bool is_pinned =
      pins && !(pins->mesh.empty() && pins->pins.ops.empty() && pins->pins.values.empty());
  return search_.common.mesh.empty() && search_.options.max_axes == 0 && !is_pinned &&
         search_.options.searcher.rfind("uniform", 0) != 0;
}

// Unless something is said about meshes, over those of two axes, of data and of tensor parallelism:
// all of them for the first chunks, the best of these for the others.
Result<std::shared_ptr<const Planned>> ChunkPlans::searched(const Asked& asked) {
  if (!asked.mesh.empty() || !is_open()) return searched_on(asked, {});
  if (searched_ >= kSearchedOnAll) {
    auto found = searched_on(asked, best_meshes_);
    if (found || found.error().code != ErrorCode::kInfeasible) return found;
  }
  auto found = searched_on(asked, meshes());
  if (!found) return found;
  ++searched_;
  std::vector<std::pair<Seconds, std::string>> order;
  for (const MeshTrial& trial : (*found)->outcome.trials) {
    const Seconds time = trial.end == TrialEnd::kPlan ? trial.cost : kFar * trial.lower_bound;
    const bool is_known = trial.end == TrialEnd::kPlan || trial.end == TrialEnd::kPruned;
    if (is_known) order.emplace_back(time, to_text(trial.mesh));
  }
  std::sort(order.begin(), order.end());
  best_meshes_ = {mesh_of(**found)};
  for (const auto& [time, mesh] : order) {
    const bool is_new = mesh != best_meshes_.front();
    if (is_new && best_meshes_.size() < kMeshesOfOthers) best_meshes_.push_back(mesh);
  }
  return found;
}

Result<std::shared_ptr<const Planned>> ChunkPlans::searched_on(
    const Asked& asked, std::vector<std::string> meshes) const {
  AUTOPAR_TRY(common, options_of(asked.mesh, asked.beside));
  const Graph& graph = asked.inputs.model.graph;
  PlanOptions options = search_.options;
  options.training.micro_batches = std::to_string(graph.passes);
  options.meshes = std::move(meshes);
  options.effort *= kEffort;
  // Chunks are small enough for it.
  if (options.searcher == "auto") options.searcher = "dp";
  AUTOPAR_TRY(planned,
              best_of_forms(std::make_unique<Inputs>(asked.inputs), search_.given, options,
                            pins_of(graph), common, search_.begin, search_.clock, cutoff_));
  return std::make_shared<const Planned>(std::move(planned));
}

Result<LeastTime> ChunkPlans::bounded(const Graph& graph,
                                      const std::optional<StreamTimes>& weights) const {
  AUTOPAR_TRY(inputs, inputs_of(graph));
  PlanOptions options = search_.options;
  if (is_open()) options.meshes = meshes();
  auto least = cli::least_time(inputs, options, pins_of(graph), search_.common, weights);
  if (least) {
    spdlog::debug("a unit of {} ops: no plan takes less than {}", graph.ops.size(),
                  format_seconds(least->bound));
  }
  return least;
}

Result<std::optional<StreamTimes>> ChunkPlans::weights_of(const Graph& graph) const {
  AUTOPAR_TRY(found, bounded(graph, {}));
  if (!found.busy) return std::optional<StreamTimes>();
  return std::optional(found.busy->sharp_weights());
}

Result<Seconds> ChunkPlans::least_time(const Graph& graph,
                                       const std::optional<StreamTimes>& weights) const {
  AUTOPAR_TRY(found, bounded(graph, weights));
  return found.bound;
}

Result<CommonOptions> ChunkPlans::options_of(const std::string& mesh, Bytes beside) const {
  CommonOptions common = search_.common;
  // A pin file that names axes has them for every chunk.
  const bool is_named = search_.pins && !search_.pins->mesh.empty();
  if (!mesh.empty() && !is_named) common.mesh = mesh;
  if (beside == 0) return common;
  const Profile& profile = stage_.cluster.profile;
  Bytes limit = stage_.cluster.device.memory_bytes;
  if (!common.memory.empty()) {
    AUTOPAR_TRY(asked, parse_bytes(common.memory));
    limit = asked;
  }
  const Bytes room = std::max<Bytes>(1, profile.room_in(limit) - beside);
  common.memory = std::to_string(profile.upper_memory(room));
  return common;
}

Result<Inputs> ChunkPlans::inputs_of(Graph graph) const {
  Inputs inputs = stage_;
  AUTOPAR_TRY(rules, rules_of(graph, inputs.user_rules));
  inputs.model.graph = std::move(graph);
  inputs.rules = std::move(rules);
  return inputs;
}

// Those of what the chunk has.
std::optional<StrategyFile> ChunkPlans::pins_of(const Graph& graph) const {
  if (!search_.pins) return {};
  std::set<std::string> ops, values;
  for (const Op& op : graph.ops) ops.insert(op.name);
  for (const Value& value : graph.values) values.insert(value.name);
  StrategyFile file = *search_.pins;
  std::erase_if(file.pins.ops, [&](const auto& pin) { return ops.count(pin.first) == 0; });
  std::erase_if(file.pins.values, [&](const auto& pin) { return values.count(pin.first) == 0; });
  std::erase_if(file.op_types, [&](const auto& type) { return ops.count(type.first) == 0; });
  return file;
}

// "16", "8x2", "4x4", "2x8", "1x16": as far as the tiers have them.
std::vector<std::string> ChunkPlans::meshes() const {
  const std::int64_t devices = stage_.cluster.device_count();
  std::vector<std::string> found;
  for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
    if (devices % tensor != 0) continue;
    const std::int64_t data = devices / tensor;
    const Result<Mesh> mesh = make_mesh(stage_.cluster, {data, tensor});
    if (!mesh) continue;
    const std::string text = to_text(*mesh);
    if (std::find(found.begin(), found.end(), text) == found.end()) found.push_back(text);
  }
  if (found.empty()) found.emplace_back();
  return found;
}

// Chunks that together do not fit are searched again, each with its part of the memory.
Status ChunkPlans::share_memory(const std::vector<std::size_t>& of_stage,
                                const std::vector<Inputs>& inputs, std::vector<ChunkPlan>& plans) {
  if (of_stage.size() < 2) return Ok{};
  const auto used = [&] {
    return std::accumulate(of_stage.begin(), of_stage.end(), Bytes{0},
                           [&](Bytes sum, std::size_t c) { return sum + bytes_of(plans[c]); });
  };
  const Bytes room = plan_limit(*plans[of_stage.front()].planned->request);
  const Bytes sum = used();
  if (sum <= room) return Ok{};
  const std::string mesh = mesh_of(*plans[of_stage.front()].planned);
  for (std::size_t c : of_stage) {
    const double part = static_cast<double>(bytes_of(plans[c])) / static_cast<double>(sum);
    const auto share = static_cast<Bytes>(part * static_cast<double>(room));
    const Status planned = plan(c, {inputs[c], mesh, room - share}, plans[c]);
    if (!planned.ok()) {
      Error error = planned.error();
      error.message =
          "chunk " + std::to_string(c) + ", beside the other chunks of its stage: " + error.message;
      return error;
    }
  }
  return Ok{};
}

}  // namespace autopar::cli
