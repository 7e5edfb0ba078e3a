#include "planning/applied.hpp"

#include <algorithm>
#include <set>

#include "planning/hub_ops.hpp"
#include "planning/input_pins.hpp"
#include "planning/ready_made.hpp"
#include "search/bound_beside.hpp"

namespace autopar {

namespace {

// What a file says of an op beside its assignment must be what the assignment means.
bool counts_follow(const StrategyFile& file, const Graph& graph, const std::vector<OpSpecs>& specs,
                   const Mesh& mesh) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto pin = file.pins.ops.find(graph.ops[o].name);
    if (pin == file.pins.ops.end()) continue;
    const auto& [assignment, in, out] = pin->second;
    if (in && *in != strategy_of(specs[o].inputs, mesh)) return false;
    if (out && *out != strategy_of(specs[o].outputs, mesh)) return false;
  }
  return true;
}

// All of a strategy as pins.
Pins pins_of(const StrategyFile& file, const Graph& graph, const Strategy& strategy) {
  Pins pins = file.pins;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].kind == ValueKind::kConstant) continue;
    const ValueSpecs& specs = strategy.values[v];
    const ValueId id(static_cast<std::int64_t>(v));
    const bool is_output =
        std::find(graph.outputs.begin(), graph.outputs.end(), id) != graph.outputs.end();
    pins.values[graph.values[v].name] = {
        to_text(specs.spec, strategy.mesh), to_text(specs.hub, strategy.mesh),
        is_output ? to_text(specs.output, strategy.mesh) : std::string()};
  }
  return pins;
}

void free_boundary(const Graph& graph, Pins& pins) {
  for (const auto* boundary : {&graph.inputs, &graph.outputs}) {
    for (ValueId id : *boundary) pins.values.erase(graph.value(id).name);
  }
}

// Whether a complete strategy is what --inputs and --outputs ask for.
bool keeps_layouts(const StrategyFile& file, const SearchRequest& request,
                   const Strategy& strategy) {
  const auto free = BoundaryLayout::Kind::kFree;
  if (request.inputs.kind == free && request.outputs.kind == free) return true;
  SearchRequest pinned = request;
  pinned.mesh = strategy.mesh;
  pinned.limit_memory = false;
  pinned.pins = pins_of(file, request.graph, strategy);
  const auto outcome = search(pinned);
  return outcome && outcome->strategy == strategy;
}

// The file's bound, where it was proven of this model on this cluster, priced alike; else 0.
double proven_bound(const StrategyFile& file, const std::string& cost_model, const Inputs& inputs) {
  if (!file.cost || !is_priced_alike(file, inputs)) return 0;
  const auto& price = file.cost->price;
  if ((price ? price->cost_model : "roofline") != cost_model) return 0;
  return price ? price->lower_bound : file.cost->lower_bound_seconds;
}

// False where the file is not one to be taken as it is: as pins it then says why not, or what else
// is asked for leaves its boundary free.
Result<bool> price_complete(const StrategyFile& file, Applied& applied) {
  const SearchRequest& request = *applied.request;
  AUTOPAR_TRY(strategy, complete_strategy(request.graph, request.rules, request.cluster, file));
  AUTOPAR_TRY(specs, op_specs_of(request.graph, request.rules, strategy));
  if (!counts_follow(file, request.graph, specs, strategy.mesh)) return false;
  if (!keeps_layouts(file, request, strategy)) return false;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, strategy.mesh));
  AUTOPAR_TRY(cost, evaluate(request, strategy, *model));
  applied.outcome.strategy = std::move(strategy);
  applied.outcome.cost = std::move(cost);
  applied.outcome.searcher = file.searcher.empty() ? "given" : file.searcher;
  applied.outcome.lower_bound = bound_of_file(
      proven_bound(file, request.cost_model, *applied.inputs), applied.outcome.cost.time());
  applied.outcome.unlimited_lower_bound = applied.outcome.lower_bound;
  return true;
}

// A strategy of a training step that was made of this model: the step is made again.
Status take_training(const StrategyFile& file, PlanOptions& options) {
  if (file.training.empty()) return Ok{};
  AUTOPAR_TRY(is_step, is_training_step(options.model));
  if (is_step) {
    if (!file.has_passes) return Ok{};
    return usage_error(options.model + " is a training step on the whole batch, and " + file.path +
                       " is of one of " + std::to_string(file.micro_batches) +
                       " passes; give the forward model that the step was made of");
  }
  AUTOPAR_TRY(training, training_choice_of(file));
  options.training = std::move(training);
  options.train = true;
  return Ok{};
}

// What the model, or a chunk of it, does not have is said of others: it is not asked for.
void leave_out_others(SearchRequest& request) {
  std::set<std::string> ops, values;
  for (const Op& op : request.graph.ops) ops.insert(op.name);
  for (const Value& value : request.graph.values) values.insert(value.name);
  std::erase_if(request.pins.ops, [&](const auto& pin) { return ops.count(pin.first) == 0; });
  std::erase_if(request.pins.values, [&](const auto& pin) { return values.count(pin.first) == 0; });
}

}  // namespace

bool is_priced_alike(const StrategyFile& file, const Inputs& inputs) {
  return file.model_sha256 == inputs.model.sha256 && file.cluster_sha256 == inputs.cluster_sha256 &&
         file.profile_sha256 == inputs.profile_sha256;
}

Result<StrategyFile> strategy_to_apply(PlanOptions& options, CommonOptions& common) {
  AUTOPAR_TRY(file, read_strategy(options.strategy_file));
  tell_of_strategy(file);
  AUTOPAR_RETURN_IF_ERROR(take_training(file, options));
  if (file.stages.empty() && !file.stage_of_ops.empty()) {
    return input_error(file.path + ": op '" + file.stage_of_ops.begin()->first +
                       "': pipeline_stage is a pin of `autopar search --stages`; the "
                       "strategy of a pipeline says it otherwise (step.stages)");
  }
  if (file.batch.size > 0 && !options.train) {
    options.training.batch = file.batch.size;
    options.training.batch_dim = file.batch.dim;
    options.training.data_inputs = file.batch.data_inputs;
  }
  if (!options.train && file.has_passes) {
    options.training.micro_batches = std::to_string(file.micro_batches);
    options.training.options.update_apart = true;
  }
  if (common.memory.empty() && file.memory_limit > 0) {
    common.memory = std::to_string(file.memory_limit);
  }
  return std::move(file);
}

Result<std::unique_ptr<Inputs>> inputs_to_apply(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common) {
  const bool is_open = options.profile.empty() && !file.profile_name.empty();
  if (is_open) {
    options.profile = profile_of_plan(file.profile_name, file.profile_sha256, file.cluster_sha256);
  }
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  if (is_open && inputs->profile_sha256 != file.profile_sha256) {
    inputs->warnings.push_back(file.path + ": priced by a profile '" + file.profile_name +
                               "' that is another one than that of now; --profile FILE names it");
  }
  if (options.train) name_training_step(options);
  if (inputs->training.empty()) inputs->training = file.training;
  if (options.gradient_bucket.empty()) inputs->gradient_bucket = file.gradient_bucket;
  AUTOPAR_RETURN_IF_ERROR(take_checkpoints(file, *inputs));
  return std::move(inputs);
}

Result<std::unique_ptr<Applied>> apply_strategy(PlanOptions& options, CommonOptions common) {
  AUTOPAR_TRY(file, strategy_to_apply(options, common));
  if (!file.stages.empty()) {
    return input_error(file.path + ": is of " + std::to_string(file.stages.size()) +
                       " stages; expected a strategy of one");
  }
  return apply_to_model(file, options, common);
}

Result<std::unique_ptr<Applied>> apply_to_model(const StrategyFile& file, PlanOptions& options,
                                                const CommonOptions& common) {
  AUTOPAR_TRY(inputs, inputs_to_apply(file, options, common));
  return apply_to(std::move(inputs), file, false, options, common);
}

Result<std::unique_ptr<Applied>> apply_to(std::unique_ptr<Inputs> inputs, const StrategyFile& file,
                                          bool is_chunk, const PlanOptions& options,
                                          const CommonOptions& common) {
  auto applied = std::make_unique<Applied>();
  applied->inputs = std::move(inputs);
  AUTOPAR_TRY(repeated, parse_recompute_option(options.recompute, &file));
  if (repeats_by_name(file)) {
    AUTOPAR_RETURN_IF_ERROR(repeat_named_ops(file, is_chunk, *applied->inputs));
  } else if (repeated && *repeated != Recompute::kNone) {
    AUTOPAR_TRY(done, repeat_ops(*applied->inputs, *repeated));
    static_cast<void>(done);
  }
  AUTOPAR_RETURN_IF_ERROR(share_in_phases(*applied->inputs, cost_model_of(file, options)));
  AUTOPAR_TRY(request, make_request(*applied->inputs, options, common));
  applied->request.emplace(request);
  SearchRequest& asked = *applied->request;
  AUTOPAR_RETURN_IF_ERROR(add_pins(file, *applied->inputs, asked));
  AUTOPAR_RETURN_IF_ERROR(share_pinned_hubs(file, *applied->inputs, asked));
  if (is_chunk) leave_out_others(asked);
  find_kernels(*applied->inputs, options);
  if (Status known = check_names(asked.pins, asked.graph); !known) {
    return with_pin_file(known.error(), options.strategy_file);
  }
  if (common.mesh.empty() && is_complete(asked.graph, file)) {
    if (options.recompute == "auto") {
      AUTOPAR_RETURN_IF_ERROR(check_repeated(file, *applied->inputs));
    }
    AUTOPAR_TRY(taken, price_complete(file, *applied));
    if (taken) return applied;
    free_boundary(asked.graph, asked.pins);
  }
  AUTOPAR_TRY(fill, parse_fill(options.fill));
  asked.fill = fill;
  // What is given is given: whether it fits is said, not decided here.
  asked.limit_memory = fill == Fill::kSearch;
  auto outcome = search(asked);
  if (!outcome) return with_pin_file(outcome.error(), options.strategy_file);
  applied->outcome = std::move(*outcome);
  // Nothing is proven about other plans than those of this fill.
  if (fill != Fill::kSearch) applied->outcome.lower_bound = 0;
  applied->outcome.searcher = "given";
  applied->outcome.trials.clear();
  return applied;
}

}  // namespace autopar
