// From the files of one plan, or of none, to the rank folders of another.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "weights/rank_files.hpp"
#include "weights/stores.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 6;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) {
    text += (i == 0 ? "'" : ", '") + names[i] + "'";
  }
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

// What a plan's folder has; inline weights live in `plan`.
Result<StoredTensors> stored_in_folder(const FolderPlan& plan, const std::string& folder,
                                       std::vector<std::string>& warnings) {
  if (plan.sharded()) return stored_in_ranks(plan, folder, warnings);
  AUTOPAR_TRY(tensors, stored_in_onnx(plan.path));
  if (plan.file.metadata.weights.empty()) return std::move(tensors);
  StoredTensors weights;  // its other initializers are constants of the program
  for (const BoundaryValue& weight : plan.file.metadata.weights_io) {
    const auto found = tensors.find(weight.name);
    if (found != tensors.end()) weights.insert(*found);
  }
  return weights;
}

// `held`: the plan, where `from` is the folder of one.
Result<StoredTensors> stored_in(const std::string& from, std::optional<FolderPlan>& held,
                                std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (fs::is_directory(from, ignored)) {
    AUTOPAR_TRY(plan, read_folder_plan(from));
    held.emplace(std::move(plan));
    return stored_in_folder(*held, from, warnings);
  }
  const std::string extension = fs::path(from).extension().string();
  if (extension == ".safetensors") return stored_in_safetensors(from);
  if (extension == ".onnx") return stored_in_onnx(from);
  return input_error(from + ": expected a folder with a plan, a .safetensors or an .onnx file");
}

Status check_same(const BoundaryValue& wanted, const StoredTensor& found, const std::string& from) {
  if (found.dtype == wanted.dtype && found.shape == wanted.shape) return Ok{};
  return input_error(from + ": weight '" + wanted.name + "' is " + name_of(found.dtype) +
                     to_text(found.shape) + ", the plan expects " + name_of(wanted.dtype) +
                     to_text(wanted.shape));
}

// A plan that does not say which of its initializers are weights: those that `from` has are, and
// those that lie outside of it.
void name_weights(PlanFile& plan, const StoredTensors& stored) {
  if (!plan.metadata.weights.empty()) return;
  for (Value& value : plan.plan.program.values) {
    if (value.has_data() && stored.count(value.name) != 0) value.kind = ValueKind::kParameter;
  }
}

// Integers, flags and single numbers in a model describe shapes, axes and masks; the import makes
// constants of them.
bool may_be_constant(const StoredTensor& tensor) {
  return tensor.shape.empty() || tensor.dtype == DType::kInt64 || tensor.dtype == DType::kInt32 ||
         tensor.dtype == DType::kBool;
}

// What the plan has: weights, then the graph inputs that `from` has.
struct Wanted {
  std::vector<BoundaryValue> inputs;
  std::vector<std::string> missing;
};

Result<Wanted> match(const ShardedProgram& program, const StoredTensors& stored,
                     const std::string& from, MovedWeights& moved) {
  Wanted wanted;
  std::size_t used = 0;
  for (const BoundaryValue& weight : program.weights) {
    const auto found = stored.find(weight.name);
    if (found == stored.end()) {
      wanted.missing.push_back(weight.name);
      continue;
    }
    AUTOPAR_RETURN_IF_ERROR(check_same(weight, found->second, from));
    moved.bytes += found->second.bytes();
    ++used;
  }
  std::vector<std::string> fed;
  for (const BoundaryValue& input : program.plan.inputs) {
    const auto found = stored.find(input.name);
    if (found == stored.end()) {
      fed.push_back(input.name);
      continue;
    }
    AUTOPAR_RETURN_IF_ERROR(check_same(input, found->second, from));
    moved.bytes += found->second.bytes();
    wanted.inputs.push_back(input);
    ++used;
  }
  moved.weights = used;
  if (!wanted.inputs.empty() && !fed.empty()) {
    moved.warnings.push_back(from + " has nothing for these inputs of the plan: " + listed(fed));
  }
  if (used == stored.size()) return wanted;
  std::vector<std::string> left;
  const bool is_model = fs::path(from).extension() == ".onnx";
  for (const auto& entry : stored) {
    if (is_model && may_be_constant(entry.second)) continue;
    const auto same = [&](const BoundaryValue& value) { return value.name == entry.first; };
    if (std::none_of(program.weights.begin(), program.weights.end(), same) &&
        std::none_of(wanted.inputs.begin(), wanted.inputs.end(), same)) {
      left.push_back(entry.first);
    }
  }
  if (!left.empty()) {
    moved.warnings.push_back("left out, since the plan does not have them: " + listed(left));
  }
  return wanted;
}

}  // namespace

Result<MovedWeights> reshard_weights(const std::string& from, const std::string& to,
                                     const std::string& folder, bool keep_missing) {
  MovedWeights moved;
  std::optional<FolderPlan> held;
  AUTOPAR_TRY(stored, stored_in(from, held, moved.warnings));
  AUTOPAR_TRY(plan, read_folder_plan(to));
  std::error_code ignored;
  if (held && fs::equivalent(from, folder, ignored) && !fs::equivalent(from, to, ignored)) {
    return usage_error(folder + ": is where the weights come from; write them to another folder");
  }
  name_weights(plan.file, stored);
  ShardedProgram program =
      shard_program(plan.file.plan,
                    plan.sharded() ? plan.file.metadata.weights_io : std::vector<BoundaryValue>());
  AUTOPAR_TRY(wanted, match(program, stored, from, moved));
  if (!wanted.missing.empty()) {
    if (!keep_missing) {
      return input_error(from + ": lacks weights of " + plan.path + ": " + listed(wanted.missing) +
                         "; --keep-missing leaves them as they are there");
    }
    AUTOPAR_TRY(own, stored_in_folder(plan, to, moved.warnings));
    for (const std::string& name : wanted.missing) {
      const auto found = own.find(name);
      if (found == own.end()) return input_error(to + ": has no weight '" + name + "' either");
      stored.insert(*found);
    }
    moved.warnings.push_back("kept as they are in " + to + ", since " + from +
                             " does not have them: " + listed(wanted.missing));
  }
  UnfinishedFiles files;
  AUTOPAR_TRY(written, write_rank_folders(std::move(program), wanted.inputs, plan.file.metadata,
                                          stored, folder, files));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  moved.files = std::move(written.files);
  moved.warnings.insert(moved.warnings.end(), written.warnings.begin(), written.warnings.end());
  return moved;
}

}  // namespace autopar
