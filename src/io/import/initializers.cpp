// Where an ONNX file has its weights. Protobuf puts a message's fields one after the other, so raw
// data is found by its place in the file and need not be read.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/wire_format_lite.h>

#include <filesystem>
#include <functional>
#include <limits>

#include "autopar/import.hpp"
#include "io/import/external_locations.hpp"
#include "io/import/proto_tensor.hpp"
#include "io/onnx_read.hpp"
#include "io/proto_tag.hpp"

namespace autopar {
namespace {

namespace pb = google::protobuf::io;
using google::protobuf::internal::WireFormatLite;

class Scan {
 public:
  Scan(std::string_view bytes, const std::string& path)
      : in_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())),
        file_(std::filesystem::path(path).filename().string()) {
    in_.SetTotalBytesLimit(std::numeric_limits<int>::max());
  }

  Result<std::vector<Value>> run() {
    Status status = Ok{};
    const bool good = messages(onnx::ModelProto::kGraphFieldNumber, [&] {
      return messages(onnx::GraphProto::kInitializerFieldNumber, [&] {
        status = read_initializer();
        return status.ok();
      });
    });
    if (!status) return status.error();
    if (!good) return input_error("is not an ONNX model, or it is damaged or cut off");
    return std::move(values_);
  }

 private:
  // Calls `read` within every field of that number; skips the others.
  bool messages(int field, const std::function<bool()>& read) {
    while (const std::uint32_t tag = in_.ReadTag()) {
      if (tag != tag_of(field)) {
        if (!WireFormatLite::SkipField(&in_, tag)) return false;
        continue;
      }
      const auto limit = in_.ReadLengthAndPushLimit();
      if (!read()) return false;
      in_.PopLimit(limit);
    }
    return in_.ConsumedEntireMessage();
  }

  // Everything of a tensor but its raw data, whose place is noted.
  bool read_tensor(onnx::TensorProto& tensor, ExternalData& raw) {
    std::string others;
    {
      pb::StringOutputStream stream(&others);
      pb::CodedOutputStream kept(&stream);
      while (const std::uint32_t tag = in_.ReadTag()) {
        if (tag == tag_of(onnx::TensorProto::kRawDataFieldNumber)) {
          std::uint32_t length = 0;
          if (!in_.ReadVarint32(&length)) return false;
          raw = {file_, in_.CurrentPosition(), length};
          if (!in_.Skip(static_cast<int>(length))) return false;
        } else if (!WireFormatLite::SkipField(&in_, tag, &kept)) {
          return false;
        }
      }
    }
    return in_.ConsumedEntireMessage() && tensor.ParseFromString(others);
  }

  Status read_initializer() {
    onnx::TensorProto tensor;
    ExternalData raw;
    if (!read_tensor(tensor, raw)) return input_error("an initializer is damaged or cut off");
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL && raw.length >= 0) {
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      tensor.clear_external_data();
      const auto add = [&](const char* key, const std::string& text) {
        auto* entry = tensor.add_external_data();
        entry->set_key(key);
        entry->set_value(text);
      };
      add("location", raw.location);
      add("offset", std::to_string(raw.offset));
      add("length", std::to_string(raw.length));
    }
    const std::string name = tensor.name();
    AUTOPAR_TRY(data, take_tensor(tensor, "initializer '" + name + "'"));
    values_.push_back({.name = name,
                       .dtype = data.dtype,
                       .shape = data.shape,
                       .kind = ValueKind::kParameter,
                       .producer = {},
                       .data = std::move(data.data)});
    return Ok{};
  }

  pb::CodedInputStream in_;
  const std::string file_;
  std::vector<Value> values_;
};

}  // namespace

Result<std::vector<Value>> initializers_of(const std::string& path) {
  const auto in_file = [&](const Error& error) {
    return Error{error.code, path + ": " + error.message};
  };
  const auto file = open_file(path);
  if (!file) return in_file(file.error());
  if (file->bytes().size() > std::numeric_limits<int>::max()) {
    return in_file(input_error("is larger than 2 GiB, which an ONNX file cannot be"));
  }
  const google::protobuf::LogSilencer silencer;
  auto values = Scan(file->bytes(), path).run();
  if (!values) return in_file(values.error());
  for (const Value& value : *values) {
    const auto* external = std::get_if<ExternalData>(&value.data);
    if (external == nullptr) continue;
    const Status located = check_location(external->location, path);
    if (!located) return in_file(located.error());
  }
  return values;
}

}  // namespace autopar
