// Patterns of names: of parameters that are trained, of ops that are on a stage.
//
//   matches("layers.0.*", "layers.0.mlp.up")   // true
//   matches("layers.?", "layers.10")           // false: `?` is one character
#pragma once

#include <string>
#include <vector>

namespace autopar {

// `*` is any text, `?` any character. Time: O(pattern x text).
bool matches(const std::string& pattern, const std::string& text);
bool any_matches(const std::vector<std::string>& patterns, const std::string& text);

}  // namespace autopar
