#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar {

// What a gzip file (RFC 1952) holds; anything else as it is. Data that ends early or is damaged is
// an input error that names the path.
Result<std::string> unzipped(std::string bytes, const std::string& path);

}  // namespace autopar
