// A model that is not trained, run in parts of its batch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/import.hpp"
#include "autopar/step.hpp"
#include "planning/training_choice.hpp"

namespace autopar {

struct ModelPasses {
  ImportedModel model;  // on one micro-batch; its graph says how many there are
  std::int64_t batch = 0;
  bool has_whole_batch = true;  // the model can be had with that
  std::vector<MicroInput> inputs;
  std::vector<StepOutput> outputs;  // all of the model's
  // Why passes are not a pass over the whole batch: an op (see batch_mixing_op()), or one that is
  // another one in the model on the whole batch.
  std::optional<std::string> mixing_op;
};

// The model on so many parts of its batch as TrainingChoice::micro_batches says (of `auto`: one).
// Each output is put together along the dimension that grows with the batch, or is that of the last
// micro-batch where it depends on no data that is cut. Errors (kUsage): a number that does not
// divide the batch, no input with a batch, an input whose next value is an output by the pattern
// `updates`; (kInput): of importing it, an output of all samples together, or in which they are not
// the outermost of what runs along a dimension.
Result<ModelPasses> model_in_passes(const std::string& model, const TrainingChoice& choice,
                                    const CommonOptions& common, const std::string& updates);

}  // namespace autopar
