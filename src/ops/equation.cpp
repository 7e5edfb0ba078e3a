#include "ops/equation.hpp"

#include <map>

namespace autopar {

std::optional<Equation> parse_equation(const std::string& text, std::size_t input_count) {
  Equation equation;
  std::string current;
  bool in_output = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ') continue;
    if (c == '-' && i + 1 < text.size() && text[i + 1] == '>' && !in_output) {
      equation.inputs.push_back(current);
      current.clear();
      in_output = true;
      ++i;
    } else if (c == ',' && !in_output) {
      equation.inputs.push_back(current);
      current.clear();
    } else if (text.compare(i, 3, "...") == 0 && current.find('.') == std::string::npos) {
      current += '.';
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      current += c;
    } else {
      return std::nullopt;
    }
  }
  if (in_output) {
    equation.output = current;
  } else {
    equation.inputs.push_back(current);
    // Implicit form: the ellipsis, then the letters that occur once, in the order of their codes.
    std::map<char, int> count;
    for (const std::string& input : equation.inputs) {
      for (char letter : input) ++count[letter];
    }
    if (count.count('.') != 0) equation.output.assign(1, '.');
    for (const auto& [letter, times] : count) {
      if (letter != '.' && times == 1) equation.output += letter;
    }
  }
  if (equation.inputs.size() != input_count) return std::nullopt;
  return equation;
}

}  // namespace autopar
