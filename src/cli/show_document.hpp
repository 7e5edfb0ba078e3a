// A picture of any JSON document of this program that has no picture of its own.
#pragma once

#include <string>

namespace autopar::cli {

// Single facts as lines, lists of objects as tables; units as the names of fields say
// (`*_seconds`, `*_bytes`). `bytes` is JSON of an object.
std::string show_document(const std::string& bytes);

}  // namespace autopar::cli
