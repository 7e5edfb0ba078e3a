// What plans of the units of a step choose, and chunks that are made of them.
#pragma once

#include <functional>
#include <map>

#include "planning/parts_of_step.hpp"
#include "planning/pipelines/step_units.hpp"

namespace autopar {

// What a plan of a unit chooses, by the names of its graph.
struct UnitParts {
  std::map<std::string, Assignment> ops;
  std::map<std::string, ChosenSpecs> values;
};

// What is chosen of the ops and values of a step whose units take these plans; null: none. `units`
// must live as long.
ChosenParts chosen_of(const StepUnits& units,
                      std::function<const UnitParts*(const StepUnits::Place&)> parts_of);

}  // namespace autopar
