// Patterns of names.
#pragma once

#include <string>

namespace autopar {

// `*` is any text, `?` any character. Time: O(pattern x text).
bool matches(const std::string& pattern, const std::string& text);

}  // namespace autopar
