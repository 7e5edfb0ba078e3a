#include "autopar/given_weights.hpp"

#include <algorithm>
#include <filesystem>

#include "autopar/npz.hpp"
#include "weights/stores.hpp"

namespace autopar {

struct GivenWeights::Contents {
  StoredTensors stored;
  std::optional<FolderPlan> plan;        // in which small weights live
  std::map<std::string, Tensor> arrays;  // of .npz
};

namespace {

constexpr std::size_t kListedNames = 5;

}  // namespace

Result<GivenWeights> GivenWeights::open(const std::string& path) {
  GivenWeights given;
  given.path_ = path;
  given.is_model_ = std::filesystem::path(path).extension() == ".onnx";
  auto contents = std::make_shared<Contents>();
  const std::string kind = std::filesystem::path(path).extension().string();
  if (kind == ".npz") {
    AUTOPAR_TRY(arrays, read_npz(path));
    contents->arrays = arrays_by_input(std::move(arrays));
    for (const auto& [name, tensor] : contents->arrays) {
      given.types_[name] = {tensor.dtype, tensor.shape};
    }
  } else if (kind == ".safetensors" || kind == ".onnx" || std::filesystem::is_directory(path)) {
    std::vector<std::string> ignored;
    AUTOPAR_TRY(stored, stored_in(path, contents->plan, ignored));
    contents->stored = std::move(stored);
    for (const auto& [name, tensor] : contents->stored) {
      given.types_[name] = {tensor.dtype, tensor.shape};
    }
  } else {
    return usage_error("--weights-from " + path +
                       ": expected a file .npz, .safetensors or .onnx, "
                       "or a folder with files of ranks");
  }
  given.contents_ = std::move(contents);
  return given;
}

Result<std::optional<Tensor>> GivenWeights::read(const std::string& name) const {
  if (const auto array = contents_->arrays.find(name); array != contents_->arrays.end()) {
    return std::optional(array->second);
  }
  const auto stored = contents_->stored.find(name);
  if (stored == contents_->stored.end()) return std::optional<Tensor>();
  AUTOPAR_TRY(tensor, read_tensor(stored->second));
  return std::optional(std::move(tensor));
}

Result<bool> check_fit(const GivenWeights& given, const std::map<std::string, TensorType>& step,
                       const TrainingRoles& roles, const std::string& where) {
  std::vector<std::string> unknown, missing, differing, missing_states;
  bool has_states = false;
  for (const auto& [name, type] : given.types()) {
    const auto input = step.find(name);
    has_states = has_states || (has_name(roles.states, name) && !roles.follows(name));
    if (input == step.end()) {
      const bool known = has_name(roles.frozen, name) || has_name(roles.unreached, name);
      if (!known && !given.is_model()) unknown.push_back(name);
    } else if (type != input->second && !has_name(roles.data, name)) {
      differing.push_back("'" + name + "' is " + to_text(type) + " and not " +
                          to_text(input->second));
    }
  }
  for (const auto* names : {&roles.parameters, &roles.statistics, &roles.states}) {
    for (const std::string& name : *names) {
      if (given.types().count(name) != 0 || roles.follows(name)) continue;
      (names == &roles.states ? missing_states : missing).push_back(name);
    }
  }
  if (has_states) missing.insert(missing.end(), missing_states.begin(), missing_states.end());
  std::string text;
  const auto tell = [&](const std::string& told) { text += (text.empty() ? "" : "; ") + told; };
  if (!missing.empty()) tell("the file lacks " + first_names(missing, kListedNames));
  if (!unknown.empty()) tell("the step has no " + first_names(unknown, kListedNames));
  for (std::size_t i = 0; i < std::min(differing.size(), kListedNames); ++i) tell(differing[i]);
  if (text.empty()) return has_states || missing_states.empty();
  return input_error(
      given.path() + ": does not fit the training step " + where +
      (roles.optimizer.empty() ? "" : " (" + roles.optimizer + ", " + roles.precision + ")") +
      ": " + text +
      "; is it the state of another optimizer, precision or list of parameters? "
      "--optimizer, --precision, --parameters and --freeze make another step");
}

}  // namespace autopar
