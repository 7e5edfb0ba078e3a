#include "ops/rule_text.hpp"

#include <set>

namespace autopar {
namespace {

std::string mark_of(FactorKind kind) {
  for (const FactorMark& mark : kFactorMarks) {
    if (mark.kind == kind) return std::string(1, mark.sign);
  }
  return "";
}

// Writes tensors; a factor gets its mark everywhere, its size once where no shape tells it.
class Writer {
 public:
  explicit Writer(const Rule& rule) : rule_(rule) {
    for (const auto* tensors : {&rule.inputs, &rule.outputs}) {
      for (const TensorFactors& tensor : *tensors) {
        for (const auto& dim : tensor) {
          if (dim.size() == 1) has_size_.insert(dim[0]);
        }
      }
    }
  }

  std::string tensors(const std::vector<TensorFactors>& tensors) {
    std::string text;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      if (t > 0) text += ", ";
      for (std::size_t d = 0; d < tensors[t].size(); ++d) {
        if (d > 0) text += ' ';
        text += dim(tensors[t][d]);
      }
    }
    return text;
  }

 private:
  std::string dim(const std::vector<int>& factors) {
    if (factors.empty()) return "_";
    std::string text;
    for (int index : factors) {
      const Factor& factor = rule_.factors[static_cast<std::size_t>(index)];
      if (!text.empty()) text += ' ';
      text += factor.name + mark_of(factor.kind);
      if (has_size_.insert(index).second) text += "=" + std::to_string(factor.size);
    }
    return factors.size() == 1 ? text : "(" + text + ")";
  }

  const Rule& rule_;
  std::set<int> has_size_;
};

std::string numbers(const std::vector<int>& values) {
  std::string text;
  for (int value : values) text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

// "m k, k n": per tensor what each of the moving factors splits there.
std::string moving_side(const Rule& rule, const std::vector<const Factor*>& moving,
                        const std::vector<int> Factor::*side) {
  std::string text;
  for (std::size_t t = 0; t < (moving[0]->*side).size(); ++t) {
    if (t > 0) text += ",";
    for (const Factor* factor : moving) {
      const int f = (factor->*side)[t];
      text += " " + (f < 0 ? "_" : rule.factors[static_cast<std::size_t>(f)].name);
    }
  }
  return text;
}

std::string moving_text(const Rule& rule) {
  std::string text;
  for (std::size_t first = 0; first < rule.factors.size(); ++first) {
    if (rule.factors[first].moves_with != static_cast<int>(first)) continue;
    std::vector<const Factor*> moving;
    text += " | moving";
    for (const Factor& factor : rule.factors) {
      if (factor.moves_with != static_cast<int>(first)) continue;
      moving.push_back(&factor);
      text += " " + factor.name;
    }
    text += ":" + moving_side(rule, moving, &Factor::moving_inputs) + " ->" +
            moving_side(rule, moving, &Factor::moving_outputs);
  }
  return text;
}

}  // namespace

int Rule::factor_index(const std::string& name) const {
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

std::string to_text(const Rule& rule) {
  Writer writer(rule);
  const std::string inputs = writer.tensors(rule.inputs);
  const std::string outputs = writer.tensors(rule.outputs);
  std::string text = inputs + (inputs.empty() ? "" : " ") + "->" + (outputs.empty() ? "" : " ");
  text += outputs + moving_text(rule);
  std::string groups;
  for (const Factor& factor : rule.factors) {
    if (factor.kind != FactorKind::kPartial) continue;
    groups += groups.empty() ? " | partial: " : ", ";
    groups += factor.partial_inputs.empty() ? "none" : numbers(factor.partial_inputs);
  }
  for (const Factor& factor : rule.factors) {
    if (factor.kind == FactorKind::kPartial || factor.partial_inputs.empty()) continue;
    groups += " | summand " + factor.name + ": " + numbers(factor.partial_inputs);
  }
  for (const Factor& factor : rule.factors) {
    if (factor.kind != FactorKind::kHalo) continue;
    groups += " | halo " + factor.name + ": " + std::to_string(factor.halo_before) + " " +
              std::to_string(factor.halo_after);
  }
  return text + groups;
}

Result<UserRules> parse_user_rules(const std::string& text, const std::string& file) {
  UserRules rules;
  int line_number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++line_number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos || line[first] == '#') continue;
    const std::string where = file + ":" + std::to_string(line_number + 1) + ": ";
    const std::size_t open = line.find('"');
    const std::size_t close = open == std::string::npos ? open : line.find('"', open + 1);
    const std::size_t rest = close == std::string::npos ? close : close + 1;
    const std::size_t type_end = line.find_first_of(" \t\"", first);
    if (rest == std::string::npos || type_end == first) {
      return input_error(where + "expected: OpType \"rule\", as in: MyOp \"b n, n -> b n\"");
    }
    const std::size_t tail = line.find_first_not_of(" \t\r", rest);
    if (line.find_first_not_of(" \t", type_end) != open ||
        (tail != std::string::npos && line[tail] != '#')) {
      return input_error(where + "expected nothing but an op type and a rule in quotes");
    }
    const std::string type = line.substr(first, type_end - first);
    if (!rules.text_of_type.emplace(type, line.substr(open + 1, close - open - 1)).second) {
      return input_error(where + "a second rule for " + type);
    }
  }
  return rules;
}

}  // namespace autopar
