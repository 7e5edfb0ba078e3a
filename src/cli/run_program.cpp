#include "cli/run_program.hpp"

#include <algorithm>
#include <set>

#include "autopar/file_facts.hpp"
#include "autopar/npz.hpp"
#include "autopar/program_bytes.hpp"
#include "autopar/rank_plans.hpp"
#include "autopar/sha256.hpp"
#include "cli/model_path.hpp"

namespace autopar::cli {

namespace {

// The weights of the program, which then has them no longer.
std::map<std::string, Tensor> take_weights(Graph& program) {
  std::map<std::string, Tensor> weights;
  for (Value& value : program.values) {
    if (auto* tensor = std::get_if<Tensor>(&value.data)) weights[value.name] = std::move(*tensor);
    value.data = {};
  }
  return weights;
}

// The groups of a program's collectives, each once, in the order of its ops.
Result<std::vector<GroupPartition>> partitions_of(const Plan& plan) {
  AUTOPAR_TRY(collectives, collectives_of(plan));
  std::vector<GroupPartition> partitions;
  for (ProgramCollective& collective : collectives) {
    if (!communicates(collective.collective.kind)) continue;
    GroupPartition partition{std::move(collective.groups), collective.group_size,
                             is_message(collective.collective.kind)};
    if (std::find(partitions.begin(), partitions.end(), partition) == partitions.end()) {
      partitions.push_back(std::move(partition));
    }
  }
  return partitions;
}

// From the folders of the ranks.
Status add_rank_plans(const PlanFile& file, std::optional<std::int64_t> own, RunProgram& program) {
  std::vector<std::int64_t> checked;
  for (const std::int64_t rank : file.ranks) {
    program.rank_paths.push_back(rank_plan_path(file, file.path, rank));
    if (!own || *own == rank) checked.push_back(rank);
  }
  return check_rank_plans(file, file.path, checked);
}

// What runs of a file in which lists of ranks stand apart from the collectives. Files of ranks
// differ in nothing but the folder that they are in.
Status add_listed(const PlanFile& file, std::optional<std::int64_t> own, RunProgram& program) {
  std::string path = file.path;
  if (!program.rank_paths.empty()) {
    const auto found = std::find(file.ranks.begin(), file.ranks.end(), own.value_or(-1));
    const auto place = found == file.ranks.end() ? 0 : found - file.ranks.begin();
    path = program.rank_paths[static_cast<std::size_t>(place)];
  }
  AUTOPAR_TRY(bytes, bytes_with_groups(path));
  if (bytes) program.bytes = std::make_shared<const std::string>(std::move(*bytes));
  return Ok{};
}

// Of external data that all ranks read: one mapping for all sessions of this process.
Status map_common_weights(const PlanFile& file, RunProgram& program) {
  AUTOPAR_TRY(mapped, map_weights(file, file.path, 0));
  for (const auto& [name, tensor] : mapped.initializers) {
    program.weight_views[name] = {tensor.dtype, tensor.shape, tensor.data};
  }
  program.weight_owners = std::move(mapped.files);
  return Ok{};
}

// Where the plan was made with another batch than the model's own: that one, and where it stands.
// `inputs`: of the plan.
ImportOptions on_batch_of(const std::vector<BoundaryValue>& inputs, const Graph& model,
                          const ImportOptions& import) {
  ImportOptions options = import;
  for (const BoundaryValue& input : inputs) {
    const auto of_model = std::find_if(model.inputs.begin(), model.inputs.end(), [&](ValueId id) {
      return model.value(id).name == input.name;
    });
    if (of_model == model.inputs.end()) continue;
    const Shape& own = model.value(*of_model).shape;
    if (own.size() != input.shape.size()) return import;
    for (std::size_t d = 0; d < own.size(); ++d) {
      if (own[d] == input.shape[d]) continue;
      if (options.batch != 0 && (d != options.batch_dim || input.shape[d] != options.batch)) {
        return import;
      }
      options.batch = input.shape[d];
      options.batch_dim = d;
    }
  }
  return options;
}

}  // namespace

Result<RunProgram> run_program(PlanFile& file, std::optional<std::int64_t> own) {
  RunProgram program;
  program.path = file.path;
  if (file.by_hand) {
    AUTOPAR_TRY(bytes, plan_bytes(file.plan, file.metadata, file.path));
    program.sha256 = sha256_hex(bytes);  // a list of ranks' files says nothing of these
    program.bytes = std::make_shared<const std::string>(std::move(bytes));
  } else {
    AUTOPAR_TRY(sha256, sha256_of_file(file.path));
    program.sha256 = sha256;
  }
  program.mesh = file.plan.mesh;
  program.inputs = file.plan.inputs;
  program.outputs = file.plan.outputs;
  program.ranks = file.ranks;
  AUTOPAR_TRY(partitions, partitions_of(file.plan));
  program.partitions = std::move(partitions);
  const bool has_folders = file.metadata.sharded();
  AUTOPAR_RETURN_IF_ERROR(has_folders ? add_rank_plans(file, own, program)
                                      : map_common_weights(file, program));
  if (!file.by_hand) AUTOPAR_RETURN_IF_ERROR(add_listed(file, own, program));
  program.weights = take_weights(file.plan.program);
  return program;
}

std::vector<BoundaryValue> whole_inputs(const std::vector<PlanFile>& files,
                                        const std::optional<Step>& step) {
  std::vector<BoundaryValue> inputs;
  std::set<std::string> known;
  for (const PlanFile& file : files) {
    for (BoundaryValue input : file.plan.inputs) {
      if (!known.insert(input.name).second) continue;
      for (const MicroInput& cut : step ? step->micro_inputs : std::vector<MicroInput>()) {
        const auto dimension = static_cast<std::size_t>(cut.dimension);
        if (cut.name != input.name || dimension >= input.shape.size()) continue;
        input.shape[dimension] *= step->micro_batches;
      }
      inputs.push_back(std::move(input));
    }
  }
  return inputs;
}

Result<UnshardedModel> unsharded_model(const std::string& given, const PlanFile& plan,
                                       const std::vector<BoundaryValue>& inputs,
                                       const ImportOptions& import) {
  UnshardedModel model;
  AUTOPAR_TRY(path, model_path_of_plan(given, plan.path));
  model.path = path;
  keep_from_replacing(path);
  auto imported = import_model(path, import);
  const std::string& expected = plan.metadata.model_sha256;
  if (imported) {
    AUTOPAR_RETURN_IF_ERROR(check_model_sha256(path, imported->sha256, expected));
    const ImportOptions batched = on_batch_of(inputs, imported->graph, import);
    if (batched.batch != 0) imported = import_model(path, batched);
    if (!imported) return imported.error();
    const auto& ops = imported->graph.ops;
    const bool draws = std::any_of(ops.begin(), ops.end(), is_random);
    if (draws) seed_random_ops(imported->graph);
    if (imported->ir_version == 0 || draws || batched.batch != 0) {
      AUTOPAR_TRY(bytes, graph_bytes(imported->graph, path));
      model.bytes = std::make_shared<const std::string>(std::move(bytes));
    }
    model.graph = std::move(imported->graph);
    return model;
  }
  AUTOPAR_TRY(sha256, sha256_of_file(path));
  AUTOPAR_RETURN_IF_ERROR(check_model_sha256(path, sha256, expected));
  // ONNX Runtime may know what this program does not.
  if (is_json(path)) return imported.error();
  return model;
}

Status add_data(const std::string& path, bool compares, RunRequest& request) {
  if (path.empty()) return Ok{};
  if (!compares) {
    request.read_data = [path](const std::string& name) -> Result<std::optional<Tensor>> {
      AUTOPAR_TRY(prefixed, read_npz_array(path, "in." + name));
      if (prefixed) return std::move(prefixed);
      return read_npz_array(path, name);
    };
    return Ok{};
  }
  AUTOPAR_TRY(arrays, read_npz(path));
  for (auto& [name, tensor] : arrays) {
    if (name.rfind("in.", 0) == 0) {
      request.data[name.substr(3)] = std::move(tensor);
    } else if (name.rfind("out.", 0) == 0) {
      request.expected[name.substr(4)] = std::move(tensor);
    } else {
      request.data[name] = std::move(tensor);
    }
  }
  return Ok{};
}

}  // namespace autopar::cli
