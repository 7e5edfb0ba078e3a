// Options of everything that makes a training step.
#pragma once

#include "autopar/files.hpp"
#include "autopar/grad.hpp"
#include "autopar/import.hpp"
#include "autopar/step.hpp"
#include "planning/common_options.hpp"

namespace autopar {

struct TrainingChoice {
  TrainingOptions options;
  std::string optimizer = "sgd";
  std::string precision = "fp32";
  std::string reduce_precision = "auto";
  std::string dropout = "on";
  std::string betas;
  std::string weights_from;
  std::vector<std::string> data_inputs;
  std::int64_t batch = 0;
  std::int64_t whole_batch = 0;  // where `batch` is that of one pass of several
  std::size_t batch_dim = 0;
  // One pass, too, may be on a batch that the model's constants do not say: what was planned of
  // several numbers of passes may be one.
  bool follows_batch = false;
  std::string micro_batches = "1";  // of `search`: a number, or auto
  std::int64_t copies = 1;          // of its passes, interleaved
  std::int64_t least_opset = 16;    // since when what is scattered can be added up
  std::string gradients = "mean";
};
// What was chosen; errors say what was expected. Precondition: `optimizer` and `precision` are such
// as parse_optimizer() and parse_precision() know.
Result<TrainingOptions> training_options_of(const TrainingChoice& choice);

// "name,other" or several options.
std::vector<std::string> split_list(const std::vector<std::string>& texts);

// Dimensions, batch and data inputs that the options say. Errors (kUsage): of --dim.
Result<ImportOptions> import_options_of(const TrainingChoice& choice, const CommonOptions& common);
// A model on the batch that the options say. Errors as of import_model(); a constant of the file's
// own batch that shape inference lets pass.
Result<ImportedModel> import_on_batch(const std::string& model, const ImportOptions& options);

// The forward model on the batch that the choice says. Where passes are asked for, constants of the
// file's own batch are said anew (rebatch()). Errors: as of import_on_batch() and rebatch().
Result<ImportedModel> import_forward(const std::string& model, const TrainingChoice& choice,
                                     const CommonOptions& common);

// The step of a forward model, with what was found told on stderr.
Result<TrainingStep> make_training_step(const std::string& model, const TrainingChoice& choice,
                                        const CommonOptions& common);

// Whether --copies and --micro-batches go together.
Status check_copies(const TrainingChoice& choice);
// Extent of the batch dimension of the first data input that has one. Errors (kUsage): none has.
Result<std::int64_t> batch_of(const Graph& graph, std::size_t batch_dim);
// Numbers of passes that --micro-batches auto leaves out, since the model cannot be had with them;
// each reason is told once.
class LeftOutPasses {
 public:
  void tell(std::int64_t passes, const Error& why);

 private:
  std::string told_;
};

// What --micro-batches asks for: one number, or for `auto` all that divide the batch.
Result<std::vector<std::int64_t>> micro_batches_of(const std::string& option, std::int64_t batch);

// Of inputs that are data the dimensions in which `part` has one of so many parts of `whole`.
// Errors (kUsage): other sizes.
Result<std::vector<MicroInput>> cut_inputs(const Graph& whole, const Graph& part,
                                           const std::vector<std::string>& data,
                                           std::int64_t micro_batches);
// What mixes samples of a batch that is run in parts; nothing: nothing does. Errors: of rules.
Result<std::optional<std::string>> mixing_op_of(const ImportedModel& pass, const std::string& model,
                                                const TrainingChoice& choice,
                                                const CommonOptions& common,
                                                std::int64_t micro_batches);

// The step of so many passes that is `whole` on the whole batch; and which dimension of each data
// input is cut.
struct SplitStep {
  TrainingStep step;
  std::vector<MicroInput> inputs;
  std::optional<std::string> mixing_op;  // see batch_mixing_op()
};
// The same where there is no step on the whole batch: all data inputs are cut along the batch.
Result<SplitStep> split_passes(const std::string& model, const TrainingChoice& choice,
                               const CommonOptions& common, std::int64_t micro_batches);
Result<SplitStep> split_step(const std::string& model, const TrainingChoice& choice,
                             const CommonOptions& common, const TrainingStep& whole,
                             std::int64_t micro_batches);

// What the file's training step was made with.
Result<TrainingChoice> training_choice_of(const StrategyFile& file);
// The same of a choice, with the batch: what strategy.json says of the step.
std::string training_text(const TrainingStep& step, const TrainingChoice& choice);

// Counts and, with -v, names of what the step's inputs are.
void tell_of_training(const TrainingStep& step);

}  // namespace autopar
