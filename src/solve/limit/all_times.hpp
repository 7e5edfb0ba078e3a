// The whole problem under its limit: where labellings that were met become plans.
#pragma once

#include <memory>
#include <vector>

#include "solve/network/network.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// The problem's network with a row for every time that can be the tightest, never reduced.
class AllTimes {
 public:
  explicit AllTimes(Race& race);

  const Network& net() const { return *net_; }
  std::vector<int> labels_of(const std::vector<int>& choices) const;
  const std::vector<int>& best() const { return best_; }  // labels; empty: none is known

  // The race's plan becomes the best.
  void take_best();
  // Labels are kept where they are better, after single ones were changed until they are within the
  // limit.
  void keep(std::vector<int> labels);
  // Of every stretch of rows that the labels exceed, the worst; where these are many, the worst of
  // all: the others mostly follow it.
  std::vector<int> overfull_rows(const std::vector<int>& labels) const;

 private:
  Race& race_;
  std::unique_ptr<Network> net_;
  std::vector<Labels> label_of_;  // per node and choice
  std::vector<int> best_;
};

}  // namespace autopar::solver
