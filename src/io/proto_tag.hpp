#pragma once

#include <google/protobuf/wire_format_lite.h>

#include <cstdint>

namespace autopar {

// With which a message, a text or bytes begin in a file, as that field.
inline std::uint32_t tag_of(int field) {
  using google::protobuf::internal::WireFormatLite;
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

}  // namespace autopar
