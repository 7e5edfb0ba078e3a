// A sharded plan's weights in one file again.
#include <algorithm>
#include <filesystem>

#include "autopar/import.hpp"
#include "autopar/step_file.hpp"
#include "weights/rank_files.hpp"
#include "weights/safetensors.hpp"
#include "weights/stores.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

// Writes whole tensors; the file is complete, under its temporary name.
Result<SafetensorsLayout> write_whole(const StoredTensors& tensors, const std::string& path,
                                      UnfinishedFiles& files) {
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) entries.push_back({name, tensor.dtype, tensor.shape});
  AUTOPAR_TRY(layout, layout_safetensors(std::move(entries), {}));
  AUTOPAR_TRY(temporary, add_reserved(files, path, layout.size));
  AUTOPAR_RETURN_IF_ERROR(write_bytes(temporary, 0, layout.head));
  for (const SafetensorsEntry& entry : layout.entries) {
    const StoredTensor& tensor = tensors.at(entry.name);
    AUTOPAR_RETURN_IF_ERROR(check_places(tensor));
    AUTOPAR_RETURN_IF_ERROR(
        cut(tensor, {whole_box(tensor.shape)}, [&](std::size_t, Bytes at, std::string_view bytes) {
          return write_bytes(temporary, entry.offset + at, bytes);
        }));
  }
  return layout;
}

// The merged tensors that are initializers of the model, and what else it keeps beside it. Small
// ones go into the model.
struct ModelWeights {
  StoredTensors beside;
  std::vector<Value> initializers;  // those beside have no data yet
};

// Errors (kInput): the model has none of them.
Result<ModelWeights> weights_of_model(StoredTensors tensors, const std::string& model,
                                      std::vector<std::string>& warnings) {
  AUTOPAR_TRY(initializers, initializers_of(model));
  const std::string folder = fs::path(model).parent_path().string();
  ModelWeights weights;
  std::vector<std::string> kept, left;  // the model's own weights, and those without a place there
  bool has_any = false;
  for (Value& value : initializers) {
    StoredTensor tensor;
    if (auto merged = tensors.extract(value.name)) {
      tensor = std::move(merged.mapped());
      has_any = true;
    } else {
      if (is_floating(value.dtype) && value.bytes() > size_of(value.dtype)) {
        kept.push_back(value.name);
      }
      const auto* external = std::get_if<ExternalData>(&value.data);
      const bool beside =
          external != nullptr && external->location != fs::path(model).filename().string();
      if (!beside) continue;  // what the model itself holds stays there
      AUTOPAR_TRY(stored, stored_in_model({&value}, folder.empty() ? "." : folder));
      tensor = std::move(stored.at(value.name));
    }
    if (tensor.bytes() <= kInlineWeightBytes) {
      AUTOPAR_TRY(data, read_tensor(tensor));
      value.data = std::move(data);
    } else {
      value.data = {};
      weights.beside[value.name] = std::move(tensor);
    }
    weights.initializers.push_back(std::move(value));
  }
  for (const auto& entry : tensors) left.push_back(entry.first);
  if (!has_any && !tensors.empty()) {
    return input_error(model + ": has none of these weights: " + listed(left) +
                       "; try --model with the model that they are of, which has them as "
                       "initializers; where they are its inputs, -o FILE.safetensors takes them");
  }
  if (!kept.empty()) {
    warnings.push_back("as " + model +
                       " has them, since they are not among what is merged: " + listed(kept));
  }
  if (!left.empty()) {
    warnings.push_back("left out, since they are no initializers of the main graph of " + model +
                       " (a .safetensors file takes them): " + listed(left));
  }
  return weights;
}

// Whether there is such a model, with weights in a file of that name beside it.
bool refers_to(const std::string& model, const std::string& name) {
  const auto initializers = initializers_of(model);
  return initializers &&
         std::any_of(initializers->begin(), initializers->end(), [&](const Value& value) {
           const auto* external = std::get_if<ExternalData>(&value.data);
           return external != nullptr && external->location == name;
         });
}

Status merge_into_model(StoredTensors tensors, const std::string& model, const std::string& file,
                        MovedWeights& moved) {
  const fs::path beside = fs::path(file).replace_extension(".safetensors");
  std::error_code ignored;
  if (fs::equivalent(model, file, ignored)) {
    return usage_error(file + ": is the model itself; merge into another file");
  }
  if (fs::exists(beside, ignored) && !refers_to(file, beside.filename().string())) {
    return input_error(beside.string() + ": is there and not of " + file +
                       ", whose weights would lie there, so it is not replaced; move it away, or "
                       "merge into another file");
  }
  AUTOPAR_TRY(weights, weights_of_model(std::move(tensors), model, moved.warnings));
  UnfinishedFiles files;
  AUTOPAR_TRY(layout, write_whole(weights.beside, beside.string(), files));
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : layout.entries) entries[entry.name] = &entry;
  for (Value& value : weights.initializers) {
    if (value.has_data()) continue;
    const SafetensorsEntry& entry = *entries.at(value.name);
    value.data = ExternalData{beside.filename().string(), entry.offset, entry.bytes()};
  }
  AUTOPAR_TRY(temporary, files.add(file));
  AUTOPAR_RETURN_IF_ERROR(write_model_with(model, weights.initializers, temporary));
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  moved.files = {file, beside.string()};
  return Ok{};
}

}  // namespace

namespace {

Result<MovedWeights> merged_into(StoredTensors tensors, const std::string& file,
                                 const std::string& model_path, MovedWeights moved) {
  moved.weights = tensors.size();
  for (const auto& entry : tensors) moved.bytes += entry.second.bytes();
  if (fs::path(file).extension() == ".onnx") {
    AUTOPAR_RETURN_IF_ERROR(merge_into_model(std::move(tensors), model_path, file, moved));
    return moved;
  }
  const std::string beside = fs::path(file).replace_extension(".onnx").string();
  if (refers_to(beside, fs::path(file).filename().string())) {
    return input_error(file + ": holds weights of " + beside +
                       " at places that would change, so it is not replaced; merge into another "
                       "file");
  }
  UnfinishedFiles files;
  AUTOPAR_TRY(layout, write_whole(tensors, file, files));
  static_cast<void>(layout);
  AUTOPAR_RETURN_IF_ERROR(files.keep());
  moved.files = {file};
  return moved;
}

}  // namespace

Result<MovedWeights> merge_weights(const std::string& folder, const std::string& file,
                                   const std::string& model_path) {
  if (is_step_folder(folder)) {
    MovedWeights moved;
    std::optional<FolderPlan> none;
    AUTOPAR_TRY(tensors, stored_in(folder, none, moved.warnings));
    AUTOPAR_RETURN_IF_ERROR(add_frozen(folder, tensors));
    return merged_into(std::move(tensors), file, model_path, std::move(moved));
  }
  AUTOPAR_TRY(plan, read_folder_plan(folder));
  if (!plan.sharded()) {
    return input_error(plan.path +
                       ": its weights are whole: there is nothing to merge (--weights sharded "
                       "writes a file per rank)");
  }
  MovedWeights moved;
  AUTOPAR_TRY(tensors, stored_in_ranks(plan, folder, moved.warnings));
  return merged_into(std::move(tensors), file, model_path, std::move(moved));
}

}  // namespace autopar
