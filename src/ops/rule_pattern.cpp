#include "ops/rule_pattern.hpp"

#include <algorithm>
#include <charconv>

#include "ops/rule_text.hpp"

namespace autopar {

Error rule_error(std::string_view text, const std::string& what) {
  return input_error("rule \"" + std::string(text) + "\": " + what);
}

std::size_t ellipsis_position(const Pattern& pattern) {
  std::size_t at = 0;
  while (at < pattern.size() && !pattern[at].ellipsis) ++at;
  return at;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split_trimmed(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(trim(text.substr(0, at)));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + separator.size());
  }
}

std::string_view take_word(std::string_view& text) {
  text = trim(text);
  std::size_t length = std::min<std::size_t>(text.size(), 1);
  if (!text.empty() && text.front() != '(' && text.front() != ')') {
    length = std::min(text.find_first_of(" \t()"), text.size());
  }
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(length);
  return word;
}

std::optional<std::int64_t> parse_number(std::string_view text) {
  std::int64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size()) return {};
  return value;
}

namespace {

bool is_name(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const auto other = [](char c) { return (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || other(c); });
}

class PatternReader {
 public:
  explicit PatternReader(std::string_view text) : text_(text) {}

  Result<RulePattern> run() {
    std::vector<std::string_view> sections = split_trimmed(text_, "|");
    const std::vector<std::string_view> sides = split_trimmed(sections[0], "->");
    if (sides.size() != 2) return wrong("expected exactly one '->'");
    std::string_view inputs = sides[0];
    if (inputs.ends_with('*')) {
      pattern_.last_input_repeats = true;
      inputs.remove_suffix(1);
    }
    AUTOPAR_RETURN_IF_ERROR(read_side(inputs, pattern_.inputs));
    AUTOPAR_RETURN_IF_ERROR(read_side(sides[1], pattern_.outputs));
    sections.erase(sections.begin());
    pattern_.sections = std::move(sections);
    return std::move(pattern_);
  }

 private:
  Error wrong(const std::string& what) const { return rule_error(text_, what); }
  int index_of(std::string_view name) const {
    for (std::size_t i = 0; i < pattern_.factors.size(); ++i) {
      if (pattern_.factors[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  Status read_side(std::string_view text, std::vector<Pattern>& patterns) {
    for (std::string_view tensor : split_trimmed(text, ",")) {
      AUTOPAR_TRY(read, pattern(tensor));
      patterns.push_back(std::move(read));
    }
    return Ok{};
  }
  Result<Pattern> pattern(std::string_view text);
  Result<int> factor(std::string_view word);

  std::string_view text_;
  RulePattern pattern_;
};

Result<Pattern> PatternReader::pattern(std::string_view text) {
  Pattern result;
  bool inside = false;
  while (!trim(text).empty()) {
    const std::string_view word = take_word(text);
    if (word == "(" || word == ")") {
      if (inside == (word == "(")) return wrong("unmatched '" + std::string(word) + "'");
      inside = word == "(";
      if (inside) result.emplace_back();
    } else if (word == "..." || word == "_") {
      if (inside) return wrong("'" + std::string(word) + "' inside '(...)'");
      result.push_back({.ellipsis = word == "...", .factors = {}});
      if (word == "..." && pattern_.ellipsis_at < 0) {
        pattern_.ellipsis_at = static_cast<int>(pattern_.factors.size());
      }
    } else {
      AUTOPAR_TRY(index, factor(word));
      if (!inside) result.emplace_back();
      result.back().factors.push_back(index);
    }
  }
  if (inside) return wrong("'(' without ')'");
  if (std::count_if(result.begin(), result.end(), [](auto& d) { return d.ellipsis; }) > 1) {
    return wrong("'...' twice in one tensor");
  }
  return result;
}

Result<int> PatternReader::factor(std::string_view word) {
  std::string_view name = word;
  std::int64_t size = 0;
  if (const std::size_t at = name.find('='); at != std::string_view::npos) {
    const std::optional<std::int64_t> given = parse_number(name.substr(at + 1));
    if (!given || *given < 1) return wrong("'" + std::string(word) + "' has no valid size");
    size = *given;
    name = name.substr(0, at);
  }
  FactorKind kind = FactorKind::kParallel;
  for (const FactorMark& mark : kFactorMarks) {
    if (name.ends_with(mark.sign)) kind = mark.kind;
  }
  if (kind != FactorKind::kParallel) name.remove_suffix(1);
  if (!is_name(name)) {
    return wrong("'" + std::string(word) +
                 "' is not a factor; expected a name, an optional mark of + > < ~ ^ and an "
                 "optional =size, or '_' or '...'");
  }
  const int index = index_of(name);
  if (index < 0) {
    pattern_.factors.push_back(
        {.name = std::string(name), .size = size, .kind = kind, .partial_inputs = {}});
    return static_cast<int>(pattern_.factors.size()) - 1;
  }
  Factor& known = pattern_.factors[static_cast<std::size_t>(index)];
  if (kind != FactorKind::kParallel && known.kind != FactorKind::kParallel && known.kind != kind) {
    return wrong("factor " + known.name + " has two different marks");
  }
  if (kind != FactorKind::kParallel) known.kind = kind;
  if (size != 0 && known.size != 0 && known.size != size) {
    return wrong("factor " + known.name + " has two different sizes");
  }
  if (size != 0) known.size = size;
  return index;
}

}  // namespace

Result<RulePattern> read_pattern(std::string_view text) { return PatternReader(text).run(); }

}  // namespace autopar
