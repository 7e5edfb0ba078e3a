#include "io/import/proto_tensor.hpp"

#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include "io/import/external_locations.hpp"

namespace autopar {
namespace {

constexpr std::array<std::pair<std::int32_t, DType>, 13> kDTypes = {{
    {onnx::TensorProto::FLOAT, DType::kFloat32},
    {onnx::TensorProto::FLOAT16, DType::kFloat16},
    {onnx::TensorProto::BFLOAT16, DType::kBFloat16},
    {onnx::TensorProto::DOUBLE, DType::kFloat64},
    {onnx::TensorProto::INT8, DType::kInt8},
    {onnx::TensorProto::UINT8, DType::kUInt8},
    {onnx::TensorProto::INT16, DType::kInt16},
    {onnx::TensorProto::UINT16, DType::kUInt16},
    {onnx::TensorProto::INT32, DType::kInt32},
    {onnx::TensorProto::UINT32, DType::kUInt32},
    {onnx::TensorProto::INT64, DType::kInt64},
    {onnx::TensorProto::UINT64, DType::kUInt64},
    {onnx::TensorProto::BOOL, DType::kBool},
}};

template <class To, class From>
std::string pack(const google::protobuf::RepeatedField<From>& from) {
  std::string bytes(static_cast<std::size_t>(from.size()) * sizeof(To), '\0');
  char* out = bytes.data();
  for (const From value : from) {
    const To element = static_cast<To>(value);
    std::memcpy(out, &element, sizeof(To));
    out += sizeof(To);
  }
  return bytes;
}

// The data that is not in raw_data: one repeated field per group of types.
std::string typed_bytes(const onnx::TensorProto& proto, DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return pack<float>(proto.float_data());
    case DType::kFloat64:
      return pack<double>(proto.double_data());
    case DType::kInt64:
      return pack<std::int64_t>(proto.int64_data());
    case DType::kUInt64:
      return pack<std::uint64_t>(proto.uint64_data());
    case DType::kUInt32:
      return pack<std::uint32_t>(proto.uint64_data());
    case DType::kInt32:
      return pack<std::int32_t>(proto.int32_data());
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kUInt16:
      return pack<std::uint16_t>(proto.int32_data());
    case DType::kInt16:
      return pack<std::int16_t>(proto.int32_data());
    case DType::kInt8:
    case DType::kUInt8:
    case DType::kBool:
      return pack<std::uint8_t>(proto.int32_data());
  }
  return {};
}

std::optional<std::int64_t> parse_count(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<ExternalData> external_data(const onnx::TensorProto& proto, Bytes bytes,
                                   const std::string& where) {
  ExternalData data;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") {
      data.location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      const auto count = parse_count(entry.value());
      if (!count) {
        return input_error(where + ": external data " + entry.key() + " '" + entry.value() +
                           "' is not a number of bytes");
      }
      (entry.key() == "offset" ? data.offset : data.length) = *count;
    }
  }
  if (!is_below_folder(data.location)) {
    return input_error(where + ": external data location '" + data.location +
                       "' is not a path below the model's folder");
  }
  if (data.offset > std::numeric_limits<Bytes>::max() - bytes) {
    return input_error(where + ": external data at byte " + std::to_string(data.offset) +
                       ", where no file of " + std::to_string(bytes) + " bytes more can be");
  }
  if (data.length >= 0 && data.length != bytes) {
    return input_error(where + ": external data of " + std::to_string(data.length) +
                       " bytes, but its shape and type take " + std::to_string(bytes));
  }
  return data;
}

}  // namespace

std::optional<DType> dtype_of_onnx(std::int32_t elem_type) {
  for (const auto& [onnx, dtype] : kDTypes) {
    if (onnx == elem_type) return dtype;
  }
  return std::nullopt;
}

std::int32_t onnx_dtype_of(DType dtype) {
  for (const auto& [onnx, row] : kDTypes) {
    if (row == dtype) return onnx;
  }
  return onnx::TensorProto::UNDEFINED;
}

std::string onnx_dtype_name(std::int32_t elem_type) {
  return onnx::TensorProto::DataType_IsValid(elem_type)
             ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(elem_type))
             : "number " + std::to_string(elem_type);
}

Result<TensorData> take_tensor(onnx::TensorProto& proto, const std::string& where) {
  const auto dtype = dtype_of_onnx(proto.data_type());
  if (!dtype) {
    return input_error(where + ": element type " + onnx_dtype_name(proto.data_type()) +
                       " is not supported; expected a float, an integer or bool");
  }
  TensorData result{*dtype, Shape(proto.dims().begin(), proto.dims().end()), {}};
  for (const std::int64_t extent : result.shape) {
    if (extent < 0) {
      return input_error(where + ": negative dimension in its shape " + to_text(result.shape));
    }
  }
  const std::int64_t count = element_count(result.shape);
  if (count >= kMaxElements) {
    return input_error(where + ": shape " + to_text(result.shape) + " has too many elements");
  }
  const Bytes bytes = count * size_of(*dtype);
  if (proto.has_segment()) return input_error(where + ": segmented tensors are not supported");
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    AUTOPAR_TRY(external, external_data(proto, bytes, where));
    result.data = std::move(external);
    return result;
  }
  std::string data =
      proto.has_raw_data() ? std::move(*proto.mutable_raw_data()) : typed_bytes(proto, *dtype);
  if (static_cast<Bytes>(data.size()) != bytes) {
    return input_error(where + ": " + name_of(*dtype) + to_text(result.shape) + " takes " +
                       std::to_string(bytes) + " bytes, but the file holds " +
                       std::to_string(data.size()));
  }
  result.data = Tensor{*dtype, result.shape, std::move(data)};
  return result;
}

onnx::TensorProto to_proto(const Tensor& tensor) {
  onnx::TensorProto proto;
  proto.set_data_type(onnx_dtype_of(tensor.dtype));
  for (const std::int64_t extent : tensor.shape) proto.add_dims(extent);
  proto.set_raw_data(tensor.bytes);
  return proto;
}

std::optional<Tensor> read_external(const TensorData& tensor, const std::string& folder) {
  const auto* external = std::get_if<ExternalData>(&tensor.data);
  if (!external) return std::nullopt;
  const std::filesystem::path path = std::filesystem::path(folder) / external->location;
  const Bytes bytes = element_count(tensor.shape) * size_of(tensor.dtype);
  std::error_code missing;
  const std::uintmax_t size = std::filesystem::file_size(path, missing);
  // Before memory is taken for what a shape may only say.
  if (missing || static_cast<std::uintmax_t>(bytes) > size) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  Tensor result{tensor.dtype, tensor.shape, std::string(static_cast<std::size_t>(bytes), '\0')};
  if (!file || !file.seekg(external->offset) || !file.read(result.bytes.data(), bytes)) {
    return std::nullopt;
  }
  return result;
}

}  // namespace autopar
