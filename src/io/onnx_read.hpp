// Bytes of a model file -> onnx::ModelProto, for ONNX files and for graph.json.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/ir.hpp"
#include "autopar/support.hpp"

namespace autopar {

// A file mapped into memory, read-only.
class MappedFile {
 public:
  MappedFile(const void* data, std::size_t size) : data_(data), size_(size) {}
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  const void* data_;
  std::size_t size_;
};
// The message says the reason, not the path.
Result<MappedFile> open_file(const std::string& path);

struct ModelFile {
  onnx::ModelProto model;  // ir_version 0: it comes from a graph.json
  // The graph inputs that are fed at every run, where the file tells them from parameters.
  std::optional<std::set<std::string>> data_inputs;
};
// Either format, told apart by the first character.
Result<ModelFile> read_model(std::string_view bytes);
Result<ModelFile> read_onnx(std::string_view bytes);
Result<ModelFile> read_graph_json(std::string_view bytes);

// Lists of ranks that stand in a file once: an op of ai.autopar with `group_ref` is as one with the
// list at that place of this metadata as its `groups`.
inline constexpr const char* kGroupsKey = "autopar.groups";
inline constexpr const char* kGroupRef = "group_ref";

class GroupLists {
 public:
  explicit GroupLists(const onnx::ModelProto& model) : model_(model) {}
  // Of a node with group_ref the list, which all that name it share; an empty `groups` stands in
  // the place of group_ref then. Errors do not name the node.
  Result<std::optional<IntList>> take(onnx::NodeProto& node);

 private:
  Status read();

  const onnx::ModelProto& model_;
  std::optional<std::vector<IntList>> lists_;  // once somebody has named one
};

// Makes `groups` with the whole list of every group_ref, in bodies too. Errors name the node.
Status list_groups_in_place(onnx::ModelProto& model);

}  // namespace autopar
