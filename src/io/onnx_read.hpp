// Bytes of a model file -> onnx::ModelProto, for ONNX files and for graph.json.
#pragma once

#include <onnx/onnx_pb.h>

#include <cstddef>
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

// Either format, told apart by the first character. ir_version is 0 for graph.json.
Result<onnx::ModelProto> read_model(std::string_view bytes);
Result<onnx::ModelProto> read_onnx(std::string_view bytes);
Result<onnx::ModelProto> read_graph_json(std::string_view bytes);

}  // namespace autopar
