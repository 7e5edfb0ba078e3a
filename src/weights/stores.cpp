#include "weights/stores.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "autopar/import.hpp"
#include "autopar/npz.hpp"
#include "autopar/training_roles.hpp"
#include "weights/safetensors.hpp"
#include "weights/sharded_program.hpp"
#include "weights/step_weights.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

Status check_length(const ExternalData& data, const Value& value, const std::string& path) {
  std::error_code failed;
  const auto size = fs::file_size(path, failed);
  const std::string where = path + ": holds weight '" + value.name + "', but ";
  if (failed) return input_error(where + "cannot be read: " + failed.message());
  if (data.offset + value.bytes() <= static_cast<Bytes>(size)) return Ok{};
  return input_error(where + "ends at byte " + std::to_string(size) + ", expected " +
                     std::to_string(data.offset + value.bytes()) + " bytes");
}

StoredTensor whole_tensor(const Value& value, Place place) {
  return {value.name, value.dtype, value.shape, {{whole_box(value.shape), {std::move(place)}}}};
}

}  // namespace

Result<StoredTensors> stored_in_model(const std::vector<const Value*>& initializers,
                                      const std::string& folder) {
  StoredTensors tensors;
  for (const Value* initializer : initializers) {
    const Value& value = *initializer;
    if (const Tensor* tensor = value.tensor()) {
      tensors[value.name] = whole_tensor(value, {.path = "", .memory = tensor->bytes.data()});
    } else if (const auto* external = std::get_if<ExternalData>(&value.data)) {
      const std::string path = (fs::path(folder) / external->location).string();
      AUTOPAR_RETURN_IF_ERROR(check_length(*external, value, path));
      tensors[value.name] = whole_tensor(value, {.path = path, .offset = external->offset});
    }
  }
  return tensors;
}

Result<StoredTensors> stored_in_program(const Plan& plan, const std::string& folder) {
  std::vector<const Value*> values;
  for (const CutWeight& weight : cut_weights(plan)) {
    values.push_back(&plan.program.value(weight.initializer));
  }
  return stored_in_model(values, folder);
}

Result<StoredTensors> stored_in_onnx(const std::string& path) {
  AUTOPAR_TRY(initializers, initializers_of(path));
  const std::string folder = fs::path(path).parent_path().string();
  std::vector<const Value*> values;
  for (const Value& value : initializers) values.push_back(&value);
  AUTOPAR_TRY(tensors, stored_in_model(values, folder.empty() ? "." : folder));
  // Typed data is in memory here, which ends with this function; it is small or old.
  for (const Value& value : initializers) {
    if (value.tensor() == nullptr) continue;
    StoredTensor& tensor = tensors[value.name];
    tensor.held = std::make_shared<const std::string>(value.tensor()->bytes);
    tensor.pieces[0].places[0].memory = tensor.held->data();
  }
  return tensors;
}

Result<StoredTensors> stored_in_safetensors(const std::string& path) {
  AUTOPAR_TRY(file, read_safetensors(path));
  StoredTensors tensors;
  for (const SafetensorsEntry& entry : file.entries) {
    tensors[entry.name] = {entry.name,
                           entry.dtype,
                           entry.shape,
                           {{whole_box(entry.shape), {{.path = path, .offset = entry.offset}}}}};
  }
  return tensors;
}

Result<FolderPlan> read_folder_plan(const std::string& folder) {
  fs::path path = fs::path(folder) / "plan.onnx";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    const fs::path of_rank = fs::path(folder) / rank_folder(0) / "plan.onnx";
    if (!fs::exists(of_rank, ignored)) {
      return input_error(folder + ": has no plan.onnx; expected a folder that search, apply or " +
                         "reshard-weights wrote");
    }
    path = of_rank;
  }
  AUTOPAR_TRY(file, read_plan(path.string()));
  if (!file.metadata.ranks.empty()) {
    return input_error(path.string() + ": is one of several programs, whose weights stay whole");
  }
  return FolderPlan{std::move(file), path.string()};
}

namespace {

// All ranks' files of a folder, rank by rank.
class RankStore {
 public:
  RankStore(const FolderPlan& plan, const std::string& folder) : plan_(plan), folder_(folder) {
    for (const BoundaryValue& weight : plan.file.metadata.weights_io)
      layouts_[weight.name] = &weight;
    for (const auto* boundary : {&plan.file.plan.inputs, &plan.file.plan.outputs}) {
      for (const BoundaryValue& value : *boundary) layouts_.emplace(value.name, &value);
    }
  }

  Status add(std::int64_t rank, std::vector<std::string>& warnings) {
    const std::string path = weights_file(folder_, rank);
    AUTOPAR_TRY(file, read_safetensors(path));
    std::size_t known = 0;
    for (const SafetensorsEntry& entry : file.entries) {
      const auto layout = layouts_.find(entry.name);
      if (layout == layouts_.end()) {
        if (rank == 0) {
          warnings.push_back(path + ": tensor '" + entry.name +
                             "' is left out: the plan does not say how it lies");
        }
        continue;
      }
      ++known;
      AUTOPAR_RETURN_IF_ERROR(add(rank, path, entry, *layout->second));
    }
    if (rank == 0) expected_ = known;
    if (known == expected_) return Ok{};
    return input_error(path + ": holds " + std::to_string(known) + " tensors of the plan, rank 0 " +
                       std::to_string(expected_));
  }
  StoredTensors take() {
    for (auto& entry : tensors_) {
      auto& pieces = entry.second.pieces;
      std::sort(pieces.begin(), pieces.end(),
                [](const Piece& a, const Piece& b) { return a.box < b.box; });
    }
    return std::move(tensors_);
  }

 private:
  Status add(std::int64_t rank, const std::string& path, const SafetensorsEntry& entry,
             const BoundaryValue& layout) {
    const Box box = box_of(layout, plan_.file.plan.mesh, rank);
    if (entry.dtype != layout.dtype || entry.shape != box.extent) {
      return input_error(path + ": tensor '" + entry.name + "' is " +
                         type_text(entry.dtype, entry.shape) + ", by " + plan_.path + " expected " +
                         type_text(layout.dtype, box.extent));
    }
    StoredTensor& tensor = tensors_[entry.name];
    if (tensor.pieces.empty()) tensor = {entry.name, layout.dtype, layout.shape, {}};
    auto [at, added] = pieces_[entry.name].try_emplace(box, tensor.pieces.size());
    if (added) tensor.pieces.push_back({box, {}});
    tensor.pieces[at->second].places.push_back(
        {.path = path, .offset = entry.offset, .rank = rank});
    return Ok{};
  }

  const FolderPlan& plan_;
  const std::string folder_;
  std::unordered_map<std::string, const BoundaryValue*> layouts_;
  std::unordered_map<std::string, std::map<Box, std::size_t>> pieces_;
  StoredTensors tensors_;
  std::size_t expected_ = 0;
};

}  // namespace

std::string listed(const std::vector<std::string>& names) { return first_names(names, 6); }

Result<StoredTensors> stored_in_ranks(const FolderPlan& plan, const std::string& folder,
                                      std::vector<std::string>& warnings) {
  RankStore store(plan, folder);
  for (std::int64_t rank = 0; rank < plan.file.world_size; ++rank) {
    AUTOPAR_RETURN_IF_ERROR(store.add(rank, warnings));
  }
  StoredTensors tensors = store.take();
  // The plan itself has those that are small, or empty.
  std::unordered_map<std::string, const Value*> values;
  for (const Value& value : plan.file.plan.program.values) values[value.name] = &value;
  for (const BoundaryValue& weight : plan.file.metadata.weights_io) {
    if (tensors.count(weight.name) != 0) continue;
    const auto found = values.find(weight.name);
    const Tensor* tensor = found == values.end() ? nullptr : found->second->tensor();
    if (tensor == nullptr) {
      return input_error(weights_file(folder, 0) + ": weight '" + weight.name +
                         "' of the plan is missing");
    }
    tensors[weight.name] = {weight.name,
                            weight.dtype,
                            weight.shape,
                            {{whole_box(weight.shape), {{.memory = tensor->bytes.data()}}}}};
  }
  return tensors;
}

Status add_frozen(const std::string& folder, StoredTensors& stored) {
  AUTOPAR_TRY(step, read_step_folder(folder));
  for (const PlanFile& file : step.files) {
    if (file.metadata.weights_io.empty()) continue;
    AUTOPAR_TRY(tensors, stored_in_onnx(file.path));
    for (const BoundaryValue& weight : file.metadata.weights_io) {
      const auto found = tensors.find(weight.name);
      if (found != tensors.end()) stored.insert(*found);
    }
  }
  return Ok{};
}

std::map<std::string, Tensor> arrays_by_input(std::map<std::string, Tensor> arrays) {
  std::map<std::string, Tensor> inputs;
  for (const std::string prefix : {"", "in.", "out.new."}) {
    for (auto& [name, tensor] : arrays) {
      if (prefix.empty() && (name.rfind("in.", 0) == 0 || name.rfind("out.", 0) == 0)) continue;
      if (name.rfind(prefix, 0) != 0) continue;
      inputs.try_emplace(name.substr(prefix.size()), std::move(tensor));
    }
  }
  return inputs;
}

namespace {

Result<StoredTensors> stored_in_npz(const std::string& path) {
  AUTOPAR_TRY(arrays, read_npz(path));
  StoredTensors tensors;
  for (auto& [name, array] : arrays_by_input(std::move(arrays))) {
    auto held = std::make_shared<const std::string>(array.bytes);
    tensors[name] = {name,
                     array.dtype,
                     array.shape,
                     {{whole_box(array.shape), {{.memory = held->data()}}}},
                     held};
  }
  return tensors;
}

}  // namespace

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

Result<StoredTensors> stored_in(const std::string& from, std::optional<FolderPlan>& held,
                                std::vector<std::string>& warnings) {
  std::error_code ignored;
  if (is_step_folder(from)) {
    if (!has_rank_files(from)) {
      return input_error(from + ": has no files of ranks (rank00000/" + kWeightsFile +
                         "); `autopar reshard-weights --to " + from + "` writes them");
    }
    AUTOPAR_TRY(step, read_step_folder(from));
    return stored_in_step(step.layout, from);
  }
  if (fs::is_directory(from, ignored)) {
    AUTOPAR_TRY(plan, read_folder_plan(from));
    held.emplace(std::move(plan));
    return stored_in_folder(*held, from, warnings);
  }
  const std::string extension = fs::path(from).extension().string();
  if (extension == ".safetensors") return stored_in_safetensors(from);
  if (extension == ".onnx") return stored_in_onnx(from);
  if (extension == ".npz") return stored_in_npz(from);
  return input_error(from +
                     ": expected a folder with a plan, a .safetensors, an .onnx or an .npz file");
}

}  // namespace autopar
