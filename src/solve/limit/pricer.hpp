// What the whole is worth at prices of its rows, and what these prices favour.
#pragma once

#include <map>
#include <memory>

#include "solve/bound/like_parts.hpp"
#include "solve/limit/all_times.hpp"
#include "solve/state/race.hpp"

namespace autopar::solver {

// Per row of the network with all times, where it is not 0.
using RowPrices = std::map<int, double>;
using TimePrices = std::map<int, double>;
TimePrices by_time(const Network& net, const RowPrices& prices);
// Of the rows that a network has. One that it has not cannot be exceeded there, or not without
// another: its price would only take from the bound.
Vector multipliers_of(const Network& net, const TimePrices& prices);

// Like parts are priced as one, on the network as it is: a price tells apart only what is in use at
// its time. Where there are few, each node is a part of its own, of a network that is reduced for
// the rows that may have prices; what is known by messages is carried from one to the next.
class Pricer {
 public:
  // `all` must outlive this. `messages`: to begin from where each node is a part of its own.
  Pricer(Race& race, const AllTimes& all, std::shared_ptr<const CarriedMessages> messages = nullptr)
      : race_(race), all_(all), messages_(std::move(messages)) {}

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
  // Labels of the network with all times.
  std::vector<int> favoured();
  // To go on from elsewhere; null: like parts are one.
  std::shared_ptr<const CarriedMessages> messages() const;

 private:
  void take_each_alone();

  Race& race_;
  const AllTimes& all_;
  std::shared_ptr<const CarriedMessages> messages_;
  std::unique_ptr<Network> reduced_;  // each of its nodes is a part; null: like parts are one
  std::vector<int> rows_;
  std::unique_ptr<LikeParts> parts_;
};

}  // namespace autopar::solver
