#include "planning/zero.hpp"

#include <array>
#include <utility>

#include "autopar/training_roles.hpp"

namespace autopar {
namespace {

constexpr std::array kNames = {std::pair("auto", Zero::kAuto), std::pair("off", Zero::kOff),
                               std::pair("1", Zero::kStates), std::pair("2", Zero::kGradients),
                               std::pair("3", Zero::kParameters)};

class Rules {
 public:
  Rules(Zero zero, const ImportedModel& model, const TrainingRoles& roles)
      : zero_(zero), graph_(model.graph), roles_(roles) {
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const Value& value = graph_.values[v];
      const bool is_stored = value.kind == ValueKind::kInput || value.kind == ValueKind::kParameter;
      if (is_stored) ids_[value.name] = ValueId(static_cast<std::int64_t>(v));
    }
    for (const std::string& state : roles_.states) {
      const std::string parameter = roles_.copied_by(state);
      if (!parameter.empty()) copy_of_[parameter] = state;
    }
  }

  std::map<ValueId, StoredRule> run() {
    for (const auto* names : {&roles_.frozen, &roles_.unreached}) {
      for (const std::string& name : *names) add_read(name);
    }
    for (const std::string& name : roles_.parameters) {
      add_read(read_by_passes(name));
      if (copy_of_.count(name) != 0) add_other(name, name, zero_ >= Zero::kStates);
    }
    for (const std::string& name : roles_.states) {
      if (roles_.copied_by(name).empty()) add_other(name, roles_.parameter_of(name), is_split());
    }
    for (const std::string& name : roles_.accumulators) {
      add_other(name, roles_.parameter_of(name), zero_ >= Zero::kGradients);
    }
    return std::move(rules_);
  }

 private:
  bool is_split() const { return zero_ >= Zero::kStates; }

  const std::string& read_by_passes(const std::string& parameter) const {
    const auto copy = copy_of_.find(parameter);
    return copy == copy_of_.end() ? parameter : copy->second;
  }

  void add_read(const std::string& name) {
    using Kind = StoredRule::Kind;
    add(name, {zero_ == Zero::kParameters ? Kind::kSplit : Kind::kAsRead, {}});
  }

  void add_other(const std::string& name, const std::string& parameter, bool split) {
    if (parameter.empty()) return;
    const auto like = ids_.find(read_by_passes(parameter));
    if (split) {
      add(name, {StoredRule::Kind::kSplit, {}});
    } else if (like != ids_.end()) {
      add(name, {StoredRule::Kind::kLike, like->second});
    }
  }

  // Single numbers lie one way.
  void add(const std::string& name, const StoredRule& rule) {
    const auto id = ids_.find(name);
    if (id == ids_.end() || element_count(graph_.value(id->second).shape) == 1) return;
    rules_[id->second] = rule;
  }

  const Zero zero_;
  const Graph& graph_;
  const TrainingRoles& roles_;
  std::map<std::string, ValueId> ids_;  // of inputs and parameters
  std::map<std::string, std::string> copy_of_;
  std::map<ValueId, StoredRule> rules_;
};

}  // namespace

std::optional<Zero> parse_zero(const std::string& text) {
  for (const auto& [name, zero] : kNames) {
    if (text == name) return zero;
  }
  return std::nullopt;
}

std::optional<int> level_of(Zero zero) {
  if (zero == Zero::kAuto) return std::nullopt;
  return static_cast<int>(zero) - static_cast<int>(Zero::kOff);
}

Result<std::map<ValueId, StoredRule>> stored_rules(Zero zero, const ImportedModel& model) {
  if (zero == Zero::kAuto) return std::map<ValueId, StoredRule>();
  AUTOPAR_TRY(roles, training_roles_of(model));
  if (!roles) {
    return input_error(model.path +
                       ": --zero: the file does not say which of its inputs are parameters and "
                       "optimizer states; `--train` makes a step that does");
  }
  return Rules(zero, model, *roles).run();
}

}  // namespace autopar
