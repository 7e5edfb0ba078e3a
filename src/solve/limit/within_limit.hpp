// The memory limit at the times where it matters, which are found on the way.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>

#include "solve/limit/halves.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// What a search for prices has learnt, for another one on the same problem.
struct LearntPrices {
  Priced priced;          // of what was met the labels only: the rest follows from them
  std::vector<int> rows;  // that may have prices
  std::shared_ptr<const CarriedMessages> messages;
  bool has_plans = false;
  std::set<int> times;
  TimePrices prices;
};

// Choices below the race's cutoff that fit its problem's limit, and a bound.
class LimitedSearch {
 public:
  // Begins with possible choices, or none, that do not fit or are to be beaten; and with the
  // messages of a network without the limit, where there are any.
  LimitedSearch(Race& race, std::vector<int> start,
                std::shared_ptr<const CarriedMessages> messages = nullptr);

  // Prices of the times that are too full, from the labellings that they favour.
  void price();
  // In place of that: from what another search had learnt.
  void price_from(LearntPrices learnt);
  // Nothing where that would not be worth it.
  std::optional<LearntPrices> learnt() const;
  // Plans combined from these labellings, and better prices; once.
  void find_plans();
  // What is left open, on the network that has the limit at those times only, and is reduced for
  // them: nodes and edges that are not live at these times are eliminated like any others. Its
  // bound is one of the whole; where its solution does not fit at further times, these are added.
  void close();
  // Of the node that the best mix divides, the choices in two parts; none: no node is.
  std::vector<Kept> halves() const;

 private:
  void price_few_times();
  void combine();
  void price_all_times();
  bool branch();
  double closing_work() const;
  enum class To { kPrices, kFirstRound, kTheEnd };
  void solve_relaxed(To to);
  void move_prices(const Network& net, Dual& dual, double& cutoff, Incumbent& best);
  void note_prices(const Network& net, const Dual& dual);
  void meet(const std::vector<int>& choices);

  Race& race_;
  Budget& budget_;
  const std::vector<int> start_;
  std::shared_ptr<const CarriedMessages> messages_;
  AllTimes all_;
  std::unique_ptr<Pricer> pricer_;  // of the whole; null: not for this problem
  bool has_plans_ = false;
  Priced priced_;
  std::set<int> times_;  // that have rows
  TimePrices prices_;
};

// Plans within the limit, and the bound on these: prices, columns, mixes, halves, then the whole at
// some times.
void search_within_limit(Race& race, const std::vector<int>& start);

}  // namespace autopar::solver
