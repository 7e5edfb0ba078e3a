// SHA-256 of bytes, as a lower-case hexadecimal string.
#pragma once

#include <string>
#include <string_view>

namespace autopar {

std::string sha256_hex(std::string_view bytes);

}  // namespace autopar
