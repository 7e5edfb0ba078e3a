// Where the external data of a model may lie: below the model's folder, also where links lead, so
// that a model from elsewhere does not have any file of this machine copied beside a plan. As ONNX
// Runtime has it: of a model file that is a link itself (as in the caches of model hubs, whose
// links lead to one folder of data) the folder that it leads to counts as well.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// "." where the path names none.
std::filesystem::path folder_of(const std::filesystem::path& file);
// By its words alone.
bool is_below_folder(const std::string& location);
// By where links lead, for the model at `path`. Files need not exist.
Status check_location(const std::string& location, const std::string& path);
// All initializers' locations of a model, also in its branches and functions. Errors name the
// location, not `path`.
Status check_external_locations(const onnx::ModelProto& model, const std::string& path);

}  // namespace autopar
