#include "weights/safetensors.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <tuple>

#include "json/parse.hpp"
#include "weights/tensors.hpp"

namespace autopar {
namespace {

using nlohmann::ordered_json;

// In the order of alignment that the package sorts by.
constexpr std::array<std::pair<const char*, DType>, 13> kTypes = {{{"BOOL", DType::kBool},
                                                                   {"U8", DType::kUInt8},
                                                                   {"I8", DType::kInt8},
                                                                   {"I16", DType::kInt16},
                                                                   {"U16", DType::kUInt16},
                                                                   {"F16", DType::kFloat16},
                                                                   {"BF16", DType::kBFloat16},
                                                                   {"I32", DType::kInt32},
                                                                   {"U32", DType::kUInt32},
                                                                   {"F32", DType::kFloat32},
                                                                   {"F64", DType::kFloat64},
                                                                   {"I64", DType::kInt64},
                                                                   {"U64", DType::kUInt64}}};

std::size_t place_of(DType dtype) {
  std::size_t place = 0;
  while (kTypes[place].second != dtype) ++place;
  return place;
}

std::optional<DType> type_of(const std::string& name) {
  for (const auto& [known, dtype] : kTypes) {
    if (name == known) return dtype;
  }
  return std::nullopt;
}

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeader = 100'000'000;  // as the package has it
constexpr const char* kMetadata = "__metadata__";

std::string length_text(std::uint64_t length) {
  std::string text(kLengthBytes, '\0');
  for (char& byte : text) {
    byte = static_cast<char>(length & 0xff);
    length >>= 8;
  }
  return text;
}

std::uint64_t length_of(const std::string& text) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(text[i]);
  }
  return length;
}

// An entry of a header; nothing where it is not one. Offsets count from the end of the header.
Result<SafetensorsEntry> entry_of(const std::string& name, const ordered_json& json, Bytes start,
                                  Bytes size) {
  const auto wrong = [&](const std::string& what) {
    return input_error("tensor '" + name + "': " + what);
  };
  const auto integers = [&](const char* key) -> std::optional<Shape> {
    if (!json.contains(key) || !json[key].is_array()) return std::nullopt;
    Shape numbers;
    for (const auto& number : json[key]) {
      if (!number.is_number_unsigned() || number.get<std::uint64_t>() > kMaxElements * 8) {
        return std::nullopt;
      }
      numbers.push_back(number.get<std::int64_t>());
    }
    return numbers;
  };
  if (!json.is_object() || !json.contains("dtype") || !json["dtype"].is_string()) {
    return wrong("its entry in the header has no dtype");
  }
  const std::optional<DType> dtype = type_of(json["dtype"].get<std::string>());
  if (!dtype) return wrong("element type " + found_text(json["dtype"]) + " is not supported");
  const std::optional<Shape> shape = integers("shape"), offsets = integers("data_offsets");
  if (!shape || !offsets || offsets->size() != 2) {
    return wrong("expected a shape and two data_offsets");
  }
  SafetensorsEntry entry{name, *dtype, *shape, start + (*offsets)[0]};
  if ((*offsets)[1] - (*offsets)[0] != entry.bytes()) {
    return wrong(std::string(name_of(*dtype)) + to_text(*shape) + " takes " +
                 std::to_string(entry.bytes()) + " bytes, its data_offsets give " +
                 std::to_string((*offsets)[1] - (*offsets)[0]));
  }
  if (entry.offset + entry.bytes() > size) return wrong("ends behind the end of the file");
  return entry;
}

Result<SafetensorsFile> parse(const std::string& header, Bytes start, Bytes size) {
  AUTOPAR_TRY(json, parse_ordered_json(header, "its header"));
  if (!json.is_object()) return input_error("its header is not a JSON object");
  SafetensorsFile file;
  std::set<std::string> names;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      for (const auto& [key, text] : value.items()) {
        if (text.is_string()) file.metadata[key] = text.get<std::string>();
      }
      continue;
    }
    if (!names.insert(name).second) return input_error("tensor '" + name + "' is there twice");
    AUTOPAR_TRY(entry, entry_of(name, value, start, size));
    file.entries.push_back(entry);
  }
  return file;
}

}  // namespace

Result<SafetensorsLayout> layout_safetensors(std::vector<SafetensorsEntry> entries,
                                             const std::map<std::string, std::string>& metadata) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(-static_cast<int>(place_of(a.dtype)), a.name) <
           std::make_tuple(-static_cast<int>(place_of(b.dtype)), b.name);
  });
  ordered_json json = ordered_json::object();
  if (!metadata.empty()) json[kMetadata] = metadata;
  Bytes offset = 0;
  for (SafetensorsEntry& entry : entries) {
    if (entry.name == kMetadata) {
      return input_error("a tensor of a safetensors file cannot be called " + entry.name);
    }
    entry.offset = offset;
    offset += entry.bytes();
    json[entry.name] = {{"dtype", kTypes[place_of(entry.dtype)].first},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.offset, offset}}};
  }
  std::string header = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  header.resize((header.size() + 7) / 8 * 8, ' ');
  SafetensorsLayout layout{length_text(header.size()) + header, std::move(entries), 0};
  const auto start = static_cast<Bytes>(layout.head.size());
  for (SafetensorsEntry& entry : layout.entries) entry.offset += start;
  layout.size = start + offset;
  return layout;
}

Result<SafetensorsFile> read_safetensors(const std::string& path) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) return input_error(path + ": cannot be read: " + failed.message());
  std::string text(kLengthBytes, '\0');
  const Error no_file = input_error(path + ": is not a safetensors file, or it is cut off");
  if (size < kLengthBytes) return no_file;
  AUTOPAR_RETURN_IF_ERROR(read_bytes(path, 0, text.data(), kLengthBytes));
  const std::uint64_t length = length_of(text);
  if (length > kMostHeader || length > size - kLengthBytes) return no_file;
  std::string header(length, '\0');
  AUTOPAR_RETURN_IF_ERROR(
      read_bytes(path, kLengthBytes, header.data(), static_cast<Bytes>(length)));
  auto file = parse(header, static_cast<Bytes>(kLengthBytes + length), static_cast<Bytes>(size));
  if (!file) return input_error(path + ": " + file.error().message);
  return file;
}

}  // namespace autopar
