#include "planning/pipelines/pinned_stages.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "autopar/pattern.hpp"
#include "planning/gemm_pins.hpp"
#include "planning/input_pins.hpp"
#include "search/pins.hpp"

namespace autopar {

namespace {

// Of each op of the forward pass: its own name, and that of the user's op that it is made of.
std::map<std::string, std::vector<std::string>> names_of_ops(const ImportedModel& model,
                                                             const Graph& step) {
  std::map<std::string, std::vector<std::string>> names;
  for (const Op& op : step.ops) {
    if (op.phase == Phase::kForward) names[op.name] = {op.name};
  }
  for (const auto& [user, ops] : *model.ops_of_user_op) {
    for (const std::string& op : ops) {
      if (const auto own = names.find(op); own != names.end()) own->second.push_back(user);
    }
  }
  return names;
}

std::string nearest_of(const std::string& name, const std::set<std::string>& known) {
  const std::string near = nearest_name(name, {known.begin(), known.end()});
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

}  // namespace

std::string why_absent(const ImportedModel& model, const std::string& name) {
  const auto known = model.ops_of_user_op->find(name);
  if (known == model.ops_of_user_op->end()) return "the model's forward pass has no such op";
  return "it was folded into a constant or removed at import, or the loss does not depend on it, "
         "or it is no op of the forward pass";
}

Status check_op_names(const StrategyFile& file, const ImportedModel& model, const Graph& step) {
  std::set<std::string> known;
  for (const Op& op : step.ops) known.insert(op.name);
  for (const auto& [name, pin] : file.pins.ops) {
    if (known.count(name) != 0 || known.count(base_of(name)) != 0) continue;
    if (model.ops_of_user_op->count(name) != 0) continue;
    return input_error(file.path + ": op '" + name + "': the step has no op of that name" +
                       nearest_of(name, known));
  }
  return Ok{};
}

Status name_as_imported(const ImportedModel& model, const GraphRules& rules, StrategyFile& file) {
  const Graph& step = model.graph;
  std::set<std::string> known;
  for (const Op& op : step.ops) known.insert(op.name);
  for (const auto& [user, ops] : *model.ops_of_user_op) {
    const auto pin = file.pins.ops.find(user);
    if (pin == file.pins.ops.end() || known.count(user) != 0) continue;
    if (ops.size() != 1) {
      std::string list;
      for (const std::string& op : ops) list += (list.empty() ? "'" : ", '") + op + "'";
      return input_error(file.path + ": op '" + user + "' " +
                         (ops.empty()
                              ? "was folded into a constant or removed at import; it cannot "
                                "be split"
                              : "became several at import; pin these: " + list));
    }
    auto own = file.pins.ops.extract(pin);
    own.key() = ops.front();
    file.pins.ops.insert(std::move(own));
    auto type = file.op_types.extract(user);
    if (type.empty()) continue;
    type.key() = ops.front();
    file.op_types.insert(std::move(type));
  }
  std::map<std::string, OpPin> implied;
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const auto pin = file.pins.ops.find(step.ops[o].name);
    if (step.ops[o].type != "Gemm" || pin == file.pins.ops.end()) continue;
    auto of_gemm = pin_gemm(pin->second, step, rules, OpId(static_cast<std::int64_t>(o)), implied);
    if (!of_gemm) return input_error(file.path + ": " + of_gemm.error().message);
    pin->second = std::move(*of_gemm);
  }
  file.pins.ops.merge(implied);
  return Ok{};
}

Status check_tensor_names(const StrategyFile& file, const Graph& step) {
  std::set<std::string> known;
  for (const Value& value : step.values) known.insert(value.name);
  for (const auto& [name, pin] : file.pins.values) {
    if (known.count(name) != 0 || known.count(base_of(name)) != 0) continue;
    return input_error(file.path + ": tensor '" + name + "': the step has no tensor of that name" +
                       nearest_of(name, known));
  }
  return Ok{};
}

Result<std::vector<int>> pinned_stages(const StrategyFile& file, const ImportedModel& model,
                                       const Graph& step) {
  const auto names = names_of_ops(model, step);
  std::map<std::string, std::size_t> said;  // by op: the length of what said it
  std::map<std::string, int> stages;
  for (const auto& [pattern, stage] : file.stage_of_ops) {
    const bool is_name = pattern.find_first_of("*?") == std::string::npos;
    const std::size_t weight = is_name ? std::string::npos : pattern.size();
    bool any = false;
    for (const auto& [op, own] : names) {
      if (std::none_of(own.begin(), own.end(),
                       [&](const std::string& name) { return matches(pattern, name); })) {
        continue;
      }
      any = true;
      if (said[op] > weight) continue;
      said[op] = weight;
      stages[op] = stage;
    }
    if (!any) {
      return input_error(file.path + ": op '" + pattern + "' has a pipeline_stage, and " +
                         why_absent(model, pattern) + "; leave it out");
    }
  }
  std::vector<int> found(step.ops.size(), -1);
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const auto stage = stages.find(step.ops[o].name);
    if (step.ops[o].phase == Phase::kForward && stage != stages.end()) found[o] = stage->second;
  }
  return found;
}

}  // namespace autopar
