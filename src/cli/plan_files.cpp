#include "cli/plan_files.hpp"

#include <algorithm>

#include "autopar/sha256.hpp"
#include "autopar/training_roles.hpp"
#include "cli/earlier_plan.hpp"
#include "cli/one_device.hpp"
#include "cli/outputs.hpp"
#include "io/export/external_data.hpp"
#include "planning/logging.hpp"
#include "weights/rank_files.hpp"
#include "weights/sharded_program.hpp"
#include "weights/step_weights.hpp"
#include "weights/stores.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

// Of a training step also its parameters, and states where the file has them: they are inputs.
Result<RankFolders> write_sharded(const Plan& plan, const PlanMetadata& metadata,
                                  const PlanOptions& options, const std::string& model,
                                  const std::string& model_folder, OutputFolder& files) {
  const std::string folder = output_folder(options);
  if (metadata.training.empty()) {
    return write_sharded_plan(plan, metadata, folder, model_folder, files.files());
  }
  const std::string& given = options.training.weights_from;
  const std::string from = given.empty() ? model : given;
  std::optional<FolderPlan> held;
  std::vector<std::string> warnings;
  AUTOPAR_TRY(stored, stored_in(from, held, warnings));
  AUTOPAR_TRY(inputs, inputs_in(plan, metadata.training, given.empty(), from, stored));
  AUTOPAR_TRY(ranks, write_sharded_plan(plan, metadata, folder, model_folder, files.files(), inputs,
                                        std::move(stored)));
  ranks.warnings.insert(ranks.warnings.begin(), warnings.begin(), warnings.end());
  return ranks;
}

// plan.onnx, and with --weights sharded the folders of the ranks. Returns warnings.
Result<std::vector<std::string>> write_program(const Plan& plan, PlanMetadata metadata,
                                               const PlanOptions& options, const std::string& model,
                                               const std::string& model_folder,
                                               OutputFolder& files) {
  if (options.weights == "sharded") {
    AUTOPAR_TRY(ranks, write_sharded(plan, metadata, options, model, model_folder, files));
    files.add(ranks);
    return ranks.warnings;
  }
  metadata.weights = "referenced";
  metadata.weights_io = weights_of(plan);
  return write_plan(plan, metadata, files.add("plan.onnx"), model_folder, files.files());
}

// Of a training step: the slices of what the model's file has, or the file that is given. What is
// not trained is the model's in any case. `written`: the programs as they are written.
Status write_ranks(const Programs& programs, const std::vector<Plan>& written,
                   const PlanMetadata& metadata, const PlanOptions& options, const Inputs& inputs,
                   OutputFolder& files, std::vector<std::string>& warnings) {
  const std::string& given = options.training.weights_from;
  const std::string from = given.empty() ? inputs.model.path : given;
  std::optional<FolderPlan> held;
  AUTOPAR_TRY(stored, stored_in(from, held, warnings));
  std::vector<const Plan*> plans;
  for (const Plan& plan : written) plans.push_back(&plan);
  AUTOPAR_TRY(layout, step_layout(programs.step, plans, metadata, from));
  if (given.empty()) narrow_to_step(layout, stored);
  for (const Plan& plan : programs.plans) {
    AUTOPAR_TRY(weights, stored_in_program(plan, inputs.data_folder));
    for (auto& [name, tensor] : weights) stored.insert_or_assign(name, std::move(tensor));
  }
  AUTOPAR_TRY(ranks, write_step_ranks(layout, stored, from, output_folder(options), files.files()));
  files.add(ranks);
  warnings.insert(warnings.end(), ranks.warnings.begin(), ranks.warnings.end());
  return Ok{};
}

}  // namespace

Plan unsharded(const Graph& graph) {
  Plan plan{graph, one_device(), {}, {}};
  seed_random_ops(plan.program);
  for (const auto& [ids, boundary] :
       {std::pair(&graph.inputs, &plan.inputs), std::pair(&graph.outputs, &plan.outputs)}) {
    for (ValueId id : *ids) {
      const Value& value = graph.value(id);
      boundary->push_back({value.name, value.dtype, value.shape, replicated(value.shape.size())});
    }
  }
  return plan;
}

Result<std::vector<std::string>> write_training_file(const Inputs& inputs, const Graph& step,
                                                     OutputFolder& files) {
  if (!inputs.has_whole_step) return std::vector<std::string>();
  const std::string path = files.add(kTrainingFile);
  AUTOPAR_RETURN_IF_ERROR(write_file(files.files(), path, inputs.training_bytes));
  return place_external_data(step, inputs.data_folder, fs::path(path).parent_path().string(),
                             kLinkBytes, files.files());
}

Result<std::vector<std::string>> write_programs(const Programs& programs, PlanMetadata metadata,
                                                const PlanOptions& options, const Inputs& inputs,
                                                int threads, OutputFolder& files) {
  const std::string& model_folder = inputs.data_folder;
  if (programs.step.programs.empty()) {
    return write_program(programs.plans.front(), std::move(metadata), options, inputs.model.path,
                         model_folder, files);
  }
  const bool sharded = options.weights == "sharded";
  std::vector<const Plan*> whole;
  for (const Plan& plan : programs.plans) whole.push_back(&plan);
  const std::vector<Plan> of_ranks = sharded ? with_weights_as_inputs(whole) : std::vector<Plan>();
  const std::vector<Plan>& written = sharded ? of_ranks : programs.plans;
  std::vector<PlanToWrite> plans;
  for (std::size_t p = 0; p < written.size(); ++p) {
    metadata.weights = "referenced";
    metadata.weights_io = weights_of(written[p]);
    metadata.of_step = true;
    plans.push_back({written[p], metadata, files.add(programs.step.programs[p].file)});
  }
  for (const auto& [phase, program] : programs.unsharded) {
    PlanMetadata alone;
    alone.version = AUTOPAR_VERSION;
    alone.of_step = true;
    alone.tier_names = metadata.tier_names;
    plans.push_back({program, alone, files.add(std::string("train.") + name_of(phase) + ".onnx")});
  }
  AUTOPAR_TRY(warnings, write_plans(plans, model_folder, threads, files.files()));
  if (sharded) {
    // What the unsharded step refers to.
    for (const Plan& plan : programs.plans) {
      AUTOPAR_TRY(more, place_external_data(plan.program, model_folder, output_folder(options),
                                            kLinkBytes, files.files()));
      for (std::string& warning : more) {
        if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) {
          warnings.push_back(std::move(warning));
        }
      }
    }
    AUTOPAR_RETURN_IF_ERROR(
        write_ranks(programs, written, metadata, options, inputs, files, warnings));
  }
  files.add({"step.json", programs.step.schedule});
  AUTOPAR_RETURN_IF_ERROR(write_step(programs.step, output_folder(options), files.files()));
  return warnings;
}

std::string names_of(const Programs& programs) {
  if (programs.step.programs.empty()) return "plan.onnx";
  std::string text = "step.json, " + programs.step.schedule;
  for (const StepProgram& program : programs.step.programs) text += ", " + program.file;
  return text;
}

namespace {

// Inputs that the model does not have itself.
std::vector<std::string> data_names(const Graph& graph) {
  std::vector<std::string> names;
  for (ValueId input : graph.inputs) {
    const Value& value = graph.value(input);
    if (value.kind == ValueKind::kInput) names.push_back(value.name);
  }
  return names;
}

}  // namespace

PlanMetadata metadata_of(const SearchRequest& request, const Inputs& inputs,
                         const std::string& strategy) {
  PlanMetadata metadata;
  metadata.version = AUTOPAR_VERSION;
  metadata.model_sha256 = inputs.model.sha256;
  metadata.strategy_sha256 = sha256_hex(strategy);
  const auto training = inputs.model.metadata.find(kTrainingKey);
  if (training != inputs.model.metadata.end()) metadata.training = training->second;
  if (!inputs.outputs.empty()) metadata.data = data_names(inputs.model.graph);
  for (const Tier& tier : request.cluster.tiers) metadata.tier_names.push_back(tier.name);
  return metadata;
}

std::string told_of_mixing(const Inputs& inputs) {
  return "the passes are not one pass over the whole batch, since " +
         (inputs.mixing_op != kNoWholeBatch
              ? inputs.mixing_op + " makes a sample depend on others of its micro-batch"
              : "the model cannot be had with that batch") +
         "; `run` compares with the unsharded passes";
}

void tell_of_earlier(const std::string& folder, const std::string& earlier,
                     const std::vector<std::string>& written, const std::string& model) {
  if (!earlier.empty()) logging::info("{}: {} that lay there is replaced", folder, earlier);
  std::string left;
  for (const std::string& name : left_of_earlier_plan(folder, written, model)) {
    left += (left.empty() ? "" : ", ") + name;
  }
  if (left.empty()) return;
  logging::warn(
      "warning: {}: of an earlier plan, and left as they are: {}; remove them, or write to "
      "another folder with -o",
      folder, left);
}

}  // namespace autopar::cli
