// What the whole is worth at prices of its rows, and what these prices favour.
#pragma once

#include <map>
#include <memory>

#include "solve/bound/like_parts.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// Per row of the network with all times, where it is not 0.
using RowPrices = std::map<int, double>;

// Like parts are priced as one, on the network as it is: a price tells apart only what is in use at
// its time. Where there are few, each node is a part of its own.
class Pricer {
 public:
  // `all` has a row for every time that can be the tightest, and must outlive this.
  Pricer(Race& race, const Network& all) : race_(race), all_(all) {}

  // These rows (ascending) may have prices from now on, beside those before.
  void allow(const std::vector<int>& rows);
  const std::vector<int>& rows() const { return rows_; }
  // The bound at these prices, as good as few passes make it; `exactly`: with passes that make it
  // one to rely on, and that is told to the race.
  double settle(const RowPrices& prices, bool exactly);
  // Messages as they are, to begin from again: at prices that are far too high they get lost, and
  // few passes do not find back.
  void keep_messages() { parts_->keep_messages(); }
  void return_to_kept() { parts_->return_to_kept(); }
  // Labels of the network.
  std::vector<int> favoured();

 private:
  Race& race_;
  const Network& all_;
  bool alone_ = false;
  std::vector<int> rows_;
  std::unique_ptr<LikeParts> parts_;
};

}  // namespace autopar::solver
