// From a forward graph to a training step: loss, backward pass and update as one graph of standard
// ONNX ops.
//
//   TrainingOptions options{.loss = "cross_entropy", .optimizer = Optimizer::kAdamW};
//   Result<TrainingStep> step = training_step(model.graph, options);
//   step->graph        // inputs: data, labels, parameters, states; outputs: loss, new.<name>, ...
//   step->facts        // which of them is what
//
// The backward pass is reverse accumulation: the ops of the forward graph in reverse, each asked
// for its vector-Jacobian product (autopar/gradient.hpp); gradients that reach a value by several
// ways are added. Names of ops, inputs and outputs: docs/training.md.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "autopar/gradient.hpp"

namespace autopar {

enum class Optimizer : std::uint8_t { kNone, kSgd, kMomentum, kAdam, kAdamW };
const char* name_of(Optimizer optimizer);  // "none", "sgd", "momentum", "adam", "adamw"
std::optional<Optimizer> parse_optimizer(const std::string& name);

enum class Precision : std::uint8_t { kFp32, kBf16, kFp16, kMixedBf16, kMixedFp16 };
const char* name_of(Precision precision);  // "fp32", "bf16", "fp16", "mixed-bf16", "mixed-fp16"
std::optional<Precision> parse_precision(const std::string& name);
bool is_mixed(Precision precision);
DType narrow_of(Precision precision);  // what contractions calculate in

struct TrainingOptions {
  // The name of a scalar output; or "cross_entropy[:OUTPUT]", "mse[:OUTPUT]", "sum[:OUTPUT]" of an
  // output of the model, the first one where it is not named. Empty: the model's only output where
  // that is a scalar, or the one called "loss".
  std::string loss;
  Optimizer optimizer = Optimizer::kSgd;
  double learning_rate = 1e-3;  // said in the facts; the step reads it as an input
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, momentum = 0.9;
  std::optional<double> weight_decay;  // not said: 0.01 of adamw, else 0
  // kFp32: the types of the model. kBf16, kFp16: all in 16 bits but the loss, the update and the
  // optimizer's states. Mixed: masters in float32, contractions in 16 bits; fp16 scales the loss.
  Precision precision = Precision::kFp32;
  // Whether ONNX has the op for a type at an opset; ops that it has not calculate in float32.
  // Empty: it has all.
  std::function<bool(const Op& op, std::int64_t opset, DType dtype)> op_takes = {};
  // What gradients are in when they are added up across devices; nothing: as the search likes.
  std::optional<DType> reduce = {};
  double clip_norm = 0;                 // 0: gradients are not clipped
  std::vector<std::string> parameters;  // patterns with `*` and `?`; empty: all that may be
  std::vector<std::string> freeze;      // patterns of what stays as it is
  bool dropout = true;                  // false: dropout is removed
  // Passes of a step: the graph that is given is the model on one micro-batch, gradients are summed
  // in `acc.<parameter>`, and the update is of the whole batch.
  std::int64_t micro_batches = 1;
  // Whether that is so of one pass too: what runs in stages updates when its passes have ended.
  bool update_apart = false;
  bool accumulates() const { return micro_batches > 1 || update_apart; }
  // Gradients of the loss as it is told, averaged over the batch. False: summed over what a loss
  // that is added is averaged over, and over the micro-batches.
  bool mean_gradients = true;
  // Of a step of one pass: as many passes as this would give the same. The gradients of a loss that
  // is the model's own, where they are summed, are so many times those of the whole batch.
  std::int64_t stands_for_passes = 1;
};

// How the losses that the passes tell become the step's.
enum class LossCombining : std::uint8_t {
  kMean,
  kSum,
  kLast,  // the update tells it
};
const char* name_of(LossCombining combining);  // "mean", "sum", "last"

// What the forward pass of a step multiplies and adds.
struct ForwardWork {
  double samples = 0;  // in all passes: dimension 0 of the first data input
  double tokens = 0;   // elements of the labels, or of the first integer data input,
                       // where they have a second dimension; else 0
  std::map<DType, Flops> contractions;  // by the type they calculate in
};

// What the inputs of a step are, by name, in the order of the graph's inputs.
struct TrainingFacts {
  ForwardWork forward;
  std::string loss;  // the output
  std::vector<std::string> data, parameters, states, statistics;
  std::vector<std::string> frozen;     // would be parameters, were they not left out by an option
  std::vector<std::string> unreached;  // would be parameters, but no gradient reaches them
  std::vector<std::string> accumulators = {};  // with several passes: "acc.<parameter>", ...
  LossCombining loss_combining = LossCombining::kMean;
};

struct TrainingStep {
  Graph graph;
  TrainingOptions options;
  TrainingFacts facts;
  std::vector<std::string> warnings;
  // Of each op of the file that the forward graph was read from, the ops that it became there.
  std::map<std::string, std::vector<std::string>> ops_of_user_op = {};
};

// Errors (kInput, kUsage): a loss that is no output, no scalar, or that no parameter reaches; an op
// on the way without a gradient, with that way; a pattern that matches nothing; a name that the
// step needs and the model has; ScatterND before opset 16.
Result<TrainingStep> training_step(Graph forward, const TrainingOptions& options);

// The reverse walk alone: appends the gradients of `loss` by the values `wanted` to `to`'s graph.
// `seeds` are values on the way and their gradients, such as the loss itself and 1. Returns one per
// wanted value, of its shape and type; invalid where the gradient is zero. Errors as above.
struct Seed {
  ValueId value;
  ValueId grad;
};
Result<std::vector<ValueId>> backward(GraphBuilder& to, std::size_t forward_ops,
                                      const std::vector<Seed>& seeds,
                                      const std::vector<ValueId>& wanted);

}  // namespace autopar
