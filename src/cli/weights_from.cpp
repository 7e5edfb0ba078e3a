#include "cli/weights_from.hpp"

#include <functional>
#include <set>

#include "exec/request.hpp"
#include "ir/half.hpp"
#include "planning/logging.hpp"
#include "weights/step_weights.hpp"
#include "weights/stores.hpp"

namespace autopar::cli {

namespace {

using Types = std::map<std::string, TensorType>;

// The value of one input: from the file; of a 16-bit copy that is not there, the parameter rounded.
Result<std::optional<Tensor>> value_of(const GivenWeights& given, const std::string& input,
                                       const Types& step, const TrainingRoles& roles) {
  if (given.types().count(input) != 0) return given.read(input);
  const std::string parameter = roles.copied_by(input);
  const auto type = step.find(input);
  if (parameter.empty() || type == step.end()) return std::optional<Tensor>();
  AUTOPAR_TRY(master, given.read(parameter));
  if (!master) return std::optional<Tensor>();
  const DType dtype = type->second.dtype;
  return std::optional(Tensor{dtype, master->shape, rounded(master->bytes, dtype)});
}

Types inputs_of(const std::vector<PlanFile>& files) {
  Types types;
  for (const PlanFile& file : files) {
    for (const BoundaryValue& input : file.plan.inputs) {
      types[input.name] = {input.dtype, input.shape};
    }
  }
  return types;
}

using Reader = std::function<Result<std::optional<Tensor>>(const std::string& name)>;

// What `read` has comes before all else, also what --data has for the same inputs. `path`: where it
// is read from.
Status read_first(const std::string& path, const Reader& read, bool tells, RunRequest& request) {
  std::vector<std::string> unread;
  for (auto data = request.data.begin(); data != request.data.end();) {
    AUTOPAR_TRY(value, read(data->first));
    if (value) unread.push_back(data->first);
    data = value ? request.data.erase(data) : std::next(data);
  }
  if (!unread.empty() && tells) {
    logging::warn("warning: --data: not read, since {} has them: {}", path, listed(unread));
  }
  const auto others = request.read_data;
  request.read_data = [read, others](const std::string& name) -> Result<std::optional<Tensor>> {
    AUTOPAR_TRY(value, read(name));
    if (value || !others) return std::move(value);
    return others(name);
  };
  return Ok{};
}

}  // namespace

Result<TrainingRoles> roles_of(const std::vector<PlanFile>& files, const std::string& updates) {
  for (const PlanFile& file : files) {
    if (file.metadata.training.empty()) continue;
    return parse_training_roles(file.metadata.training, file.path);
  }
  TrainingRoles roles;
  std::set<std::string> outputs;
  for (const PlanFile& file : files) {
    for (const BoundaryValue& output : file.plan.outputs) outputs.insert(output.name);
  }
  for (const auto& [name, type] : inputs_of(files)) {
    const bool is_next = outputs.count(update_of(name, updates)) != 0;
    (is_next ? roles.parameters : roles.data).push_back(name);
  }
  return roles;
}

Status add_weights_from(const std::string& path, const std::vector<PlanFile>& files, bool tells,
                        RunRequest& request) {
  if (path.empty()) return Ok{};
  AUTOPAR_TRY(roles, roles_of(files, request.updates));
  if (roles.parameters.empty()) {
    return usage_error(files[0].path + ": " + kWeightsFrom +
                       " feeds a training step; this plan has its weights itself, which `autopar "
                       "reshard-weights` replaces");
  }
  AUTOPAR_TRY(opened, GivenWeights::open(path));
  const auto given = std::make_shared<const GivenWeights>(std::move(opened));
  const Types step = inputs_of(files);
  // What programs hold themselves, such as frozen weights, may be there: `merge` writes it, too.
  Types known = step;
  for (const PlanFile& file : files) {
    for (const BoundaryValue& held : file.metadata.weights_io) {
      known.try_emplace(held.name, TensorType{held.dtype, held.shape});
    }
  }
  AUTOPAR_TRY(has_states, check_fit(*given, known, roles, files[0].path));
  if (!has_states && tells) tell_missing_states(*given);
  return read_first(
      path,
      [given, step, roles = std::move(roles)](const std::string& name) {
        return value_of(*given, name, step, roles);
      },
      tells, request);
}

bool are_made_up(const PlanFile& program, const std::string& folder) {
  return program.metadata.data && !program.metadata.sharded() && !has_rank_files(folder);
}

Status feed_not_trained(const std::string& folder, const std::vector<PlanFile>& files, bool tells,
                        RunRequest& request) {
  std::vector<const Plan*> plans;
  for (const PlanFile& file : files) plans.push_back(&file.plan);
  AUTOPAR_TRY(layout, step_layout(*request.step, plans, files[0].metadata, files[0].path));
  const std::vector<std::string> names = layout.not_trained();
  if (names.empty() || are_made_up(files[0], folder)) return Ok{};
  AUTOPAR_TRY(opened, GivenWeights::open(folder));
  const auto given = std::make_shared<const GivenWeights>(std::move(opened));
  return read_first(
      folder,
      [given, names](const std::string& name) -> Result<std::optional<Tensor>> {
        if (!has_name(names, name)) return std::optional<Tensor>();
        return given->read(name);
      },
      tells, request);
}

}  // namespace autopar::cli
