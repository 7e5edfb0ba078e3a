// What a training step's file says of its inputs: metadata_props["autopar.training"].
//
//   AUTOPAR_TRY(roles, parse_training_roles(model.metadata.at(kTrainingKey), model.path));
//   roles.states   // {"learning_rate", "adam.step", "adam.m.w", ...}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/import.hpp"

namespace autopar {

inline constexpr const char* kTrainingKey = "autopar.training";

bool has_name(const std::vector<std::string>& names, const std::string& name);
std::string first_names(const std::vector<std::string>& names,
                        std::size_t most);  // "'a', 'b' and 3 more"

struct TrainingRoles {
  std::string optimizer;     // "adamw"
  double learning_rate = 0;  // what the input `learning_rate` is fed with; 0: not said
  std::string precision;     // "mixed-bf16"
  // By name, in the order of the step's inputs.
  std::vector<std::string> data, parameters, states, statistics;
  std::vector<std::string> accumulators;  // zero at the start of a step
  // Would be parameters, but are constants of the step.
  std::vector<std::string> frozen, unreached;

  // The parameter that a state is the 16-bit copy of; empty: it is none.
  std::string copied_by(const std::string& state) const;
  // States that need not be given: the learning rate, and 16-bit copies, which are made of the
  // rest.
  bool follows(const std::string& state) const {
    return state == "learning_rate" || !copied_by(state).empty();
  }
  // The parameter whose a state or accumulator is; empty: nobody's, as the learning rate is.
  std::string parameter_of(const std::string& state) const;
};
// Errors (kInput) start with `where`.
Result<TrainingRoles> parse_training_roles(const std::string& text, const std::string& where);

// Those of an imported model; nothing where its file does not say them.
Result<std::optional<TrainingRoles>> training_roles_of(const ImportedModel& model);

}  // namespace autopar
