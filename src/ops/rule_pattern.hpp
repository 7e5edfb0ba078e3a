// A rule's text as it is written, not yet held against the shapes of an op.
//
//   rule    := tensors "->" tensors { "|" section }
//   tensors := tensor { "," tensor }         a tensor is a list of dimensions, maybe empty;
//                                            the last input may end in "*": any number like it
//   dim     := "..." | "_" | factor | "(" factor factor ... ")"
//   factor  := name [mark] ["=" size]        mark: + > < ~ ^, see FactorKind
//   section := "partial:" groups             groups of input numbers, "," between; "*": all inputs;
//                                            "none": the output alone may be taken as a summand
//            | "summand" name ":" numbers    inputs that are summands of a sum over factor `name`
//            | "halo" name ":" before after  rows that a part of factor `name` needs of the parts
//                                            before and after it
//            | "moving" names ":" tensors "->" tensors
//                                            per tensor and name the factor that is split there, or
//                                            "_"; a tensor without words: none
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "autopar/ops.hpp"

namespace autopar {

// A dimension as written. "...": `ellipsis`; "_": no factor; "(a b)": several.
struct PatternDim {
  bool ellipsis = false;
  std::vector<int> factors;
};
using Pattern = std::vector<PatternDim>;
std::size_t ellipsis_position(const Pattern& pattern);  // its size where there is none

struct RulePattern {
  std::vector<Factor> factors;  // size 0: not written
  std::vector<Pattern> inputs, outputs;
  bool last_input_repeats = false;         // "*" after the last input
  int ellipsis_at = -1;                    // number of factors named before the first "..."
  std::vector<std::string_view> sections;  // after "|"
};
// The text must outlive the result. Errors quote the text.
Result<RulePattern> read_pattern(std::string_view text);
Error rule_error(std::string_view text, const std::string& what);

// Words of a rule.
std::vector<std::string_view> split_trimmed(std::string_view text, std::string_view separator);
std::string_view trim(std::string_view text);
std::string_view take_word(std::string_view& text);  // a bracket, or up to a space or bracket
std::optional<std::int64_t> parse_number(std::string_view text);

}  // namespace autopar
