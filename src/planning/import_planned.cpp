#include "planning/import_planned.hpp"

#include "autopar/export.hpp"
#include "autopar/sha256.hpp"
#include "planning/common_options.hpp"
#include "planning/logging.hpp"
#include "planning/model_passes.hpp"
#include "support/parallel.hpp"

namespace autopar {

namespace {

// Of the whole batch there is no graph.
Result<SplitStep> step_of_passes(const PlanOptions& options, const CommonOptions& common,
                                 const Error& why, Inputs& inputs) {
  const TrainingChoice& choice = options.training;
  if (why.code != ErrorCode::kInput || choice.batch == 0 || choice.micro_batches == "1") return why;
  AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, choice.batch));
  for (const std::int64_t count : counts) {
    auto split = split_passes(options.model, choice, common, count);
    if (!split) continue;
    logging::warn(
        "warning: {}; planned as {} passes of {}, which is what results are compared with",
        why.message, count, choice.batch / count);
    inputs.batch = choice.batch;
    inputs.forward = split->step.facts.forward;
    inputs.loss = split->step.facts.loss;
    inputs.mixing_op = kNoWholeBatch;
    return split;
  }
  return why;
}

Result<ImportedModel> import_passes(SplitStep split, const PlanOptions& options,
                                    const ImportOptions& import_options, Inputs& inputs) {
  inputs.micro_inputs = std::move(split.inputs);
  inputs.loss_combining = split.step.facts.loss_combining;
  if (split.mixing_op && inputs.mixing_op.empty()) {
    inputs.mixing_op = "op '" + *split.mixing_op + "'";
  }
  return import_training_step(split.step, options.model, import_options);
}

// A step is read from a file of its own. Ops of the user's file are named as there, too.
ImportedModel with_user_ops(ImportedModel step, const OpsOfUserOp& user_ops) {
  auto of_user_op = std::make_shared<OpsOfUserOp>(*step.ops_of_user_op);
  for (const auto& [user, ops] : user_ops) {
    std::vector<std::string> found;
    for (const std::string& op : ops) {
      const auto made = step.ops_of_user_op->find(op);
      if (made == step.ops_of_user_op->end()) continue;
      found.insert(found.end(), made->second.begin(), made->second.end());
    }
    of_user_op->try_emplace(user, std::move(found));
  }
  step.ops_of_user_op = std::move(of_user_op);
  return step;
}

Result<ImportedModel> import_made_step(const Result<TrainingStep>& whole,
                                       const PlanOptions& options, const CommonOptions& common,
                                       const ImportOptions& import_options, Inputs& inputs) {
  const TrainingChoice& choice = options.training;
  if (!whole) {
    // Where the file's constants say its own batch, as many passes as that takes may do.
    AUTOPAR_TRY(only_passes, step_of_passes(options, common, whole.error(), inputs));
    inputs.training = training_text(only_passes.step, choice);
    AUTOPAR_TRY(bytes, training_step_bytes(only_passes.step, options.model));
    inputs.training_bytes = std::move(bytes);
    AUTOPAR_TRY(imported, import_passes(std::move(only_passes), options, import_options, inputs));
    imported.sha256 = sha256_hex(inputs.training_bytes);
    return std::move(imported);
  }
  inputs.has_whole_step = true;
  inputs.training = training_text(*whole, choice);
  inputs.forward = whole->facts.forward;
  inputs.loss = whole->facts.loss;
  std::string sha256;
  const auto make_file = [&]() -> Status {
    AUTOPAR_TRY(bytes, training_step_bytes(*whole, options.model));
    inputs.training_bytes = std::move(bytes);
    sha256 = sha256_hex(inputs.training_bytes);
    return Ok{};
  };
  bool is_whole = choice.micro_batches == "1" && !choice.options.update_apart;
  std::int64_t count = 1;
  if (!is_whole) {
    AUTOPAR_TRY(batch, batch_of(whole->graph, choice.batch_dim));
    inputs.batch = batch;
    AUTOPAR_TRY(counts, micro_batches_of(choice.micro_batches, batch));
    count = counts.front();
    is_whole = count == 1 && !choice.options.update_apart;
  }
  const auto import_asked = [&]() -> Result<ImportedModel> {
    if (is_whole) return import_training_step(*whole, options.model, import_options);
    AUTOPAR_TRY(split, split_step(options.model, choice, common, *whole, count));
    return import_passes(std::move(split), options, import_options, inputs);
  };
  Result<ImportedModel> imported = ImportedModel();
  AUTOPAR_RETURN_IF_ERROR(
      try_in_parallel(threads_of_search(common), 2, [&](std::size_t i) -> Status {
        if (i == 0) return make_file();
        imported = import_asked();
        return Ok{};
      }));
  if (imported) imported->sha256 = std::move(sha256);
  return imported;
}

// The training step of the model: of one pass, or of as many as are asked for.
Result<ImportedModel> import_step(const PlanOptions& options, const CommonOptions& common,
                                  const ImportOptions& import_options, Inputs& inputs) {
  const auto whole = make_training_step(options.model, options.training, common);
  auto step = import_made_step(whole, options, common, import_options, inputs);
  if (!step || !whole) return step;
  return with_user_ops(std::move(*step), whole->ops_of_user_op);
}

}  // namespace

Result<ImportedModel> import_planned(const PlanOptions& options, const CommonOptions& common,
                                     Inputs& inputs) {
  ImportOptions import_options;
  import_options.updates = options.updates;
  if (options.train) return import_step(options, common, import_options, inputs);
  AUTOPAR_TRY(asked, import_options_of(options.training, common));
  asked.updates = options.updates;
  const TrainingChoice& choice = options.training;
  inputs.planned_batch = {choice.batch, choice.batch_dim, choice.data_inputs};
  if (!options.runs_in_passes()) return import_on_batch(options.model, asked);
  AUTOPAR_TRY(passes, model_in_passes(options.model, choice, common, options.updates));
  inputs.batch = inputs.planned_batch.size = passes.batch;
  inputs.micro_inputs = std::move(passes.inputs);
  inputs.outputs = std::move(passes.outputs);
  if (passes.mixing_op) inputs.mixing_op = "op '" + *passes.mixing_op + "'";
  if (!passes.has_whole_batch) inputs.mixing_op = kNoWholeBatch;
  return std::move(passes.model);
}

}  // namespace autopar
