// Weights and optimizer states that somebody gives in a file, for a training step to start from.
//
//   AUTOPAR_TRY(weights, GivenWeights::open("weights.safetensors"));
//   AUTOPAR_RETURN_IF_ERROR(check_fit(weights, step_inputs, roles, "train.onnx"));
//   weights.read("fc1.weight")     // nothing where the file does not have it
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/training_roles.hpp"

namespace autopar {

// .safetensors; .onnx, whose initializers count; .npz, whose array for X is called X, in.X, or
// out.new.X as `run --save` calls the next values (the first of them that is there).
class GivenWeights {
 public:
  // Reads no tensor of .safetensors and .onnx. Errors: another kind of file, one that is damaged.
  static Result<GivenWeights> open(const std::string& path);

  const std::string& path() const { return path_; }
  // .onnx: it also holds constants, which are no state of anything.
  bool is_model() const { return is_model_; }
  // What is there, by the name of the input that it is for.
  const std::map<std::string, TensorType>& types() const { return types_; }
  Result<std::optional<Tensor>> read(const std::string& name) const;

 private:
  struct Contents;
  std::string path_;
  bool is_model_ = false;
  std::map<std::string, TensorType> types_;
  std::shared_ptr<const Contents> contents_;
};

// Whether the file is for this step: it has every parameter and running statistic, all states (but
// learning_rate and 16-bit copies, which follow from the rest) or none, nothing that the step does
// not know (a model's file may), all of the right shape and type. The error names what differs.
// `step`: its inputs by name; `where`: its file. False: the file has no states.
Result<bool> check_fit(const GivenWeights& given, const std::map<std::string, TensorType>& step,
                       const TrainingRoles& roles, const std::string& where);

}  // namespace autopar
