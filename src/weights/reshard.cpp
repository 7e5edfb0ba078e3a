// From the files of one plan, or of none, to the rank folders of another.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/training_roles.hpp"
#include "io/export/external_data.hpp"
#include "weights/rank_files.hpp"
#include "weights/step_weights.hpp"
#include "weights/stores.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

Status check_same(const BoundaryValue& wanted, const StoredTensor& found, const std::string& from) {
  if (found.dtype == wanted.dtype && found.shape == wanted.shape) return Ok{};
  return input_error(from + ": weight '" + wanted.name + "' is " +
                     type_text(found.dtype, found.shape) + ", the plan expects " +
                     type_text(wanted.dtype, wanted.shape));
}

// A plan that does not say which of its initializers are weights: those that `from` has are, and
// those that lie outside of it.
void name_weights(PlanFile& plan, const StoredTensors& stored) {
  if (!plan.metadata.weights.empty()) return;
  for (Value& value : plan.plan.program.values) {
    if (value.has_data() && stored.count(value.name) != 0) value.kind = ValueKind::kParameter;
  }
}

// Integers, flags and single numbers in a model describe shapes, axes and masks; the import makes
// constants of them.
bool may_be_constant(const StoredTensor& tensor) {
  return tensor.shape.empty() || tensor.dtype == DType::kInt64 || tensor.dtype == DType::kInt32 ||
         tensor.dtype == DType::kBool;
}

// What the plan has: weights, then the graph inputs that `from` has.
struct Wanted {
  std::vector<BoundaryValue> inputs;
  std::vector<std::string> missing;           // weights
  std::vector<BoundaryValue> missing_inputs;  // of a training step: parameters, or states of some
};

// Of the inputs that `from` does not have: those that a training step cannot do without, which are
// parameters and statistics, and states where it has any.
std::vector<BoundaryValue> not_given(const std::vector<BoundaryValue>& inputs,
                                     const TrainingRoles& roles, const StoredTensors& stored) {
  const auto is_state = [&](const std::string& name) { return has_name(roles.states, name); };
  const bool has_states = std::any_of(stored.begin(), stored.end(), [&](const auto& entry) {
    return is_state(entry.first) && !roles.follows(entry.first);
  });
  std::vector<BoundaryValue> missing;
  for (const BoundaryValue& input : inputs) {
    const std::string& name = input.name;
    const bool is_weight = has_name(roles.parameters, name) || has_name(roles.statistics, name);
    const bool is_needed = is_weight || (has_states && is_state(name));
    if (is_needed && stored.count(name) == 0 && !roles.follows(name)) missing.push_back(input);
  }
  return missing;
}

std::vector<std::string> names_of(const std::vector<BoundaryValue>& values) {
  std::vector<std::string> names;
  for (const BoundaryValue& value : values) names.push_back(value.name);
  return names;
}

// Some of what a program reads.
std::string names_of_read(const ShardedProgram& program) {
  std::vector<std::string> names;
  for (const BoundaryValue& weight : program.weights) names.push_back(weight.name);
  for (const BoundaryValue& input : program.plan.inputs) names.push_back(input.name);
  return listed(names);
}

Result<Wanted> match(const ShardedProgram& program, const StoredTensors& stored,
                     const TrainingRoles& roles, const std::string& from, MovedWeights& moved) {
  Wanted wanted;
  std::size_t used = 0;
  for (const BoundaryValue& weight : program.weights) {
    const auto found = stored.find(weight.name);
    if (found == stored.end()) {
      wanted.missing.push_back(weight.name);
      continue;
    }
    AUTOPAR_RETURN_IF_ERROR(check_same(weight, found->second, from));
    moved.bytes += found->second.bytes();
    ++used;
  }
  std::vector<std::string> fed;
  for (const BoundaryValue& input : program.plan.inputs) {
    const auto found = stored.find(input.name);
    if (found == stored.end()) {
      if (!has_name(roles.data, input.name)) fed.push_back(input.name);
      continue;
    }
    AUTOPAR_RETURN_IF_ERROR(check_same(input, found->second, from));
    moved.bytes += found->second.bytes();
    wanted.inputs.push_back(input);
    ++used;
  }
  moved.weights = used;
  wanted.missing_inputs = not_given(program.plan.inputs, roles, stored);
  if (!wanted.inputs.empty() && !fed.empty() && wanted.missing_inputs.empty()) {
    moved.warnings.push_back(from + " has nothing for these inputs of the plan: " + listed(fed));
  }
  if (used == stored.size()) return wanted;
  std::vector<std::string> left;
  const bool is_model = fs::path(from).extension() == ".onnx";
  for (const auto& entry : stored) {
    if (is_model && may_be_constant(entry.second)) continue;
    const auto same = [&](const BoundaryValue& value) { return value.name == entry.first; };
    if (std::none_of(program.weights.begin(), program.weights.end(), same) &&
        std::none_of(wanted.inputs.begin(), wanted.inputs.end(), same)) {
      left.push_back(entry.first);
    }
  }
  if (!left.empty()) {
    moved.warnings.push_back("left out, since the plan does not have them: " + listed(left));
  }
  return wanted;
}

}  // namespace

namespace {

// The files that a program refers to; each warning once.
Status place_data_of(const Graph& program, const std::string& from, const std::string& to,
                     MovedWeights& moved, UnfinishedFiles& files) {
  AUTOPAR_TRY(warnings, place_external_data(program, from, to, kLinkBytes, files));
  for (std::string& warning : warnings) {
    auto& all = moved.warnings;
    if (std::find(all.begin(), all.end(), warning) == all.end()) all.push_back(std::move(warning));
  }
  return Ok{};
}

// A step whose programs read as inputs what they held whole and is not trained.
struct StepOfInputs {
  std::vector<Plan> plans;  // by program; where none held anything none
  StepLayout layout;        // of these
};

Result<StepOfInputs> step_of_inputs(const StepFolder& step) {
  StepOfInputs changed;
  std::vector<const Plan*> plans;
  const PlanFile& first = step.files.front();
  const bool says_data = !first.metadata.training.empty() || first.metadata.data;
  bool says_weights = true;
  for (const PlanFile& file : step.files) {
    plans.push_back(&file.plan);
    says_weights = says_weights && !file.metadata.weights.empty();
  }
  if (says_weights && says_data) {
    changed.plans = with_weights_as_inputs(plans);
    bool any = false;
    for (std::size_t p = 0; p < plans.size(); ++p) {
      any = any || changed.plans[p].inputs.size() != plans[p]->inputs.size();
      plans[p] = &changed.plans[p];
    }
    if (!any) changed.plans.clear();
  }
  if (changed.plans.empty()) {
    changed.layout = step.layout;
    return changed;
  }
  AUTOPAR_TRY(layout, step_layout(step.step, plans, first.metadata, first.path));
  changed.layout = std::move(layout);
  return changed;
}

// What is not trained, of which there may be nothing where the other weights come from: it stays as
// the step in `to` has it, in its programs or its ranks' files.
Status keep_not_trained(const std::string& from, const std::string& to, const StepFolder& step,
                        const StepLayout& layout, MovedWeights& moved, StoredTensors& stored) {
  const std::vector<std::string> names = layout.not_trained();
  if (names.empty()) return Ok{};
  StoredTensors held;
  if (is_step_folder(from)) AUTOPAR_RETURN_IF_ERROR(add_frozen(from, held));
  std::vector<std::string> missing;
  for (const std::string& name : names) {
    if (auto found = held.extract(name)) stored.insert(std::move(found));
    if (stored.count(name) == 0) missing.push_back(name);
  }
  if (missing.empty()) return Ok{};
  StoredTensors own;
  if (has_rank_files(to) && !step.layout.not_trained().empty()) {
    AUTOPAR_TRY(of_ranks, stored_in_step(step.layout, to));
    own = std::move(of_ranks);
  }
  for (const PlanFile& file : step.files) {
    AUTOPAR_TRY(weights, stored_in_program(file.plan, to));
    own.merge(weights);
  }
  for (const std::string& name : missing) {
    if (auto found = own.extract(name)) stored.insert(std::move(found));
  }
  moved.warnings.push_back("kept as they are in " + to + ", since " + from +
                           " does not have them: " + listed(missing));
  return Ok{};
}

Status write_changed(const StepFolder& step, const std::vector<Plan>& plans,
                     const std::string& folder, UnfinishedFiles& files) {
  std::vector<PlanToWrite> written;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    PlanMetadata metadata = step.files[p].metadata;
    metadata.weights_io = weights_of(plans[p]);
    metadata.of_step = true;
    written.push_back(
        {plans[p], metadata, (fs::path(folder) / step.step.programs[p].file).string()});
  }
  AUTOPAR_TRY(warnings, write_plans(written, "", 1, files));
  static_cast<void>(warnings);
  return Ok{};
}

// The programs of a step, where they are not written anew, and what its results are compared with.
Status copy_step(const StepFolder& step, bool with_programs, const std::string& from,
                 const std::string& to, MovedWeights& moved, UnfinishedFiles& files) {
  std::vector<std::string> names = {step.step.schedule};
  if (with_programs) {
    for (const StepProgram& program : step.step.programs) names.push_back(program.file);
  }
  for (const PlanFile& file : step.files) {
    AUTOPAR_RETURN_IF_ERROR(place_data_of(file.plan.program, from, to, moved, files));
  }
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(from, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("train.", 0) == 0 && entry.path().extension() == ".onnx") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  // What the unsharded step refers to, which is not trained.
  for (const std::string& name : names) {
    if (name.rfind("train.", 0) != 0) continue;
    AUTOPAR_TRY(initializers, initializers_of((fs::path(from) / name).string()));
    Graph graph;
    graph.values = std::move(initializers);
    AUTOPAR_RETURN_IF_ERROR(place_data_of(graph, from, to, moved, files));
  }
  names.push_back("step.json");  // last: a folder is a step when all of it is there
  for (const std::string& name : names) {
    AUTOPAR_TRY(bytes, read_file((fs::path(from) / name).string()));
    AUTOPAR_RETURN_IF_ERROR(write_file(files, (fs::path(to) / name).string(), bytes));
  }
  return Ok{};
}

// To the ranks of a step of several programs.
Result<MovedWeights> reshard_to_step(const std::string& from, const std::string& to,
                                     const std::string& folder) {
  MovedWeights moved;
  std::error_code ignored;
  std::optional<FolderPlan> held;
  AUTOPAR_TRY(stored, stored_in(from, held, moved.warnings));
  AUTOPAR_TRY(step, read_step_folder(to));
  if (fs::equivalent(from, folder, ignored)) {
    return usage_error(folder + ": is where the weights come from; write them to another folder");
  }
  std::vector<std::string> left;
  const bool is_model = fs::path(from).extension() == ".onnx";
  AUTOPAR_TRY(changed, step_of_inputs(step));
  AUTOPAR_RETURN_IF_ERROR(keep_not_trained(from, to, step, changed.layout, moved, stored));
  for (const auto& [name, tensor] : stored) {
    if (changed.layout.whole.count(name) == 0) {
      if (!is_model || !may_be_constant(tensor)) left.push_back(name);
      continue;
    }
    ++moved.weights;
    moved.bytes += tensor.bytes();
  }
  if (!left.empty()) {
    moved.warnings.push_back("left out, since the step does not have them: " + listed(left));
  }
  UnfinishedFiles files;
  AUTOPAR_TRY(written, write_step_ranks(changed.layout, stored, from, folder, files));
  AUTOPAR_RETURN_IF_ERROR(write_changed(step, changed.plans, folder, files));
  if (!fs::equivalent(to, folder, ignored)) {
    AUTOPAR_RETURN_IF_ERROR(copy_step(step, changed.plans.empty(), to, folder, moved, files));
  }
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  moved.files = std::move(written.files);
  moved.warnings.insert(moved.warnings.end(), written.warnings.begin(), written.warnings.end());
  return moved;
}

}  // namespace

Result<MovedWeights> reshard_weights(const std::string& from, const std::string& to,
                                     const std::string& folder, bool keep_missing) {
  if (is_step_folder(to)) {
    if (!keep_missing) return reshard_to_step(from, to, folder);
    return usage_error("--keep-missing goes with a plan of one program, and " + to +
                       " holds a step of several");
  }
  MovedWeights moved;
  std::optional<FolderPlan> held;
  AUTOPAR_TRY(stored, stored_in(from, held, moved.warnings));
  if (is_step_folder(from)) AUTOPAR_RETURN_IF_ERROR(add_frozen(from, stored));
  AUTOPAR_TRY(plan, read_folder_plan(to));
  std::error_code ignored;
  if (held && fs::equivalent(from, folder, ignored) && !fs::equivalent(from, to, ignored)) {
    return usage_error(folder + ": is where the weights come from; write them to another folder");
  }
  name_weights(plan.file, stored);
  ShardedProgram program =
      shard_program(plan.file.plan,
                    plan.sharded() ? plan.file.metadata.weights_io : std::vector<BoundaryValue>());
  TrainingRoles roles;
  if (!plan.file.metadata.training.empty()) {
    AUTOPAR_TRY(said, parse_training_roles(plan.file.metadata.training, plan.path));
    roles = std::move(said);
  }
  AUTOPAR_TRY(wanted, match(program, stored, roles, from, moved));
  if (moved.weights == 0 && wanted.missing.empty() && !stored.empty()) {
    return input_error(from + ": has nothing of " + plan.path + "; it has " +
                       listed({stored.begin()->first}) + " and the like, the plan reads " +
                       names_of_read(program));
  }
  if (stored.empty() && !plan.file.metadata.training.empty()) {
    return input_error(from + ": holds no weights; " + plan.path + " reads " +
                       names_of_read(program) +
                       "; try --from with a plan of --weights sharded, a model or what `autopar "
                       "run --save` writes");
  }
  if (!wanted.missing_inputs.empty() && !keep_missing) {
    return input_error(from + ": lacks " + listed(names_of(wanted.missing_inputs)) + " of " +
                       plan.path +
                       "; expected all parameters, and all states or none; --keep-missing leaves "
                       "those as they are in " +
                       to);
  }
  if (!wanted.missing.empty() || !wanted.missing_inputs.empty()) {
    // What a training step holds itself is not trained.
    if (!keep_missing && plan.file.metadata.training.empty()) {
      return input_error(from + ": lacks weights of " + plan.path + ": " + listed(wanted.missing) +
                         "; --keep-missing leaves them as they are there");
    }
    AUTOPAR_TRY(own, stored_in_folder(plan, to, moved.warnings));
    for (const std::string& name : wanted.missing) {
      const auto found = own.find(name);
      if (found == own.end()) return input_error(to + ": has no weight '" + name + "' either");
      stored.insert(*found);
    }
    for (const BoundaryValue& input : wanted.missing_inputs) {
      const auto found = own.find(input.name);
      if (found == own.end())
        return input_error(to + ": has nothing for '" + input.name + "' either");
      AUTOPAR_RETURN_IF_ERROR(check_same(input, found->second, to));
      stored.insert(*found);
      wanted.inputs.push_back(input);
      wanted.missing.push_back(input.name);
    }
    moved.warnings.push_back("kept as they are in " + to + ", since " + from +
                             " does not have them: " + listed(wanted.missing));
  }
  UnfinishedFiles files;
  AUTOPAR_TRY(written, write_rank_folders(std::move(program), wanted.inputs, plan.file.metadata,
                                          stored, folder, files));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  moved.files = std::move(written.files);
  moved.warnings.insert(moved.warnings.end(), written.warnings.begin(), written.warnings.end());
  return moved;
}

}  // namespace autopar
