// The equation of an Einsum.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace autopar {

struct Equation {
  std::vector<std::string> inputs;  // letters; an ellipsis is '.'
  std::string output;
};

// Nothing where it is no equation of so many inputs. The implicit form gets its output.
std::optional<Equation> parse_equation(const std::string& text, std::size_t input_count);

}  // namespace autopar
