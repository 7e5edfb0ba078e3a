#include "planning/weights_fit.hpp"

#include "autopar/training_roles.hpp"
#include "planning/logging.hpp"

namespace autopar {

void tell_missing_states(const GivenWeights& given) {
  logging::warn(
      "warning: {}: has no optimizer states: theirs come from the seed; to begin a training, give "
      "them too (zeros)",
      given.path());
}

Status check_weights_from(const std::string& path, const TrainingStep& step,
                          const std::string& model) {
  if (path.empty()) return Ok{};
  AUTOPAR_TRY(given, GivenWeights::open(path));
  const TrainingFacts& facts = step.facts;
  const TrainingRoles roles{.optimizer = name_of(step.options.optimizer),
                            .learning_rate = step.options.learning_rate,
                            .precision = name_of(step.options.precision),
                            .data = facts.data,
                            .parameters = facts.parameters,
                            .states = facts.states,
                            .statistics = facts.statistics,
                            .accumulators = facts.accumulators,
                            .frozen = facts.frozen,
                            .unreached = facts.unreached};
  std::map<std::string, TensorType> types;
  for (ValueId input : step.graph.inputs) {
    const Value& value = step.graph.value(input);
    types[value.name] = {value.dtype, value.shape};
  }
  // What the step holds itself; files of ranks have it, too.
  for (const Value& value : step.graph.values) {
    const bool is_weight = value.kind == ValueKind::kParameter && value.has_data();
    if (is_weight) types.try_emplace(value.name, TensorType{value.dtype, value.shape});
  }
  AUTOPAR_TRY(has_states, check_fit(given, types, roles, "of " + model));
  if (!has_states) tell_missing_states(given);
  return Ok{};
}

}  // namespace autopar
