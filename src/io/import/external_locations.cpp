#include "io/import/external_locations.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace autopar {
namespace {

namespace fs = std::filesystem;

void collect(const onnx::TensorProto& tensor, std::set<std::string>& locations) {
  if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") locations.insert(entry.value());
  }
}

void collect(const onnx::GraphProto& graph, std::set<std::string>& locations);

template <class Nodes>
void collect_of(const Nodes& nodes, std::set<std::string>& locations) {
  for (const onnx::NodeProto& node : nodes) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) collect(attribute.t(), locations);
      for (const auto& tensor : attribute.tensors()) collect(tensor, locations);
      if (attribute.has_g()) collect(attribute.g(), locations);
      for (const auto& graph : attribute.graphs()) collect(graph, locations);
    }
  }
}

void collect(const onnx::GraphProto& graph, std::set<std::string>& locations) {
  for (const auto& tensor : graph.initializer()) collect(tensor, locations);
  collect_of(graph.node(), locations);
}

bool is_within(const fs::path& file, const fs::path& folder) {
  const auto [rest, other] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return rest == folder.end();
}

}  // namespace

fs::path folder_of(const fs::path& file) {
  const fs::path folder = file.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

bool is_below_folder(const std::string& location) {
  const fs::path path(location);
  return path.has_filename() && path.filename() != "." && !path.is_absolute() &&
         location.find('\0') == std::string::npos &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

Status check_location(const std::string& location, const std::string& path) {
  if (!is_below_folder(location)) {
    return input_error("external data location '" + location +
                       "' is not a path below the model's folder");
  }
  std::error_code failed;
  const fs::path file = fs::weakly_canonical(folder_of(path) / location, failed);
  if (failed) return input_error("external data location '" + location + "': " + failed.message());
  const fs::path folder = fs::weakly_canonical(folder_of(path), failed);
  if (!failed && is_within(file, folder)) return Ok{};
  const fs::path real_folder = folder_of(fs::weakly_canonical(path, failed));
  if (!failed && is_within(file, real_folder)) return Ok{};
  return input_error("external data location '" + location + "' is a link to " + file.string() +
                     ", outside the model's folder; put a copy of that file in the link's place");
}

Status check_external_locations(const onnx::ModelProto& model, const std::string& path) {
  std::set<std::string> locations;
  collect(model.graph(), locations);
  for (const auto& function : model.functions()) collect_of(function.node(), locations);
  for (const std::string& location : locations) {
    AUTOPAR_RETURN_IF_ERROR(check_location(location, path));
  }
  return Ok{};
}

}  // namespace autopar
