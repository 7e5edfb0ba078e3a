#include "planning/pipelines/unit_parts.hpp"

namespace autopar {

ChosenParts chosen_of(const StepUnits& units,
                      std::function<const UnitParts*(const StepUnits::Place&)> parts_of) {
  // `places` of ops or values, and `of` the same of the parts.
  const auto finder = [&parts_of](const auto& places, auto of) {
    return [&places, of, parts_of](const std::string& name) {
      const auto place = place_of(places, name);
      const UnitParts* parts = place ? parts_of(*place) : nullptr;
      const auto* all = parts == nullptr ? nullptr : &(parts->*of);
      const auto one = all == nullptr ? decltype(all->end()){} : all->find(place->name);
      return all == nullptr || one == all->end() ? nullptr : &one->second;
    };
  };
  return {finder(units.ops, &UnitParts::ops), finder(units.values, &UnitParts::values)};
}

}  // namespace autopar
