// Bytes of a model file -> onnx::ModelProto, for ONNX files and for graph.json.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>

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

}  // namespace autopar
