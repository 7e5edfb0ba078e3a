// What a byte is worth where memory is short: a Lagrange multiplier per time.
#pragma once

#include "autopar/strategy.hpp"
#include "search/rec/recursion.hpp"

namespace autopar::rec {

// When plans had their peaks. A value is worth the price once per time at which it is there.
class Shortage {
 public:
  Shortage(const Graph& graph, const std::string& updates);

  // Whether the time is a new one.
  bool add(int time);
  BytePrices prices(double byte_price) const;

 private:
  std::size_t values_;
  std::vector<MemoryCharge> charges_;
  std::vector<int> times_;
};

}  // namespace autopar::rec
