// Holds the text of a rule against the shapes of an op: how many dimensions a "..." stands for,
// which dimensions are broadcast, how large every factor is.
//
// A rank-0 tensor fits every pattern, so that absent optional inputs need no pattern of their own;
// patterns of tensors beyond those of the op are ignored.
// Linear in the length of the text times the (small) number of factors.
#include <algorithm>

#include "ops/rule_pattern.hpp"

namespace autopar {
namespace {

struct Side {
  const char* name;
  const std::vector<Shape>& shapes;
  std::vector<Pattern> patterns;

  std::string where(std::size_t t) const { return std::string(name) + " " + std::to_string(t); }
};

class Parser {
 public:
  Parser(std::string_view text, const OpShapes& shapes, RulePattern pattern)
      : text_(text),
        inputs_{"input", shapes.inputs, std::move(pattern.inputs)},
        outputs_{"output", shapes.outputs, std::move(pattern.outputs)},
        ellipsis_at_(pattern.ellipsis_at),
        last_input_repeats_(pattern.last_input_repeats),
        sections_(std::move(pattern.sections)) {
    rule_.factors = std::move(pattern.factors);
  }

  Result<Rule> run() {
    AUTOPAR_RETURN_IF_ERROR(fit_side(inputs_, last_input_repeats_));
    AUTOPAR_RETURN_IF_ERROR(fit_side(outputs_, false));
    AUTOPAR_RETURN_IF_ERROR(expand_ellipses());
    AUTOPAR_RETURN_IF_ERROR(measure_factors());
    rule_.inputs = placed(inputs_);
    rule_.outputs = placed(outputs_);
    drop_trivial_factors();
    for (std::string_view section : sections_) AUTOPAR_RETURN_IF_ERROR(read_section(section));
    return std::move(rule_);
  }

 private:
  Error wrong(const std::string& what) const { return rule_error(text_, what); }

  Status fit_side(Side& side, bool last_repeats);
  Status expand_ellipses();
  Result<std::vector<std::int64_t>> ellipsis_sizes() const;
  Status measure_factors();
  Status measure_dims(bool final);
  Status measure_dim(const PatternDim& dim, std::int64_t extent, bool final);
  std::vector<TensorFactors> placed(const Side& side) const;
  void drop_trivial_factors();
  Status read_section(std::string_view section);
  Status read_halo(std::string_view name, std::string_view numbers);
  Status read_moving(std::string_view names, std::string_view tensors);
  Result<std::vector<std::vector<int>>> moving_side(std::string_view tensors, std::size_t names,
                                                    std::size_t count);
  Result<std::vector<int>> input_numbers(std::string_view text) const;

  std::string_view text_;
  Side inputs_, outputs_;
  int ellipsis_at_;
  bool last_input_repeats_;
  std::vector<std::string_view> sections_;
  Rule rule_;  // sizes that are not known yet are 0
};

// Patterns of tensors that the op does not have are dropped.
Status Parser::fit_side(Side& side, bool last_repeats) {
  const std::size_t count = side.shapes.size();
  // No text at all is one tensor of rank 0, or none.
  if (count == 0) side.patterns.clear();
  if (last_repeats && side.patterns.size() < count) {
    const Pattern repeated = side.patterns.back();
    side.patterns.resize(count, repeated);
  }
  if (side.patterns.size() < count) {
    return wrong("it has " + std::to_string(side.patterns.size()) + " " + side.name +
                 "s, the op has " + std::to_string(count));
  }
  side.patterns.resize(count);
  for (std::size_t t = 0; t < count; ++t) {
    const Pattern& read = side.patterns[t];
    const std::size_t rank = side.shapes[t].size();
    const bool open = ellipsis_position(read) < read.size();
    if (rank == 0 || (open ? rank + 1 >= read.size() : rank == read.size())) continue;
    return wrong(side.where(t) + " has the shape " + to_text(side.shapes[t]) +
                 ", the rule expects " + (open ? "at least " : "") +
                 std::to_string(open ? read.size() - 1 : read.size()) + " dimensions");
  }
  return Ok{};
}

// Extents of the dimensions that the longest "..." covers, broadcast; innermost first.
Result<std::vector<std::int64_t>> Parser::ellipsis_sizes() const {
  std::vector<std::int64_t> sizes;
  for (const Side* side : {&inputs_, &outputs_}) {
    for (std::size_t t = 0; t < side->patterns.size(); ++t) {
      const Pattern& pattern = side->patterns[t];
      const Shape& shape = side->shapes[t];
      const std::size_t begin = ellipsis_position(pattern);
      if (shape.empty() || begin == pattern.size()) continue;
      const std::size_t covered = shape.size() + 1 - pattern.size();
      if (sizes.size() < covered) sizes.resize(covered, 1);
      for (std::size_t i = 0; i < covered; ++i) {
        const std::int64_t extent = shape[begin + covered - 1 - i];
        if (extent == 1 || extent == sizes[i]) continue;
        if (sizes[i] != 1) {
          return wrong(side->where(t) + " has the shape " + to_text(shape) +
                       "; expected an extent of 1 or " + std::to_string(sizes[i]) +
                       " where it is " + std::to_string(extent));
        }
        sizes[i] = extent;
      }
    }
  }
  return sizes;
}

// Replaces every "..." by one new factor per dimension that it covers, aligned from the right.
Status Parser::expand_ellipses() {
  if (ellipsis_at_ < 0) return Ok{};
  AUTOPAR_TRY(sizes, ellipsis_sizes());
  // "b" for what stands beside named dimensions, "d" where there is nothing else.
  const std::string stem = rule_.factors.empty() ? "d" : "b";
  const int length = static_cast<int>(sizes.size());
  std::vector<Factor> added;
  for (int i = 0; i < length; ++i) {
    std::string name = stem == "b" && length == 1 ? stem : stem + std::to_string(i);
    while (rule_.factor_index(name) >= 0) name += "_";
    added.push_back({.name = name,
                     .size = sizes[static_cast<std::size_t>(length - 1 - i)],
                     .kind = FactorKind::kParallel,
                     .partial_inputs = {}});
  }
  rule_.factors.insert(rule_.factors.begin() + ellipsis_at_, added.begin(), added.end());
  for (Side* side : {&inputs_, &outputs_}) {
    for (std::size_t t = 0; t < side->patterns.size(); ++t) {
      Pattern& pattern = side->patterns[t];
      for (PatternDim& dim : pattern) {
        for (int& f : dim.factors) f += f >= ellipsis_at_ ? length : 0;
      }
      const std::size_t at = ellipsis_position(pattern);
      if (at == pattern.size() || side->shapes[t].empty()) continue;
      const int covered = static_cast<int>(side->shapes[t].size() + 1 - pattern.size());
      Pattern expanded(pattern.begin(), pattern.begin() + static_cast<std::ptrdiff_t>(at));
      for (int i = length - covered; i < length; ++i) {
        expanded.push_back({.ellipsis = false, .factors = {ellipsis_at_ + i}});
      }
      expanded.insert(expanded.end(), pattern.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                      pattern.end());
      pattern = std::move(expanded);
    }
  }
  return Ok{};
}

// Learns the size of a factor from a dimension in which it is the only unknown one. An extent of 1
// tells nothing: it may be broadcast. `final`: what is unknown now has size 1, and all must agree.
Status Parser::measure_dim(const PatternDim& dim, std::int64_t extent, bool final) {
  if (dim.factors.empty() || extent == 0 || (extent == 1 && !final)) return Ok{};
  std::int64_t known = 1;
  Factor* unknown = nullptr;
  for (int index : dim.factors) {
    Factor& factor = rule_.factors[static_cast<std::size_t>(index)];
    if (factor.size != 0) {
      if (__builtin_mul_overflow(known, factor.size, &known)) {
        return wrong("the sizes of a dimension's factors are too large");
      }
    } else if (unknown != nullptr && !final) {
      return Ok{};
    } else if (extent != 1 && final) {
      return wrong("the size of factor " + factor.name + " does not follow from the shapes; " +
                   "write " + factor.name + "=size");
    } else {
      unknown = &factor;
    }
  }
  if (unknown != nullptr && !final && known != 0 && extent % known == 0 && extent != 0) {
    unknown->size = extent / known;
    return Ok{};
  }
  if (final && (extent == 1 || known == extent)) return Ok{};
  if (unknown == nullptr && known == extent) return Ok{};
  std::string names;
  for (int f : dim.factors) names += " " + rule_.factors[static_cast<std::size_t>(f)].name;
  return wrong("a dimension of" + names + " has the extent " + std::to_string(extent) +
               ", expected a multiple of or exactly " + std::to_string(known));
}

Status Parser::measure_dims(bool final) {
  for (Side* side : {&inputs_, &outputs_}) {
    for (std::size_t t = 0; t < side->patterns.size(); ++t) {
      const Pattern& pattern = side->patterns[t];
      if (side->shapes[t].empty()) continue;
      for (std::size_t d = 0; d < pattern.size(); ++d) {
        AUTOPAR_RETURN_IF_ERROR(measure_dim(pattern[d], side->shapes[t][d], final));
      }
    }
  }
  return Ok{};
}

Status Parser::measure_factors() {
  const auto unknown = [&] {
    return std::count_if(rule_.factors.begin(), rule_.factors.end(),
                         [](const Factor& factor) { return factor.size == 0; });
  };
  std::ptrdiff_t before = 0;
  do {
    before = unknown();
    AUTOPAR_RETURN_IF_ERROR(measure_dims(false));
  } while (unknown() != 0 && unknown() != before);
  return measure_dims(true);
}

std::vector<TensorFactors> Parser::placed(const Side& side) const {
  std::vector<TensorFactors> tensors(side.patterns.size());
  for (std::size_t t = 0; t < side.patterns.size(); ++t) {
    tensors[t].resize(side.shapes[t].size());
    for (std::size_t d = 0; d < tensors[t].size(); ++d) {
      if (side.shapes[t][d] > 1) tensors[t][d] = side.patterns[t][d].factors;
    }
  }
  return tensors;
}

// A factor of size 1 (or none, where a tensor is empty) cannot be split.
void Parser::drop_trivial_factors() {
  std::vector<int> renumbered;
  std::vector<Factor> kept;
  for (Factor& factor : rule_.factors) {
    renumbered.push_back(factor.size > 1 ? static_cast<int>(kept.size()) : -1);
    if (factor.size > 1) kept.push_back(std::move(factor));
  }
  rule_.factors = std::move(kept);
  for (auto* tensors : {&rule_.inputs, &rule_.outputs}) {
    for (TensorFactors& tensor : *tensors) {
      for (auto& dim : tensor) {
        for (int& f : dim) f = renumbered[static_cast<std::size_t>(f)];
        std::erase(dim, -1);
      }
    }
  }
}

Result<std::vector<int>> Parser::input_numbers(std::string_view text) const {
  std::vector<int> inputs;
  const int count = static_cast<int>(inputs_.shapes.size());
  if (text == "none") return inputs;
  if (text == "*") {
    for (int i = 0; i < count; ++i) inputs.push_back(i);
    return inputs;
  }
  while (!trim(text).empty()) {
    const std::string_view word = take_word(text);
    const std::optional<std::int64_t> input = parse_number(word);
    if (!input || *input < 0) {
      return wrong("'" + std::string(word) + "' is not the number of an input");
    }
    // Numbers of optional inputs that this op does not have are ignored.
    if (*input < count) inputs.push_back(static_cast<int>(*input));
  }
  std::sort(inputs.begin(), inputs.end());
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  return inputs;
}

Status Parser::read_section(std::string_view section) {
  const std::size_t colon = section.find(':');
  std::string_view head = trim(section.substr(0, colon));
  if (colon == std::string_view::npos) head = "";
  const std::string_view rest = section.substr(std::min(colon, section.size() - 1) + 1);
  if (head == "partial") {
    for (std::string_view group : split_trimmed(rest, ",")) {
      AUTOPAR_TRY(inputs, input_numbers(group));
      if (inputs.empty() && group != "none") continue;
      std::string name = "partial" + (inputs.empty() ? "" : std::to_string(inputs[0]));
      if (rule_.factor_index(name) >= 0) return wrong("two partial groups begin alike");
      rule_.factors.push_back(
          {.name = name, .size = 1, .kind = FactorKind::kPartial, .partial_inputs = inputs});
    }
    return Ok{};
  }
  if (head.starts_with("summand ")) {
    const std::string name(trim(head.substr(8)));
    AUTOPAR_TRY(inputs, input_numbers(rest));
    // A factor of size 1 is gone by now.
    const int f = rule_.factor_index(name);
    if (f < 0) return Ok{};
    Factor& factor = rule_.factors[static_cast<std::size_t>(f)];
    if (factor.kind != FactorKind::kSum) return wrong("factor " + name + " is not summed over");
    factor.partial_inputs = inputs;
    return Ok{};
  }
  if (head.starts_with("halo ")) return read_halo(trim(head.substr(5)), rest);
  if (head.starts_with("moving ")) return read_moving(trim(head.substr(7)), rest);
  return wrong("'" + std::string(section) +
               "' is none of 'partial: ...', 'summand name: ...', 'halo name: before after' and "
               "'moving names: factors -> factors'");
}

Status Parser::read_halo(std::string_view name, std::string_view numbers) {
  const std::optional<std::int64_t> before = parse_number(take_word(numbers));
  const std::optional<std::int64_t> after = parse_number(take_word(numbers));
  if (!before || !after || *before < 0 || *after < 0 || !trim(numbers).empty()) {
    return wrong("the halo of factor " + std::string(name) + " is not two numbers of rows");
  }
  const int f = rule_.factor_index(std::string(name));
  if (f < 0 || *before + *after == 0) return Ok{};
  Factor& factor = rule_.factors[static_cast<std::size_t>(f)];
  if (factor.kind != FactorKind::kParallel) {
    return wrong("factor " + factor.name + " has a mark and a halo");
  }
  factor.kind = FactorKind::kHalo;
  factor.halo_before = *before;
  factor.halo_after = *after;
  return Ok{};
}

// Per name and tensor the factor; empty where one of them is gone, since it has the size 1.
Result<std::vector<std::vector<int>>> Parser::moving_side(std::string_view tensors,
                                                          std::size_t names, std::size_t count) {
  std::vector<std::vector<int>> factors(names, std::vector<int>(count, -1));
  bool whole = true;
  const auto texts = split_trimmed(tensors, ",");
  for (std::size_t t = 0; t < std::min(count, texts.size()); ++t) {
    std::string_view text = texts[t];
    for (std::size_t n = 0; n < names && !trim(text).empty(); ++n) {
      const std::string_view word = take_word(text);
      if (word == "_") continue;
      factors[n][t] = rule_.factor_index(std::string(word));
      whole = whole && factors[n][t] >= 0;
    }
    if (!trim(text).empty()) {
      return wrong("'" + std::string(texts[t]) + "' names more factors than move");
    }
  }
  if (!whole) factors.clear();
  return factors;
}

// They stand before those of partial sums.
Status Parser::read_moving(std::string_view names, std::string_view tensors) {
  std::vector<std::string> moving;
  while (!trim(names).empty()) moving.emplace_back(take_word(names));
  const auto sides = split_trimmed(tensors, "->");
  if (moving.empty() || sides.size() != 2) {
    return wrong("what moves is written as 'moving row col: m k, k n -> m n'");
  }
  AUTOPAR_TRY(inputs, moving_side(sides[0], moving.size(), inputs_.shapes.size()));
  AUTOPAR_TRY(outputs, moving_side(sides[1], moving.size(), outputs_.shapes.size()));
  if (inputs.empty() || outputs.empty()) return Ok{};
  const auto first_partial =
      std::find_if(rule_.factors.begin(), rule_.factors.end(),
                   [](const Factor& factor) { return factor.kind == FactorKind::kPartial; });
  const auto first = first_partial - rule_.factors.begin();
  for (std::size_t n = 0; n < moving.size(); ++n) {
    if (rule_.factor_index(moving[n]) >= 0) return wrong("two factors " + moving[n]);
    rule_.factors.insert(rule_.factors.begin() + first + static_cast<std::ptrdiff_t>(n),
                         {.name = moving[n],
                          .size = 1,
                          .kind = FactorKind::kMoving,
                          .partial_inputs = {},
                          .moving_inputs = inputs[n],
                          .moving_outputs = outputs[n],
                          .moves_with = static_cast<int>(first)});
  }
  return Ok{};
}

}  // namespace

Result<Rule> parse_rule(const std::string& text, const OpShapes& shapes) {
  AUTOPAR_TRY(pattern, read_pattern(text));
  return Parser(text, shapes, std::move(pattern)).run();
}

}  // namespace autopar
