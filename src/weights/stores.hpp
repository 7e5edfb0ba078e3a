// Where weights are read from: models, safetensors files, the rank folders of a plan.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weights/tensors.hpp"

namespace autopar {

// The first names of a list, as messages have them.
std::string listed(const std::vector<std::string>& names);

// Initializers with data; external data lies below `folder`. Errors: a file that is missing or too
// short.
Result<StoredTensors> stored_in_model(const std::vector<const Value*>& initializers,
                                      const std::string& folder);
// The weights that a program holds, whole. Those that are inline live in `plan`.
Result<StoredTensors> stored_in_program(const Plan& plan, const std::string& folder);
Result<StoredTensors> stored_in_onnx(const std::string& path);
Result<StoredTensors> stored_in_safetensors(const std::string& path);

// The plan of a folder, in the folder itself or in that of rank 0; and its path.
struct FolderPlan {
  PlanFile file;
  std::string path;
  bool sharded() const { return file.metadata.sharded(); }
};
Result<FolderPlan> read_folder_plan(const std::string& folder);

// The slices of all ranks, with all ranks that hold one. `small`: weights that the plan has inline
// live in `plan`, which must outlive what is returned. Warnings: tensors that the plan does not
// know.
Result<StoredTensors> stored_in_ranks(const FolderPlan& plan, const std::string& folder,
                                      std::vector<std::string>& warnings);

// What a plan's folder has, sharded or not; inline weights live in `plan`.
Result<StoredTensors> stored_in_folder(const FolderPlan& plan, const std::string& folder,
                                       std::vector<std::string>& warnings);
// All weights and states of a folder with a plan or a step, a .safetensors, .onnx or .npz file.
// `held`: the plan, where it is the folder of one.
Result<StoredTensors> stored_in(const std::string& from, std::optional<FolderPlan>& held,
                                std::vector<std::string>& warnings);
// Adds what the step of a folder does not train and its programs hold, whole.
Status add_frozen(const std::string& folder, StoredTensors& stored);
// The arrays of an .npz by the inputs that they are for.
std::map<std::string, Tensor> arrays_by_input(std::map<std::string, Tensor> arrays);

}  // namespace autopar
