#include "cli/inputs.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "autopar/export.hpp"
#include "autopar/kernels.hpp"
#include "autopar/partition.hpp"
#include "autopar/sha256.hpp"
#include "cli/gemm_pins.hpp"
#include "cli/trace.hpp"
#include "json/parse.hpp"
#include "report/unit.hpp"
#include "search/pins.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

void add_model_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kReading);
  app.add_option("MODEL", options.model, "model.onnx or graph.json")->required();
  app.add_option("--cluster", options.cluster,
                 "cluster.json, or the name of a ready-made cluster (`autopar show clusters`)\n"
                 "The devices, their memory and speed, and the tiers of links between them.")
      ->required();
  app.add_option("--profile", options.profile,
                 "how near to its peaks the runtime comes: ideal, a profile.json, or the name of a "
                 "ready-made one (default: what the cluster says, else ideal)")
      ->type_name("NAME|FILE");
  app.add_option("--rules", options.rules_file, "rules for ops that have none: OpType \"rule\"")
      ->type_name("FILE");
}

void add_layout_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kLayout);
  app.add_option("--inputs", options.inputs,
                 "layout of the inputs: free, full, data_parallel, or a file of specs")
      ->type_name("HOW");
  app.add_option("--outputs", options.outputs,
                 "layout of the outputs: free, full, data_parallel, or a file of specs")
      ->type_name("HOW");
  app.add_option("--updates", options.updates,
                 "outputs so named hold the next value of the input `*` (default new.*)")
      ->type_name("PATTERN");
  app.add_option("--io", options.io,
                 "local: ranks get and return slices (default); full: whole tensors")
      ->check(CLI::IsMember({"local", "full"}));
  app.add_option(
         "--recompute", options.recompute,
         "repeat forward ops in the backward pass to keep fewer activations (default auto)\n"
         "`cheap`: those without contractions; `products`: also products of activations, "
         "such as attention scores; `full`: whole segments of the forward pass, from checkpoints "
         "on; "
         "`auto`: none, or of a training step that the memory limit binds what makes the fastest "
         "plan.")
      ->check(CLI::IsMember({"auto", "none", "cheap", "products", "full"}));
}

void add_solve_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kSearch);
  app.add_option(
         "--max-axes", options.max_axes,
         "mesh axes to try at most (default 3, of rec 4; a cluster of more tiers has one per tier)")
      ->check(CLI::Range(1, 6));
  std::vector<std::string> models;
  for (const CostModelRow& row : cost_models()) models.emplace_back(row.name);
  app.add_option(
         "--cost-model", options.cost_model,
         "what prices plans (default roofline)\n"
         "`roofline`: seconds; `mindspore`: MindSpore's cost model for its dynamic programming and "
         "propagation, in bytes of computation (the mesh then has axes of prime size); "
         "`mindspore_any`: the same for strategies on any of the devices, as its propagation has "
         "them; `mindspore_all`: the same where every operator uses all devices, its option "
         "fully_use_devices; `mindspore_follow`: that with its option "
         "elementwise_op_strategy_follow too; `symbolic`: the relative costs of SAPP, for `rec`. "
         "Memory is always autopar's own account.")
      ->check(CLI::IsMember(models));
  app.add_option(
         "--gap", options.gap,
         "go on until the plan costs at most this much more than the bound, then stop: 0.5%")
      ->type_name("SHARE");
  app.add_option("--time-limit", options.time_limit,
                 "stop after this long with the best: 30s, 2m; until then the search goes on where "
                 "it would end without a proof")
      ->transform(duration())
      ->type_name("TIME");
}

Status check_mesh_options(const CLI::App& app, const CommonOptions& common) {
  if (common.mesh.empty()) return Ok{};
  return refuse_options(app, {"--max-axes"},
                        "is for meshes that the search chooses; --mesh fixes the mesh");
}

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
                          const Graph& graph, const char* option) {
  for (const auto& [name, spec] : layout.spec_of) {
    const bool known = std::any_of(boundary.begin(), boundary.end(),
                                   [&, n = name](ValueId id) { return graph.value(id).name == n; });
    if (!known) {
      return input_error((layout.file.empty() ? std::string(option) : layout.file) +
                         ": the model has no such boundary value '" + name + "'");
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

}  // namespace

Result<ClusterFile> cluster_of_option(const std::string& name) {
  const auto path = find_cluster(name);
  if (path) return read_cluster(*path);
  return input_error(path.error().message + "; ready-made clusters are: " + names_of_clusters());
}

namespace {

// Files that come with this program: models/clusters/... or models/profiles/...
std::vector<std::string> ready_made(const std::string& kind) {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  std::set<std::string> paths;
  for (const char* folder : {"../share/autopar/models", "../../models"}) {
    const fs::path path = program.parent_path() / folder / kind;
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".json") paths.insert(entry.path().string());
    }
    if (!paths.empty()) break;
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

std::vector<std::string> ready_made_clusters() { return ready_made("clusters"); }

std::string names_of_clusters() {
  std::string text;
  for (const std::string& path : ready_made_clusters()) {
    text += (text.empty() ? "" : ", ") + fs::path(path).stem().string();
  }
  return text.empty() ? "none was found beside this program" : text;
}

Result<std::string> find_cluster(const std::string& name) {
  if (fs::exists(name)) return name;
  std::vector<std::string> known;
  for (const std::string& path : ready_made_clusters()) {
    known.push_back(fs::path(path).stem().string());
    if (known.back() == name) return path;
  }
  // What has a folder or an extension is meant as a file.
  const bool is_file = name.find('/') != std::string::npos || fs::path(name).has_extension();
  if (is_file) return input_error(name + ": no such file");
  const std::string near = nearest_name(name, known);
  return input_error(name + ": no such file, and no ready-made cluster of that name" +
                     (near.empty() ? "" : "; did you mean '" + near + "'?") +
                     " (`autopar show clusters` lists them)");
}

namespace {

// What somebody has distributed already is not distributed anew.
Status check_is_model(const ImportedModel& model) {
  for (const Op& op : model.graph.ops) {
    if (op.domain != "ai.autopar") continue;
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
  spdlog::debug("{}: {} ops and {} tensors, {} mesh axes", file.path, file.pins.ops.size(),
                file.pins.values.size(), file.mesh.size());
}

void tell_of_import(const ImportedModel& model) {
  const Graph& graph = model.graph;
  std::size_t gone = 0, several = 0;
  for (const auto& [name, ops] : model.ops_of_user_op) {
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
  spdlog::debug(
      "{}: opset {}, {} ops; of those in the file {} were folded or removed and {} became several; "
      "{} inputs, {} outputs, {} parameters of {}",
      model.path, graph.opset, graph.ops.size(), gone, several, graph.inputs.size(),
      graph.outputs.size(), parameters, format_bytes(bytes));
}

// Of the whole batch there is no graph.
Result<SplitStep> step_of_passes(const PlanOptions& options, const CommonOptions& common,
                                 const Error& why, Inputs& inputs) {
  const TrainingChoice& choice = options.training;
  if (why.code != ErrorCode::kInput || choice.batch == 0 || choice.micro_batches == "1") return why;
  AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, choice.batch));
  for (const std::int64_t count : counts) {
    auto split = split_passes(options.model, choice, common, count);
    if (!split) continue;
    spdlog::warn("warning: {}; planned as {} passes of {}, which is what results are compared with",
                 why.message, count, choice.batch / count);
    inputs.batch = choice.batch;
    inputs.forward = split->step.facts.forward;
    inputs.loss = split->step.facts.loss;
    inputs.mixing_op = "the whole batch";
    return split;
  }
  return why;
}

Result<ImportedModel> import_passes(SplitStep split, const PlanOptions& options,
                                    const ImportOptions& import_options, Inputs& inputs) {
  inputs.micro_inputs = std::move(split.inputs);
  inputs.loss_combining = split.step.facts.loss_combining;
  AUTOPAR_TRY(pass_bytes, training_step_bytes(split.step, options.model));
  AUTOPAR_TRY(imported, import_model_bytes(pass_bytes, options.model, import_options));
  if (inputs.training_bytes.empty()) {
    inputs.training = training_text(split.step, options.training);
    inputs.training_bytes = std::move(pass_bytes);
  }
  imported.sha256 = sha256_hex(inputs.training_bytes);
  if (split.mixing_op && inputs.mixing_op.empty()) {
    inputs.mixing_op = "op '" + *split.mixing_op + "'";
  }
  return std::move(imported);
}

// The training step of the model: of one pass, or of as many as are asked for.
Result<ImportedModel> import_step(const PlanOptions& options, const CommonOptions& common,
                                  const ImportOptions& import_options, Inputs& inputs) {
  const TrainingChoice& choice = options.training;
  auto whole = make_training_step(options.model, choice, common);
  if (!whole) {
    // Where the file's constants say its own batch, as many passes as that takes may do.
    AUTOPAR_TRY(only_passes, step_of_passes(options, common, whole.error(), inputs));
    return import_passes(std::move(only_passes), options, import_options, inputs);
  }
  AUTOPAR_TRY(bytes, training_step_bytes(*whole, options.model));
  inputs.training_bytes = std::move(bytes);
  inputs.has_whole_batch = true;
  inputs.training = training_text(*whole, choice);
  inputs.forward = whole->facts.forward;
  inputs.loss = whole->facts.loss;
  if (choice.micro_batches == "1" && !choice.options.update_apart) {
    return import_model_bytes(inputs.training_bytes, options.model, import_options);
  }
  AUTOPAR_TRY(batch, batch_of(*whole, choice.batch_dim));
  inputs.batch = batch;
  AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, batch));
  if (counts.front() == 1 && !choice.options.update_apart) {
    return import_model_bytes(inputs.training_bytes, options.model, import_options);
  }
  AUTOPAR_TRY(split, split_step(options.model, choice, common, *whole, counts.front()));
  return import_passes(std::move(split), options, import_options, inputs);
}

// The model, or the training step that is made of it.
Result<ImportedModel> import_planned(const PlanOptions& options, const CommonOptions& common,
                                     Inputs& inputs) {
  ImportOptions import_options;
  import_options.updates = options.updates;
  if (options.train) return import_step(options, common, import_options, inputs);
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  import_options.dims = dims;
  import_options.batch = options.training.batch;
  import_options.batch_dim = options.training.batch_dim;
  const std::vector<std::string> data = split_list(options.training.data_inputs);
  if (!data.empty()) import_options.data_inputs = data;
  return import_on_batch(options.model, import_options);
}

Result<std::unique_ptr<Inputs>> load_inputs(const PlanOptions& options,
                                            const CommonOptions& common) {
  if (options.weights == "sharded" && !options.dialects.empty()) {
    return usage_error(
        "--dialect goes with --weights referenced: its files have the whole weights");
  }
  if (!options.timeline_file.empty() && unit_of(options.cost_model) != "seconds") {
    return usage_error("--timeline: the prices of cost model " + options.cost_model +
                       " are no times; --cost-model roofline has some");
  }
  auto inputs = std::make_unique<Inputs>();
  if (!options.gradient_bucket.empty()) {
    AUTOPAR_TRY(bytes, parse_bytes(options.gradient_bucket, "--gradient-bucket"));
    inputs->gradient_bucket = bytes;
  }
  const std::string folder = fs::path(options.model).parent_path().string();
  inputs->data_folder = folder.empty() ? "." : folder;
  if (options.train) AUTOPAR_RETURN_IF_ERROR(check_copies(options.training));
  AUTOPAR_TRY(model, import_planned(options, common, *inputs));
  inputs->model = std::move(model);
  if (options.train) inputs->model.graph.copies = options.training.copies;
  inputs->warnings = inputs->model.warnings;
  tell_of_import(inputs->model);
  AUTOPAR_RETURN_IF_ERROR(check_is_model(inputs->model));
  AUTOPAR_TRY(cluster, cluster_of_option(options.cluster));
  inputs->cluster = std::move(cluster.cluster);
  AUTOPAR_TRY(profile, profile_of_option(options.profile, inputs->cluster.profile));
  inputs->cluster.profile = std::move(profile);
  if (inputs->model.graph.copies > 1 && inputs->cluster.profile.ideal()) {
    inputs->warnings.push_back(
        "by ideal prices nothing goes on beside anything else, so that --copies takes memory and "
        "saves no time; --profile NAME says what the runtime overlaps");
  }
  inputs->cluster_sha256 = std::move(cluster.sha256);
  spdlog::debug("cluster '{}': {} devices in {} tiers, {} each", inputs->cluster.name,
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
  spdlog::debug("rules: {} ops have one, {} have none",
                inputs->rules.rules.size() - inputs->rules.without_rule.size(),
                inputs->rules.without_rule.size());
  if (!inputs->rules.without_rule.empty()) {
    inputs->warnings.push_back("no rule for " +
                               join_names(inputs->model.graph, inputs->rules.without_rule, 5) +
                               ": replicated on every device; --rules FILE states one");
  }
  return inputs;
}

Result<bool> repeat_ops(Inputs& inputs, Recompute recompute) {
  Recomputed again = autopar::recompute(inputs.model.graph, recompute);
  if (again.repeated == 0) return false;
  inputs.model.graph = std::move(again.graph);
  inputs.recompute = recompute;
  inputs.repeated_ops = again.repeated;
  inputs.op_of_repeat = std::move(again.op_of_repeat);
  inputs.value_of_repeat = std::move(again.value_of_repeat);
  AUTOPAR_TRY(rules, rules_of(inputs.model.graph, inputs.user_rules));
  inputs.rules = std::move(rules);
  return true;
}

Result<std::optional<Recompute>> parse_recompute_option(const std::string& option,
                                                        const StrategyFile* file) {
  if (option == "auto" && file != nullptr && !file->recompute.empty()) {
    const auto found = parse_recompute(file->recompute);
    if (found) return found;
    return input_error(file->path +
                       ": recompute: expected none, cheap, products or full, found \"" +
                       file->recompute + "\"");
  }
  if (option == "auto") return std::optional<Recompute>();
  const auto found = parse_recompute(option);
  if (found) return found;
  return usage_error("--recompute '" + option + "': expected auto, none, cheap, products or full");
}

Result<SearchRequest> make_request(const Inputs& inputs, const PlanOptions& options,
                                   const CommonOptions& common) {
  SearchRequest request{inputs.model.graph, inputs.rules, inputs.cluster};
  request.searcher = options.searcher;
  request.cost_model = options.cost_model;
  request.max_axes = options.max_axes;
  request.updates = options.updates;
  if (!common.memory.empty()) {
    AUTOPAR_TRY(memory, parse_bytes(common.memory));
    request.memory_limit = memory;
  }
  if (!common.mesh.empty()) {
    AUTOPAR_TRY(sizes, parse_mesh(common.mesh));
    AUTOPAR_TRY(mesh, make_mesh(inputs.cluster, sizes));
    request.mesh = std::move(mesh);
  }
  for (const std::string& text : options.meshes) {
    AUTOPAR_TRY(sizes, parse_mesh(text));
    AUTOPAR_TRY(mesh, make_mesh(inputs.cluster, sizes));
    request.meshes.push_back(std::move(mesh));
  }
  if (options.io == "full" && (options.inputs != "free" || options.outputs != "free")) {
    return usage_error(
        "--io full says how inputs and outputs lie; leave --inputs and --outputs out");
  }
  AUTOPAR_TRY(in, parse_layout(options.io == "full" ? "full" : options.inputs, "--inputs"));
  AUTOPAR_TRY(out, parse_layout(options.io == "full" ? "full" : options.outputs, "--outputs"));
  AUTOPAR_RETURN_IF_ERROR(
      check_layout_names(in, inputs.model.graph.inputs, inputs.model.graph, "--inputs"));
  AUTOPAR_RETURN_IF_ERROR(
      check_layout_names(out, inputs.model.graph.outputs, inputs.model.graph, "--outputs"));
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
  if (graph.kernels.empty()) return;
  inputs.rules.class_of_op = classes_of(graph, inputs.rules.rules);
}

Result<Profile> profile_of_option(const std::string& name, const Profile& otherwise) {
  if (name.empty()) return otherwise;
  if (name == "ideal") return Profile();
  std::string known;
  std::error_code ignored;
  if (fs::exists(name, ignored)) return read_profile(name);
  for (const std::string& path : ready_made("profiles")) {
    const std::string stem = fs::path(path).stem().string();
    if (stem == name) return read_profile(path);
    known += ", " + stem;
  }
  return input_error(
      name + ": no such file, and no ready-made profile of that name; there are ideal" + known);
}

Result<Fill> parse_fill(const std::string& name) {
  if (name == "data_parallel") return Fill::kDataParallel;
  if (name == "replicate") return Fill::kReplicate;
  if (name == "search") return Fill::kSearch;
  return usage_error("--fill '" + name + "': expected data_parallel, replicate or search");
}

namespace {

// A pin that says of which type its op is, must say the model's: it may be of another model.
Status check_type(const StrategyFile& file, const std::string& name, const Op* op) {
  const auto said = file.op_types.find(name);
  if (op == nullptr || said == file.op_types.end()) return Ok{};
  if (said->second == op->type || said->second == op->origin_type) return Ok{};
  return input_error(file.path + ": ops." + name + ".type: the model's op is a " + op->type +
                     ", found \"" + said->second + "\"");
}

// MindSpore's OneHot has the counts of its output in the place of those of the indices, which have
// a dimension less: [2,4] cuts the indices [N] in 2 and the depth in 4.
void take_depth(OpPin& pin, const Op& op, const Graph& graph) {
  if (!pin.in_strategy || pin.in_strategy->empty() || pin.out_strategy) return;
  std::vector<std::int64_t>& counts = pin.in_strategy->front();
  const auto rank = static_cast<std::int64_t>(graph.value(op.inputs[0]).shape.size()) + 1;
  if (static_cast<std::int64_t>(counts.size()) != rank) return;
  pin.out_strategy.emplace(1, counts);
  const std::int64_t axis = op.int_attribute("axis", -1);
  counts.erase(counts.begin() + (axis < 0 ? axis + rank : axis));
}

}  // namespace

namespace {

// What is repeated is split as what it repeats, unless the pins say something else of it.
void pin_repeats(const Inputs& inputs, Pins& pins) {
  for (const auto& [repeat, name] : inputs.op_of_repeat) {
    const auto pin = pins.ops.find(name);
    if (pin != pins.ops.end()) pins.ops.try_emplace(repeat, pin->second);
  }
  for (const auto& [repeat, name] : inputs.value_of_repeat) {
    const auto pin = pins.values.find(name);
    if (pin == pins.values.end()) continue;
    ValuePin made;
    made.spec = pin->second.spec;
    made.device_matrix = pin->second.device_matrix;
    made.tensor_map = pin->second.tensor_map;
    pins.values.try_emplace(repeat, made);
  }
}

}  // namespace

Status add_pins(const StrategyFile& file, const Inputs& inputs, SearchRequest& request) {
  if (!request.mesh) {
    AUTOPAR_TRY(mesh, mesh_of(file, inputs.cluster));
    request.mesh = std::move(mesh);
  }
  const Graph& graph = inputs.model.graph;
  std::map<std::string, OpId> op_of;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    op_of[graph.ops[o].name] = OpId(static_cast<std::int64_t>(o));
  }
  std::map<std::string, OpPin> implied;
  for (const auto& [name, pin] : file.pins.ops) {
    std::string target = name;
    if (!op_of.count(name)) {
      const auto it = inputs.model.ops_of_user_op.find(name);
      if (it != inputs.model.ops_of_user_op.end() && it->second.empty()) {
        return input_error(file.path + ": op '" + name +
                           "' was folded into a constant or removed at import; it cannot be split");
      }
      if (it != inputs.model.ops_of_user_op.end() && it->second.size() == 1) {
        target = it->second.front();
      }
    }
    const auto found = op_of.find(target);
    const Op* op = found == op_of.end() ? nullptr : &graph.op(found->second);
    AUTOPAR_RETURN_IF_ERROR(check_type(file, name, op));
    OpPin kept = pin;
    if (op != nullptr && op->type == "OneHot") take_depth(kept, *op, graph);
    if (op != nullptr && op->type == "Gemm") {
      auto of_gemm = pin_gemm(std::move(kept), graph, inputs.rules, found->second, implied);
      if (!of_gemm) return input_error(file.path + ": " + of_gemm.error().message);
      kept = std::move(*of_gemm);
    }
    request.pins.ops[target] = std::move(kept);
  }
  // What the file says of an op itself comes before what follows from another's pin.
  request.pins.ops.merge(implied);
  request.pins.values = file.pins.values;
  pin_repeats(inputs, request.pins);
  return Ok{};
}

Error with_pin_file(Error error, const std::string& path) {
  const bool of_pins = error.message.rfind("op '", 0) == 0 ||
                       error.message.rfind("tensor '", 0) == 0 ||
                       error.message.rfind("pin of ", 0) == 0;
  if (of_pins && error.code == ErrorCode::kInput) error.message = path + ": " + error.message;
  return error;
}

}  // namespace autopar::cli
