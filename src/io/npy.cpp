#include "io/npy.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

namespace autopar {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxDimensions = 64;

struct NamedType {
  DType dtype;
  const char* code;  // kind and size, as after the byte order in `descr`
};
constexpr NamedType kNpyTypes[] = {
    {DType::kFloat32, "f4"}, {DType::kFloat16, "f2"}, {DType::kBFloat16, "V2"},
    {DType::kFloat64, "f8"}, {DType::kInt8, "i1"},    {DType::kUInt8, "u1"},
    {DType::kInt16, "i2"},   {DType::kUInt16, "u2"},  {DType::kInt32, "i4"},
    {DType::kUInt32, "u4"},  {DType::kInt64, "i8"},   {DType::kUInt64, "u8"},
    {DType::kBool, "b1"},
};

struct Header {
  DType dtype = DType::kFloat32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
};

// Reads a Python literal such as {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> read() {
    Header header;
    bool descr = false;
    bool order = false;
    bool shape = false;
    if (!take('{')) return malformed();
    while (!take('}')) {
      const auto key = quoted();
      if (!key || !take(':')) return malformed();
      if (*key == "descr") {
        const auto type = quoted();
        if (!type) return input_error("its elements are records, which are not supported");
        AUTOPAR_RETURN_IF_ERROR(set_type(*type, header));
        descr = true;
      } else if (*key == "fortran_order") {
        header.fortran_order = take_word("True");
        if (!header.fortran_order && !take_word("False")) return malformed();
        order = true;
      } else if (*key == "shape") {
        if (!read_shape(header.shape)) return malformed();
        shape = true;
      } else {
        return malformed();
      }
      take(',');
    }
    if (!descr || !order || !shape) return malformed();
    return header;
  }

 private:
  static Error malformed() { return input_error("its header is malformed"); }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  std::optional<std::string> quoted() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string result(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return result;
  }
  std::optional<std::int64_t> number() {
    skip_space();
    std::int64_t value = 0;
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      if (value > (INT64_MAX - 9) / 10) return std::nullopt;
      value = value * 10 + (text_[at_++] - '0');
    }
    if (at_ == begin) return std::nullopt;
    return value;
  }
  bool read_shape(Shape& shape) {
    if (!take('(')) return false;
    while (!take(')')) {
      const auto size = number();
      if (!size || shape.size() == kMaxDimensions) return false;
      shape.push_back(*size);
      if (take(',')) continue;
      return take(')');
    }
    return true;
  }
  static Status set_type(const std::string& descr, Header& header) {
    const std::string code = descr.size() > 1 ? descr.substr(1) : "";
    for (const NamedType& type : kNpyTypes) {
      if (code != type.code) continue;
      header.dtype = type.dtype;
      header.big_endian = descr[0] == '>';
      return Ok{};
    }
    return input_error("its element type '" + descr +
                       "' is not supported; supported are floats of 2 to 8 bytes, bfloat16, "
                       "integers of 1 to 8 bytes and bool");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

// The number of bytes of the array; nothing where it is beyond what a file can hold.
std::optional<std::size_t> data_size(const Header& header) {
  std::int64_t size = size_of(header.dtype);
  if (std::find(header.shape.begin(), header.shape.end(), 0) != header.shape.end()) return 0;
  for (std::int64_t dimension : header.shape) {
    if (__builtin_mul_overflow(size, dimension, &size)) return std::nullopt;
  }
  return static_cast<std::size_t>(size);
}

void swap_bytes(std::string& bytes, std::size_t element_size) {
  for (std::size_t i = 0; i < bytes.size(); i += element_size) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(i);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(element_size));
  }
}

// Column-major to row-major: walks the target in order, the source by its strides.
std::string to_row_major(const std::string& source, const Shape& shape, std::size_t element_size) {
  std::vector<std::size_t> strides(shape.size());
  std::size_t stride = element_size;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    strides[d] = stride;
    stride *= static_cast<std::size_t>(shape[d]);
  }
  std::string target;
  target.reserve(source.size());
  Shape index(shape.size(), 0);
  std::size_t at = 0;
  while (target.size() < source.size()) {
    target.append(source, at, element_size);
    for (std::size_t d = shape.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < shape[d]) break;
      at -= strides[d] * static_cast<std::size_t>(shape[d]);
      index[d] = 0;
    }
  }
  return target;
}

std::size_t little_endian(std::string_view bytes) {
  std::size_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

Result<Tensor> parse_npy(std::string_view bytes) {
  if (bytes.size() < 10 || bytes.substr(0, kMagic.size()) != kMagic) {
    return input_error("it is no NumPy array");
  }
  const int version = bytes[kMagic.size()];
  if (version < 1 || version > 3) {
    return input_error("its format version " + std::to_string(version) +
                       " is not known; 1, 2 and 3 are");
  }
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  const std::size_t begin = kMagic.size() + 2 + length_bytes;
  if (bytes.size() < begin) return input_error("it is truncated within its header");
  const std::size_t length = little_endian(bytes.substr(kMagic.size() + 2, length_bytes));
  if (length > bytes.size() - begin) return input_error("it is truncated within its header");
  AUTOPAR_TRY(header, HeaderReader(bytes.substr(begin, length)).read());

  const std::string_view data = bytes.substr(begin + length);
  const auto expected = data_size(header);
  if (!expected || data.size() != *expected) {
    return input_error("its shape " + to_text(header.shape) + " of " + name_of(header.dtype) +
                       " does not fit its " + std::to_string(data.size()) + " bytes of data");
  }
  Tensor tensor{header.dtype, header.shape, std::string(data)};
  const auto element_size = static_cast<std::size_t>(size_of(header.dtype));
  if (header.big_endian) swap_bytes(tensor.bytes, element_size);
  if (header.fortran_order && header.shape.size() > 1) {
    tensor.bytes = to_row_major(tensor.bytes, tensor.shape, element_size);
  }
  return tensor;
}

std::string npy_bytes(const Tensor& tensor) {
  const auto type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                 [&](const NamedType& t) { return t.dtype == tensor.dtype; });
  std::string header = std::string("{'descr': '") + (size_of(tensor.dtype) == 1 ? "|" : "<") +
                       type->code + "', 'fortran_order': False, 'shape': (";
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
    header += (d == 0 ? "" : " ") + std::to_string(tensor.shape[d]) + ",";
  }
  if (tensor.shape.size() > 1) header.pop_back();  // only one dimension needs its comma
  header += "), }";
  // The data begins at a multiple of 64 bytes, after a line break.
  constexpr std::size_t kPrefix = 10;
  while ((kPrefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes(kMagic);
  bytes += {1, 0, static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return bytes + header + tensor.bytes;
}

}  // namespace autopar
