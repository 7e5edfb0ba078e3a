#include "planning/inputs.hpp"

#include <algorithm>
#include <filesystem>

#include "autopar/export.hpp"
#include "autopar/kernels.hpp"
#include "autopar/partition.hpp"
#include "autopar/pattern.hpp"
#include "json/parse.hpp"
#include "planning/import_planned.hpp"
#include "planning/logging.hpp"
#include "planning/ready_made.hpp"
#include "planning/trace.hpp"
#include "recompute/of_unit.hpp"
#include "report/unit.hpp"
#include "search/meshes.hpp"

namespace autopar {

namespace fs = std::filesystem;

namespace {

// What a plan may cost above the bound, as a share of the bound; returns it as a share of the cost.
Result<double> parse_gap(const std::string& text) {
  if (text.empty()) return 0.0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  if (end == text.c_str() || !(value >= 0) || (unit != "%" && !unit.empty())) {
    return usage_error("--gap '" + text + "': expected a share such as 0.5% or 0.005");
  }
  const double share = unit == "%" ? value / 100 : value;
  if (unit.empty() && value >= 1) {
    return usage_error("--gap '" + text + "': is " + std::to_string(std::lround(100 * value)) +
                       " % of the bound; expected a share such as 0.5% or 0.005");
  }
  return share / (1 + share);
}

// "free", "full", "data_parallel", or a JSON file {"X": "[{ib},{}]"} or {"X": {"spec": "..."}}.
Result<BoundaryLayout> parse_layout(const std::string& text, const char* option) {
  BoundaryLayout layout;
  if (text == "free") return layout;
  if (text == "full") return BoundaryLayout{BoundaryLayout::Kind::kFull, {}};
  if (text == "data_parallel") return BoundaryLayout{BoundaryLayout::Kind::kDataParallel, {}};
  if (!fs::exists(text)) {
    return usage_error(std::string(option) + " '" + text +
                       "': expected free, full, data_parallel, or a file of specs");
  }
  AUTOPAR_TRY(bytes, read_file(text));
  layout.kind = BoundaryLayout::Kind::kGiven;
  layout.file = text;
  AUTOPAR_TRY(parsed, parse_json(bytes, text));
  nlohmann::json document = std::move(parsed);
  if (document.is_object() && document.contains("tensors")) document = document["tensors"];
  if (!document.is_object()) return input_error(text + ": expected an object of tensor names");
  for (const auto& [name, entry] : document.items()) {
    const nlohmann::json& spec =
        entry.is_object() && entry.contains("spec") ? entry["spec"] : entry;
    if (!spec.is_string()) {
      return input_error(text + ": tensor '" + name + "': expected a spec such as \"[{ib},{}]\"");
    }
    layout.spec_of[name] = spec.get<std::string>();
  }
  return layout;
}

Status check_layout_names(const BoundaryLayout& layout, const std::vector<ValueId>& boundary,
                          const Graph& graph, const std::string& what) {
  for (const auto& [name, spec] : layout.spec_of) {
    const bool known = std::any_of(boundary.begin(), boundary.end(),
                                   [&, n = name](ValueId id) { return graph.value(id).name == n; });
    if (!known) {
      return input_error((layout.file.empty() ? "--" + what + "s" : layout.file) +
                         ": the model has no " + what + " '" + name + "'");
    }
  }
  return Ok{};
}

Result<UserRules> load_rules(const std::string& path) {
  if (path.empty()) return UserRules{};
  AUTOPAR_TRY(bytes, read_file(path));
  try {
    static_cast<void>(nlohmann::json(bytes).dump());  // the names of factors go into JSON files
  } catch (const nlohmann::json::exception&) {
    return input_error(path + ": is not UTF-8");
  }
  return parse_user_rules(bytes, path);
}

std::string join_names(const Graph& graph, const std::vector<OpId>& ops, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < ops.size() && i < most; ++i) {
    const Op& op = graph.op(ops[i]);
    text += (i ? ", " : "") + op.name + " (" + op.type + ")";
  }
  if (ops.size() > most) text += " and " + std::to_string(ops.size() - most) + " more";
  return text;
}

// What somebody has distributed already is not distributed anew.
Status check_is_model(const ImportedModel& model) {
  for (const Op& op : model.graph.ops) {
    if (!is_collective(op)) continue;
    return input_error(model.path + ": is already a program for " +
                       std::to_string(listed_ranks(model.graph)) + " ranks, since op '" + op.name +
                       "' is " + op.domain + "::" + op.type +
                       "; `autopar show`, `run` and `price` without --strategy take it as it is, "
                       "search and apply need the model without collectives");
  }
  return Ok{};
}

}  // namespace

void tell_of_strategy(const StrategyFile& file) {
  logging::debug("{}: {} ops and {} tensors, {} mesh axes", file.path, file.pins.ops.size(),
                 file.pins.values.size(), file.mesh.size());
}

void tell_of_import(const ImportedModel& model) {
  const Graph& graph = model.graph;
  std::size_t gone = 0, several = 0;
  for (const auto& [name, ops] : *model.ops_of_user_op) {
    gone += ops.empty();
    several += ops.size() > 1;
  }
  double bytes = 0;
  std::size_t parameters = 0;
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::kParameter) continue;
    ++parameters;
    bytes += static_cast<double>(value.bytes());
  }
  logging::debug(
      "{}: opset {}, {} ops; of those in the file {} were folded or removed and {} became several; "
      "{} inputs, {} outputs, {} parameters of {}",
      model.path, graph.opset, graph.ops.size(), gone, several, graph.inputs.size(),
      graph.outputs.size(), parameters, format_bytes(bytes));
}

Result<std::unique_ptr<Inputs>> load_inputs(const PlanOptions& options,
                                            const CommonOptions& common) {
  if (options.weights == "sharded" && !options.dialects.empty()) {
    return usage_error(
        "--dialect goes with --weights referenced: its files have the whole weights");
  }
  if (options.weights == "sharded" && options.fallback_functions) {
    return usage_error(
        "--fallback-functions goes with --weights referenced: where each rank has a file of its "
        "own weights, plan.onnx is for `autopar run` alone");
  }
  const bool has_times = unit_of(options.cost_model) == "seconds";
  if (!options.timeline_file.empty() && !has_times) {
    return usage_error("--timeline: the prices of cost model " + options.cost_model +
                       " are no times; --cost-model roofline has some");
  }
  if (!has_times && !options.profile.empty() && options.profile != "ideal") {
    return usage_error("--profile says how long things take, and the prices of cost model " +
                       options.cost_model + " are no times; --cost-model roofline has some");
  }
  auto inputs = std::make_unique<Inputs>();
  if (!options.gradient_bucket.empty()) {
    AUTOPAR_TRY(bytes, parse_bytes(options.gradient_bucket, "--gradient-bucket"));
    inputs->gradient_bucket = bytes;
  }
  if (!common.memory.empty()) {
    AUTOPAR_TRY(limit, parse_bytes(common.memory));
    inputs->memory_limit = limit;
  }
  const std::string folder = fs::path(options.model).parent_path().string();
  inputs->data_folder = folder.empty() ? "." : folder;
  if (options.train) AUTOPAR_RETURN_IF_ERROR(check_copies(options.training));
  keep_from_replacing(options.model);
  AUTOPAR_TRY(model, import_planned(options, common, *inputs));
  inputs->model = std::move(model);
  if (options.train) inputs->model.graph.copies = options.training.copies;
  inputs->warnings = inputs->model.warnings;
  tell_of_import(inputs->model);
  AUTOPAR_RETURN_IF_ERROR(check_is_model(inputs->model));
  if (options.updates != PlanOptions().updates) {
    const std::vector<ValueId> updated = updated_inputs(inputs->model.graph, options.updates);
    if (std::none_of(updated.begin(), updated.end(), [](ValueId id) { return id.valid(); })) {
      inputs->warnings.push_back(no_updates(options.updates));
    }
  }
  AUTOPAR_TRY(cluster, cluster_of_option(options.cluster));
  inputs->cluster = std::move(cluster.cluster);
  const bool has_own = !inputs->cluster.profile.ideal();
  AUTOPAR_TRY(found, profile_of_option(has_times ? options.profile : "ideal",
                                       {inputs->cluster.profile, has_own ? cluster.sha256 : ""}));
  inputs->cluster.profile = std::move(found.profile);
  inputs->profile_sha256 = std::move(found.sha256);
  if (inputs->model.graph.copies > 1 && inputs->cluster.profile.ideal()) {
    inputs->warnings.push_back(
        "by ideal prices nothing goes on beside anything else, so that --copies takes memory and "
        "saves no time; --profile NAME says what the runtime overlaps");
  }
  inputs->cluster_sha256 = std::move(cluster.sha256);
  logging::debug("cluster '{}': {} devices in {} tiers, {} each", inputs->cluster.name,
                 inputs->cluster.device_count(), inputs->cluster.tiers.size(),
                 format_bytes(static_cast<double>(inputs->cluster.device.memory_bytes)));
  AUTOPAR_TRY(user_rules, load_rules(options.rules_file));
  inputs->user_rules = std::move(user_rules);
  for (const auto& [type, text] : inputs->user_rules.text_of_type) {
    const auto& ops = inputs->model.graph.ops;
    const bool used = std::any_of(ops.begin(), ops.end(), [&, t = type](const Op& op) {
      return t == op.type || t == op.domain + "::" + op.type;
    });
    if (!used) inputs->warnings.push_back("the rule for " + type + " is not used: no such op");
  }
  AUTOPAR_TRY(rules, rules_of(inputs->model.graph, inputs->user_rules));
  inputs->rules = std::move(rules);
  mark_carried_data(inputs->model, inputs->rules, options.updates);
  for (const BorrowedPeak& peak : borrowed_peaks(inputs->model.graph, inputs->cluster.device)) {
    const std::string dtype = name_of(peak.dtype);
    inputs->warnings.push_back(options.cluster + ": peak_flops_per_s has nothing for " + dtype +
                               ", in which op '" + peak.op + "' calculates: the peak of " +
                               peak.of + " is taken for it; add \"" + dtype +
                               "\" where the device has another");
  }
  logging::debug("rules: {} ops have one, {} have none",
                 inputs->rules.rules.size() - inputs->rules.without_rule.size(),
                 inputs->rules.without_rule.size());
  if (!inputs->rules.without_rule.empty()) {
    inputs->warnings.push_back("no rule for " +
                               join_names(inputs->model.graph, inputs->rules.without_rule, 5) +
                               ": replicated on every device; --rules FILE states one");
  }
  return inputs;
}

Status take_checkpoints(const StrategyFile& file, Inputs& inputs) {
  const auto& values = inputs.model.graph.values;
  for (const std::string& pattern : file.checkpoints) {
    const bool is_known = std::any_of(values.begin(), values.end(), [&](const Value& value) {
      return value.producer.valid() && matches(pattern, value.name);
    });
    if (is_known) continue;
    return input_error(file.path + ": checkpoints: no op makes a tensor \"" + pattern +
                       "\"; `autopar show MODEL --ops` lists them");
  }
  inputs.checkpoints = file.checkpoints;
  return Ok{};
}

namespace {

Status take_repeated(Recomputed again, Inputs& inputs) {
  inputs.model.graph = std::move(again.graph);
  inputs.repeated_ops = again.repeated;
  inputs.op_of_repeat = std::move(again.op_of_repeat);
  inputs.value_of_repeat = std::move(again.value_of_repeat);
  AUTOPAR_TRY(rules, rules_of(inputs.model.graph, inputs.user_rules));
  inputs.rules = std::move(rules);
  return Ok{};
}

// False where nothing is repeated.
Result<bool> take_levels(Recomputed again, const RecomputeLevels& levels, Inputs& inputs) {
  if (again.repeated == 0) return false;
  inputs.recompute = levels;
  inputs.recompute_from.clear();
  for (const RecomputeLevels::From& one : levels.from()) {
    inputs.recompute_from.push_back(inputs.model.graph.ops[one.op].name);
  }
  AUTOPAR_RETURN_IF_ERROR(take_repeated(std::move(again), inputs));
  return true;
}

// The op of that name, or those that a user's op of that name became.
std::vector<std::string> ops_named(const std::string& name, const ImportedModel& model) {
  const auto& ops = model.graph.ops;
  const bool is_op =
      std::any_of(ops.begin(), ops.end(), [&](const Op& op) { return op.name == name; });
  if (is_op) return {name};
  const auto found = model.ops_of_user_op->find(name);
  return found == model.ops_of_user_op->end() ? std::vector<std::string>() : found->second;
}

}  // namespace

std::string to_text(const NamedLevels& levels) {
  std::vector<StrategyFile::LevelFrom> said;
  for (const auto& [op, level] : levels) said.push_back({op, name_of(level)});
  return to_text(said);
}

Result<RecomputeLevels> levels_in(const Graph& graph, const NamedLevels& levels) {
  std::vector<RecomputeLevels::From> from;
  const std::size_t end = end_of_forward(graph);
  for (const auto& [name, level] : levels) {
    const auto op = std::find_if(graph.ops.begin(), graph.ops.end(),
                                 [&](const Op& other) { return other.name == name; });
    const std::size_t place = name.empty() ? 0 : static_cast<std::size_t>(op - graph.ops.begin());
    if (place == graph.ops.size()) return input_error("there is no op '" + name + "'");
    if (place >= end) return input_error("op '" + name + "' is none of the forward pass");
    if (from.empty() && place > 0) {
      return input_error("the first level begins with op '" + name + "'; expected the first op, '" +
                         graph.ops.front().name + "'");
    }
    if (!from.empty() && place <= from.back().op) {
      return input_error("op '" + name + "' is not behind the op of the level before");
    }
    from.push_back({place, level});
  }
  return RecomputeLevels(from);
}

Result<bool> repeat_ops(Inputs& inputs, const RecomputeLevels& levels) {
  return take_levels(recompute(inputs.model.graph, levels, inputs.checkpoints), levels, inputs);
}

Result<bool> repeat_ops_of_unit(Inputs& inputs, Recompute level) {
  return take_levels(recompute_unit(inputs.model.graph, level), level, inputs);
}

NamedLevels levels_of(const Inputs& inputs) {
  NamedLevels levels = {{"", inputs.recompute.from().front().level}};
  for (std::size_t l = 1; l < inputs.recompute.from().size(); ++l) {
    levels.emplace_back(inputs.recompute_from[l], inputs.recompute.from()[l].level);
  }
  return levels;
}

void take_recompute(const Inputs& inputs, StrategyOrigin& origin) {
  origin.recompute = name_of(inputs.recompute);
  origin.repeated = repeated_ops_of(inputs);
  origin.recompute_from.clear();
  if (!inputs.recompute.are_mixed()) return;
  for (std::size_t l = 0; l < inputs.recompute_from.size(); ++l) {
    origin.recompute_from.push_back(
        {inputs.recompute_from[l], name_of(inputs.recompute.from()[l].level)});
  }
}

bool repeats_by_name(const StrategyFile& file) {
  if (file.recompute == kMixedLevels) return true;
  return file.recompute.empty() && std::any_of(file.repeated.begin(), file.repeated.end(),
                                               [](const auto& said) { return said.second; });
}

namespace {

Status repeat_from_ops(const StrategyFile& file, Inputs& inputs) {
  NamedLevels named;
  for (const auto& [op, level] : file.recompute_from) {
    const auto known = parse_recompute(level);
    if (!known) {
      return input_error(file.path + ": recompute_from, " + op +
                         ": expected none, cheap, products or full, found \"" + level + "\"");
    }
    named.emplace_back(op, *known);
  }
  if (named.size() < 2) {
    return input_error(file.path + ": recompute is \"mixed\"; expected recompute_from with two " +
                       "levels or more, found " + std::to_string(named.size()));
  }
  auto levels = levels_in(inputs.model.graph, named);
  if (!levels) return input_error(file.path + ": recompute_from: " + levels.error().message);
  AUTOPAR_TRY(repeated, repeat_ops(inputs, *levels));
  if (!repeated) logging::warn("warning: {}: recompute_from: no op is repeated", file.path);
  return Ok{};
}

}  // namespace

Status repeat_named_ops(const StrategyFile& file, bool is_part, Inputs& inputs) {
  if (file.recompute == kMixedLevels) return repeat_from_ops(file, inputs);
  std::set<std::string> names;
  for (const auto& [name, is_repeated] : file.repeated) {
    if (!is_repeated) continue;
    const std::vector<std::string> ops = ops_named(name, inputs.model);
    names.insert(ops.begin(), ops.end());
    if (ops.empty() && !is_part) {
      return input_error(file.path + ": ops." + name +
                         ".recompute: the model has no op of that name, or it was folded into a "
                         "constant or removed at import");
    }
  }
  if (names.empty()) return Ok{};
  auto again = repeat_these(inputs.model.graph, names);
  if (!again) return input_error(file.path + ": " + again.error().message);
  inputs.repeated_by_name = std::move(names);
  return take_repeated(std::move(*again), inputs);
}

Status check_repeated(const StrategyFile& file, const Inputs& inputs) {
  const std::set<std::string> repeated = repeated_ops_of(inputs);
  for (const Op& op : inputs.model.graph.ops) {
    const auto said = file.repeated.find(op.name);
    if (said == file.repeated.end() || said->second == (repeated.count(op.name) != 0)) continue;
    return input_error(file.path + ": ops." + op.name +
                       ".recompute: " + (said->second ? "is true" : "is false") +
                       ", and recompute " + name_of(inputs.recompute) +
                       (said->second ? " does not repeat" : " repeats") +
                       " the op; a file without the level names the ops that are repeated");
  }
  return Ok{};
}

std::set<std::string> repeated_ops_of(const Inputs& inputs) {
  if (!inputs.repeated_by_name.empty()) return inputs.repeated_by_name;
  std::set<std::string> repeated;
  for (const auto& [repeat, op] : inputs.op_of_repeat) repeated.insert(op);
  return repeated;
}

Result<std::optional<Recompute>> parse_recompute_option(const std::string& option,
                                                        const StrategyFile* file) {
  if (file != nullptr && file->recompute == kMixedLevels) {
    if (option == "auto") return std::optional(Recompute::kNone);
    return usage_error(file->path +
                       ": recompute_from: says how much is repeated from which op on; " +
                       "expected that or --recompute, found --recompute " + option);
  }
  if (file != nullptr && file->recompute.empty() && !file->repeated.empty()) {
    const bool any = repeats_by_name(*file);
    const std::string where =
        file->path + ": ops." + file->repeated.begin()->first + ".recompute: ";
    if (any && option != "auto") {
      return usage_error(where + "the file names the ops that are repeated; expected that or " +
                         "--recompute, found --recompute " + option);
    }
    if (!any && option != "none") {
      return input_error(where +
                         "is false, and no op has true; expected one that has, or "
                         "--recompute none");
    }
    return std::optional(Recompute::kNone);
  }
  if (file != nullptr && !file->recompute_from.empty()) {
    return input_error(file->path + ": recompute_from: goes with recompute \"mixed\", found \"" +
                       file->recompute + "\"");
  }
  if (option == "auto" && file != nullptr && !file->recompute.empty()) {
    const auto found = parse_recompute(file->recompute);
    if (found) return found;
    return input_error(file->path +
                       ": recompute: expected none, cheap, products, full or mixed, found \"" +
                       file->recompute + "\"");
  }
  if (option == "auto") return std::optional<Recompute>();
  const auto found = parse_recompute(option);
  if (found) return found;
  return usage_error("--recompute '" + option + "': expected auto, none, cheap, products or full");
}

namespace {

Result<std::vector<Mesh>> make_meshes(const Cluster& cluster,
                                      const std::vector<std::string>& texts) {
  std::vector<Mesh> meshes;
  for (const std::string& text : texts) {
    AUTOPAR_TRY(sizes, parse_mesh(text));
    AUTOPAR_TRY(mesh, make_mesh(cluster, sizes));
    meshes.push_back(std::move(mesh));
  }
  return meshes;
}

}  // namespace

Status set_meshes(const PlanOptions& options, SearchRequest& request) {
  const std::set<std::string>& left_out = options.left_out_meshes;
  if (request.mesh || (options.more_meshes.empty() && left_out.empty())) return Ok{};
  AUTOPAR_TRY(others, make_meshes(request.cluster, options.more_meshes));
  request.meshes = meshes_of(request);
  for (Mesh& mesh : others) {
    const auto known = std::find(request.meshes.begin(), request.meshes.end(), mesh);
    if (known == request.meshes.end()) request.meshes.push_back(std::move(mesh));
  }
  std::erase_if(request.meshes,
                [&](const Mesh& mesh) { return left_out.count(to_text(mesh)) != 0; });
  if (!request.meshes.empty()) return Ok{};
  return input_error("no mesh keeps the pins of all chunks of its stage");
}

Result<SearchRequest> make_request(const Inputs& inputs, const PlanOptions& options,
                                   const CommonOptions& common) {
  SearchRequest request{inputs.model.graph, inputs.rules, inputs.cluster};
  request.searcher = options.searcher;
  request.cost_model = options.cost_model;
  request.max_axes = options.max_axes;
  request.updates = options.updates;
  request.phases_apart = options.phases_apart;
  if (!common.memory.empty()) {
    AUTOPAR_TRY(memory, parse_bytes(common.memory));
    request.memory_limit = memory;
  }
  if (!common.mesh.empty()) {
    AUTOPAR_TRY(sizes, parse_mesh(common.mesh));
    AUTOPAR_TRY(mesh, make_mesh(inputs.cluster, sizes));
    request.mesh = std::move(mesh);
  }
  AUTOPAR_TRY(meshes, make_meshes(inputs.cluster, options.meshes));
  request.meshes = std::move(meshes);
  if (options.io == "full" && (options.inputs != "free" || options.outputs != "free")) {
    return usage_error(
        "--io full says how inputs and outputs lie; leave --inputs and --outputs out");
  }
  AUTOPAR_TRY(in, parse_layout(options.io == "full" ? "full" : options.inputs, "--inputs"));
  AUTOPAR_TRY(out, parse_layout(options.io == "full" ? "full" : options.outputs, "--outputs"));
  AUTOPAR_RETURN_IF_ERROR(
      check_layout_names(in, inputs.model.graph.inputs, inputs.model.graph, "input"));
  AUTOPAR_RETURN_IF_ERROR(
      check_layout_names(out, inputs.model.graph.outputs, inputs.model.graph, "output"));
  request.inputs = in;
  request.inputs.parameters_too = options.io == "full";
  request.outputs = out;
  AUTOPAR_TRY(gap, parse_gap(options.gap));
  request.solve.gap = gap;
  request.solve.effort = request.solve.most_effort = options.effort;
  AUTOPAR_TRY(left_out, stages_left_out(common.without));
  request.solve.left_out = left_out;
  request.solve.time_limit = options.time_limit;
  if (gap > 0) request.solve.most_effort *= kEffortForGap;
  if (options.time_limit < kInfinity) request.solve.most_effort = kEffortForTime;
  request.solve.threads = threads_of_search(common);
  request.solve.stop = &interrupt_requested();
  return request;
}

void mark_carried_data(ImportedModel& model, const GraphRules& rules, const std::string& updates) {
  if (model.tells_data) return;
  for (const ValueId id : carried_data(model.graph, rules, updates)) {
    model.graph.values[id.index()].kind = ValueKind::kInput;
  }
}

void find_kernels(Inputs& inputs, const PlanOptions& options) {
  if (inputs.cluster.profile.ideal() && options.cost_model != "roofline") return;
  Graph& graph = inputs.model.graph;
  graph.kernels = group_kernels(graph, inputs.cluster.profile, options.updates);
  if (graph.kernels.empty() && inputs.kernels_of_step != nullptr) {
    graph.kernels.of_op.resize(graph.ops.size());
    graph.kernels.inside.assign(graph.values.size(), 0);
  }
  if (graph.kernels.empty()) return;
  for (std::size_t o = 0; inputs.kernels_of_step != nullptr && o < graph.ops.size(); ++o) {
    const auto in_step = inputs.kernels_of_step->find(graph.ops[o].name);
    if (in_step == inputs.kernels_of_step->end()) continue;
    OpKernel& own = graph.kernels.of_op[o];
    if (in_step->second.kind == OpKernel::Kind::kView) own.kind = OpKernel::Kind::kView;
    own.launches = own.launches && in_step->second.launches;
    own.inside_inputs |= in_step->second.inside_inputs;
    own.inside_outputs |= in_step->second.inside_outputs;
    own.has_rows = own.has_rows || in_step->second.has_rows;
    own.flops_factor = std::min(own.flops_factor, in_step->second.flops_factor);
  }
  inputs.rules.class_of_op = classes_of(graph, inputs.rules.rules);
}

}  // namespace autopar
