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
  std::string why_no_whole;  // the model cannot be had with that; empty: it can
  bool has_whole_batch() const { return why_no_whole.empty(); }
  std::vector<MicroInput> inputs;
  std::vector<StepOutput> outputs;       // all of the model's
  std::optional<std::string> mixing_op;  // see batch_mixing_op()
};

// The model on so many parts of its batch as TrainingChoice::micro_batches says (of `auto`: one).
// Each output is put together along the dimension that grows with the batch, or is that of the last
// micro-batch where it depends on no data that is cut. Errors (kUsage): a number that does not
// divide the batch, no input with a batch, an input whose next value is an output by the pattern
// `updates`; (kInput): of importing it, an output of all samples together.
Result<ModelPasses> model_in_passes(const std::string& model, const TrainingChoice& choice,
                                    const CommonOptions& common, const std::string& updates);

}  // namespace autopar
