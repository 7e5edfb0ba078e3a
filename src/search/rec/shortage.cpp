#include "search/rec/shortage.hpp"

#include <algorithm>

namespace autopar::rec {

Shortage::Shortage(const Graph& graph, const std::string& updates)
    : values_(graph.values.size()),
      charges_(memory_charges(graph, readers_of(graph), updated_inputs(graph, updates))) {}

bool Shortage::add(int time) {
  if (std::find(times_.begin(), times_.end(), time) != times_.end()) return false;
  times_.push_back(time);
  return true;
}

BytePrices Shortage::prices(double byte_price) const {
  BytePrices prices{std::vector<double>(values_, 0.0), std::vector<double>(values_, 0.0)};
  const double share = byte_price / static_cast<double>(times_.size());
  for (const MemoryCharge& charge : charges_) {
    const auto alive = std::count_if(times_.begin(), times_.end(), [&](int time) {
      return charge.begin <= time && time < charge.end;
    });
    if (alive == 0) continue;
    const double price = share * static_cast<double>(alive) * charge.copies;
    switch (charge.kind) {
      case MemoryCharge::Kind::kSpec:
        prices.made[charge.value.index()] += price;
        break;
      case MemoryCharge::Kind::kHub:
        prices.hub[charge.value.index()] += price;
        break;
      // Copies that are there only where the layouts differ.
      case MemoryCharge::Kind::kOutput:
      case MemoryCharge::Kind::kToHub:
      case MemoryCharge::Kind::kToOutput:
      case MemoryCharge::Kind::kToReader:
        break;
    }
  }
  return prices;
}

}  // namespace autopar::rec
