// What the whole is worth at prices of its rows, and what these prices favour.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "solve/bound/like_parts.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// Per row of the network with all times, where it is not 0.
using RowPrices = std::map<int, double>;

// Like parts are priced as one, on the network as it is: a price tells apart only what is in use at
// its time. Where there are few, single nodes of a network that is reduced for the rows that may
// have prices.
class Pricer {
 public:
  // `all` has a row for every time that can be the tightest, and must outlive this.
  Pricer(Race& race, const Network& all, bool fold) : race_(race), all_(all), folds_(fold) {}

  // These rows (ascending) may have prices from now on, beside those before.
  void allow(const std::vector<int>& rows);
  const std::vector<int>& rows() const { return rows_; }
  // The bound at these prices, as good as few passes make it; `exactly`: with passes that make it
  // one to rely on, and that is told to the race.
  double settle(const RowPrices& prices, bool exactly);
  // Nothing is within the capacities, or below the cutoff.
  bool exhausted() const { return exhausted_; }
  // Labels of the network with all times.
  std::vector<int> favoured();

 private:
  void reduce_for_rows();
  int row_of(int time) const;
  std::vector<int> labels_of_all(const std::vector<int>& labels) const;

  Race& race_;
  const Network& all_;
  bool folds_;
  bool exhausted_ = false;
  bool fresh_ = false;  // no messages of single nodes yet
  std::vector<int> rows_;
  std::unique_ptr<LikeParts> like_;
  // Where nothing is alike.
  std::unique_ptr<Network> reduced_;
  std::optional<Dual> dual_;
  std::optional<Dual> best_;  // at the prices with the best bound: the next begins there
};

}  // namespace autopar::solver
