#include "planning/pipelines/unit_parts.hpp"

namespace autopar {

ChosenParts chosen_of(const StepUnits& units,
                      std::function<const UnitParts*(const StepUnits::Place&)> parts_of) {
  const StepUnits* names = &units;
  ChosenParts chosen;
  chosen.op = [names, parts_of](const std::string& name) -> const Assignment* {
    const auto place = autopar::place_of(names->ops, name);
    const UnitParts* parts = place ? parts_of(*place) : nullptr;
    if (parts == nullptr) return nullptr;
    const auto one = parts->ops.find(place->name);
    return one == parts->ops.end() ? nullptr : &one->second;
  };
  chosen.value = [names, parts_of](const std::string& name) -> const ChosenSpecs* {
    const auto place = autopar::place_of(names->values, name);
    const UnitParts* parts = place ? parts_of(*place) : nullptr;
    if (parts == nullptr) return nullptr;
    const auto one = parts->values.find(place->name);
    return one == parts->values.end() ? nullptr : &one->second;
  };
  return chosen;
}

}  // namespace autopar
