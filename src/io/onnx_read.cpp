#include "io/onnx_read.hpp"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <limits>
#include <sstream>
#include <utility>

#include "autopar/errors.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kOldestIr = 3;
constexpr std::int64_t kNewestIr = 13;

std::set<std::string> split_names(const std::string& text) {
  std::set<std::string> names;
  std::stringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) {
    const auto begin = name.find_first_not_of(" \t");
    const auto end = name.find_last_not_of(" \t");
    if (begin != std::string::npos) names.insert(name.substr(begin, end - begin + 1));
  }
  return names;
}

}  // namespace

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_) munmap(const_cast<void*>(data_), size_);
}

Result<MappedFile> open_file(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return system_error("cannot be opened", errno);
  struct stat status = {};
  const bool known = fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode) || status.st_size == 0) {
    close(descriptor);
    return input_error(known && S_ISREG(status.st_mode) ? "is empty" : "is not a regular file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  close(descriptor);
  if (data == MAP_FAILED) return system_error("cannot be read", error);
  return MappedFile(data, size);
}

Result<ModelFile> read_model(std::string_view bytes) {
  const auto first = bytes.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && bytes[first] == '{';
  return is_json ? read_graph_json(bytes) : read_onnx(bytes);
}

Result<ModelFile> read_onnx(std::string_view bytes) {
  if (bytes.size() > std::numeric_limits<int>::max()) {
    return input_error(
        "is larger than 2 GiB, which an ONNX file cannot be; expected large weights "
        "as external data (onnx.save_model with save_as_external_data)");
  }
  // protobuf reports what it could not parse to stderr otherwise.
  const google::protobuf::LogSilencer silencer;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  ModelFile file;
  onnx::ModelProto& model = file.model;
  if (!model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return input_error("is neither an ONNX model nor a graph.json, or it is damaged or cut off");
  }
  if (!model.has_graph() || model.ir_version() < kOldestIr || model.ir_version() > kNewestIr) {
    return input_error("has ONNX IR version " + std::to_string(model.ir_version()) +
                       (model.has_graph() ? "" : " and no graph") +
                       "; expected a graph of IR version " + std::to_string(kOldestIr) + " to " +
                       std::to_string(kNewestIr));
  }
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == "data_inputs") file.data_inputs = split_names(entry.value());
  }
  return file;
}

}  // namespace autopar
