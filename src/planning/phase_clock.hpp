// How long the parts of a command took.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autopar/search.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

// Wall time by phase, in their order. `search`'s own are those of its meshes.
class PhaseClock {
 public:
  void end(const std::string& phase);
  void end_search(const SearchOutcome& outcome);
  const std::vector<std::pair<std::string, Seconds>>& phases() const { return phases_; }

 private:
  void add(const std::string& phase, Seconds seconds);
  Stopwatch watch_;
  std::vector<std::pair<std::string, Seconds>> phases_;
};

}  // namespace autopar
