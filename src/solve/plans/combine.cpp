#include "solve/plans/combine.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "solve/bound/master.hpp"
#include "solve/effort.hpp"
#include "solve/plans/peaks.hpp"

namespace autopar::solver {
namespace {

using namespace effort::combine;
using namespace effort::limit;

// Rows in which all variants use the same are one stretch, of which the fullest row counts.
class Stretches {
 public:
  Stretches(const Parts& parts, const Vector& capacity) {
    for (const Part& part : parts.parts) {
      for (const Variant& variant : part.variants) {
        for (const Amount& use : variant.uses) {
          ends_.push_back(use.begin);
          ends_.push_back(use.end);
        }
      }
    }
    ends_.push_back(0);
    ends_.push_back(static_cast<int>(capacity.size()));
    sort_unique(ends_);
    for (std::size_t k = 0; k + 1 < ends_.size(); ++k) {
      int fullest = ends_[k];
      double least = kInfinity;
      for (int r = ends_[k]; r < ends_[k + 1]; ++r) {
        const double left = capacity[at(r)] - parts.used[at(r)];
        if (!(left < least)) continue;
        least = left;
        fullest = r;
      }
      row_.push_back(fullest);
      room_.push_back(least);
    }
  }

  int of_row(int row) const {
    return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin()) - 1;
  }
  std::size_t size() const { return row_.size(); }
  int row(std::size_t s) const { return row_[s]; }
  const Vector& room() const { return room_; }

 private:
  std::vector<int> ends_, row_;
  Vector room_;
};

double use_at(const Variant& variant, int stretch) {
  const auto behind = std::upper_bound(variant.uses.begin(), variant.uses.end(), stretch,
                                       [](int s, const Amount& use) { return s < use.begin; });
  if (behind == variant.uses.begin() || stretch >= (behind - 1)->end) return 0;
  return (behind - 1)->bytes;
}

class Combining {
 public:
  Combining(const Parts& parts, const Vector& capacity, double below, Budget& budget)
      : stretches_(parts, capacity), budget_(budget), cost_(parts.cost), below_(below) {
    for (const Part& part : parts.parts) {
      variants_.push_back(part.variants);
      live_.emplace_back(static_cast<int>(stretches_.size()), 0);
      for (Variant& variant : variants_.back()) {
        for (Amount& use : variant.uses) {
          use.begin = stretches_.of_row(use.begin);
          use.end = use.end == static_cast<int>(capacity.size())
                        ? static_cast<int>(stretches_.size())
                        : stretches_.of_row(use.end);
          live_.back().first = std::min(live_.back().first, use.begin);
          live_.back().second = std::max(live_.back().second, use.end);
        }
      }
    }
    largest_ = *std::max_element(capacity.begin(), capacity.end());
    sort_by_begin();
  }

  Combination run(const std::map<int, double>& prices, std::vector<int>& rows) {
    Combination result;
    for (int row : rows) active_.push_back(stretches_.of_row(row));
    sort_unique(active_);
    prices_.assign(stretches_.size() + 1, 0.0);
    for (const auto& [row, price] : prices) prices_[at(stretches_.of_row(row)) + 1] += price;
    sum_prices();
    begin_columns();
    optimise();
    if (at_most_ && (variants_.size() < kFewParts || overuse() < kLittle * largest_)) {
      // Where nothing is dear enough, dear prices say little: then those of before are better.
      reach_ = kVeryMost;
      optimise();
      if (at_most_) reach_ = effort::combine::kMost;
      if (at_most_) optimise();
    }
    result.value = master_.value;
    result.fits = !at_most_;
    rows.clear();
    for (std::size_t k = 0; k < active_.size(); ++k) {
      const int row = stretches_.row(at(active_[k]));
      if (!(master_.multipliers[k] > 0)) continue;
      rows.push_back(row);
      result.prices[row] = master_.multipliers[k];
    }
    result.divided = most_divided();
    choose();
    if (use_->most() <= 0) {
      result.variants = chosen_;
      result.cost = cost_;
      for (std::size_t p = 0; p < chosen_.size(); ++p) {
        result.cost += variants_[p][at(chosen_[p])].cost;
      }
    }
    return result;
  }

 private:
  void sort_by_begin() {
    by_begin_.resize(live_.size());
    std::iota(by_begin_.begin(), by_begin_.end(), std::size_t{0});
    std::stable_sort(by_begin_.begin(), by_begin_.end(),
                     [&](std::size_t a, std::size_t b) { return live_[a].first < live_[b].first; });
    int end = 0;
    for (std::size_t p : by_begin_) last_end_.push_back(end = std::max(end, live_[p].second));
  }

  // Calls visit(part) for those that may use this stretch.
  template <class Visit>
  void for_each_live(int stretch, const Visit& visit) {
    const auto behind = std::upper_bound(by_begin_.begin(), by_begin_.end(), stretch,
                                         [&](int s, std::size_t p) { return s < live_[p].first; });
    for (auto k = static_cast<std::size_t>(behind - by_begin_.begin());
         k-- > 0 && last_end_[k] > stretch;) {
      budget_.add(kPassedOverWork);
      if (live_[by_begin_[k]].second > stretch) visit(by_begin_[k]);
    }
  }

  // With further rows and variants, until there are none.
  void optimise() {
    for (int round = 0; round < effort::combine::kRounds; ++round) {
      solve();
      const std::vector<int> solved = active_;  // multipliers are of these
      const bool more_rows = add_rows(), more_columns = add_columns();
      if (!more_rows && !more_columns) break;
      if (budget_.over() || round + 1 == effort::combine::kRounds) {
        active_ = solved;
        break;
      }
    }
  }

  // By what it costs to take one of the two instead of the mix.
  std::optional<Divided> most_divided() const {
    std::optional<Divided> result;
    double most = 0;
    for (std::size_t p = 0; p < shares_.size(); ++p) {
      if (shares_[p].size() < 2) continue;
      const Divided divided = {p, shares_[p][0].second, shares_[p][1].second};
      const double loss = shares_[p][1].first * std::abs(variants_[p][divided.one].cost -
                                                         variants_[p][divided.other].cost);
      if (!(loss > most)) continue;
      most = loss;
      result = divided;
    }
    return result;
  }

  void sum_prices() {
    for (std::size_t s = 1; s < prices_.size(); ++s) prices_[s] += prices_[s - 1];
  }

  double priced(const Variant& variant) const {
    double value = variant.cost;
    for (const Amount& use : variant.uses) {
      value += (prices_[at(use.end)] - prices_[at(use.begin)]) * use.bytes;
    }
    return value;
  }

  std::vector<std::size_t> by_value(std::size_t p, Vector& values) {
    values.clear();
    for (const Variant& variant : variants_[p]) {
      values.push_back(priced(variant));
      budget_.add(static_cast<double>(variant.uses.size() + 1));
    }
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    return order;
  }

  void begin_columns() {
    Vector values;
    for (std::size_t p = 0; p < variants_.size(); ++p) {
      std::vector<std::size_t> order = by_value(p, values);
      if (order.size() > kFirstVariants) order.resize(kFirstVariants);
      columns_.push_back(std::move(order));
    }
  }

  // The first column of each part is the one that it has most of: from there it is not far.
  void solve() {
    std::vector<Cut> cuts;
    std::vector<std::pair<std::size_t, std::size_t>> of_cut;  // part, variant
    double value = std::abs(cost_);
    for (std::size_t p = 0; p < columns_.size(); ++p) {
      double most = 0;
      for (std::size_t v : columns_[p]) {
        const Variant& variant = variants_[p][v];
        most = std::max(most, variant.cost);
        Cut cut = {.cost = variant.cost, .part = static_cast<int>(p)};
        for (std::size_t k = 0; k < active_.size(); ++k) {
          const int s = active_[k];
          const double amount = use_at(variant, s) - (p == 0 ? stretches_.room()[at(s)] : 0);
          if (amount != 0) cut.excess.push_back({static_cast<int>(k), amount});
        }
        cuts.push_back(std::move(cut));
        of_cut.emplace_back(p, v);
      }
      value += most;
    }
    const Vector most(active_.size(), reach_ * value / largest_);
    master_ = solve_master(cuts, most, budget_.left());
    budget_.add(master_.work + static_cast<double>(cuts.size() * (active_.size() + 20)));
    master_.value += cost_;
    at_most_ = false;
    prices_.assign(stretches_.size() + 1, 0.0);
    for (std::size_t k = 0; k < active_.size(); ++k) {
      prices_[at(active_[k]) + 1] = master_.multipliers[k];
      at_most_ = at_most_ || master_.multipliers[k] > 0.99 * most[k];
    }
    sum_prices();
    shares_.assign(columns_.size(), {});
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      if (master_.shares[i] > 1e-9) {
        shares_[of_cut[i].first].emplace_back(master_.shares[i], of_cut[i].second);
      }
    }
    for (std::size_t p = 0; p < columns_.size(); ++p) {
      if (shares_[p].empty()) shares_[p].emplace_back(1.0, columns_[p][0]);  // by rounding
      std::stable_sort(shares_[p].begin(), shares_[p].end(),
                       [](const auto& a, const auto& b) { return a.first > b.first; });
      const auto first = std::find(columns_[p].begin(), columns_[p].end(), shares_[p][0].second);
      std::rotate(columns_[p].begin(), first, first + 1);
    }
  }

  // What the mix uses above the room, per stretch.
  Vector excess_of_mix() {
    Vector change(stretches_.size() + 1, 0.0);
    for (std::size_t p = 0; p < shares_.size(); ++p) {
      for (const auto& [share, v] : shares_[p]) {
        for (const Amount& use : variants_[p][v].uses) {
          change[at(use.begin)] += share * use.bytes;
          change[at(use.end)] -= share * use.bytes;
        }
      }
    }
    double sum = 0;
    for (std::size_t s = 0; s < stretches_.size(); ++s) {
      sum += change[s];
      change[s] = sum - stretches_.room()[s];
    }
    change.pop_back();
    budget_.add(static_cast<double>(stretches_.size()));
    return change;
  }

  double overuse() {
    const Vector excess = excess_of_mix();
    return *std::max_element(excess.begin(), excess.end());
  }

  // Of every stretch of time that the mix exceeds, the worst row.
  bool add_rows() {
    const std::size_t before = active_.size();
    const Vector allowed(stretches_.size(), kOver * largest_);
    std::vector<int> more = overfull_rows(excess_of_mix(), allowed);
    std::erase_if(more,
                  [&](int s) { return std::binary_search(active_.begin(), active_.end(), s); });
    active_.insert(active_.end(), more.begin(), more.end());
    std::sort(active_.begin(), active_.end());
    return active_.size() > before;
  }

  bool add_columns() {
    bool added = false;
    Vector values;
    for (std::size_t p = 0; p < variants_.size(); ++p) {
      const std::vector<std::size_t> order = by_value(p, values);
      double least = kInfinity;
      for (std::size_t v : columns_[p]) least = std::min(least, values[v]);
      for (std::size_t k = 0; k < std::min(kMoreVariants, order.size()); ++k) {
        if (!(values[order[k]] < least - kBetter * std::abs(master_.value))) break;
        columns_[p].push_back(order[k]);
        added = true;
      }
    }
    return added;
  }

  // What each part has most of; what is too much is taken back where it costs least.
  void choose() {
    Vector over = stretches_.room();
    for (double& value : over) value = -value;
    use_ = std::make_unique<Peaks>(over);
    chosen_.clear();
    entered_.clear();
    values_.clear();
    for (std::size_t p = 0; p < variants_.size(); ++p) {
      chosen_.push_back(static_cast<int>(shares_[p][0].second));
      apply(p, at(chosen_[p]), 1);
      entered_.emplace_back(variants_[p].size(), 0);
      values_.emplace_back();
      by_value(p, values_.back());
    }
    keep_worthy();
    std::vector<std::pair<std::size_t, int>> undo;
    if (!shrink(kInfinity, 100000, undo)) return;
    const double most = budget_.counted ? std::max(kChoosingWork, kCountedChoosing * budget_.left())
                                        : kChoosingWork;
    const BudgetShare share(budget_, BudgetShare::Most{most});
    const int sweeps = budget_.counted ? kCountedSweeps : effort::combine::kSweeps;
    for (int sweep = 0; sweep < sweeps && !budget_.over() && improve();) ++sweep;
  }

  // What is above the mix's value adds up over the parts, so only variants with less of it than
  // what is to be beaten can be part of anything better.
  void keep_worthy() {
    const double room = below_ - master_.value;
    worthy_.assign(variants_.size(), {});
    for (std::size_t p = 0; p < variants_.size(); ++p) {
      const double least = *std::min_element(values_[p].begin(), values_[p].end());
      for (std::size_t v = 0; v < values_[p].size(); ++v) {
        if (values_[p][v] - least < room) worthy_[p].push_back(v);
      }
    }
  }

  void apply(std::size_t p, std::size_t v, double sign) {
    for (const Amount& use : variants_[p][v].uses) use_->add(use.begin, use.end, sign * use.bytes);
    budget_.add(10.0 * static_cast<double>(variants_[p][v].uses.size()));
  }

  double move(std::size_t p, std::size_t v) {
    const double change = variants_[p][v].cost - variants_[p][at(chosen_[p])].cost;
    apply(p, at(chosen_[p]), -1);
    apply(p, v, 1);
    chosen_[p] = static_cast<int>(v);
    return change;
  }

  // Moves until nothing is exceeded, that cost less than `worth` and are at most so many; noted in
  // `undo`. False: not within that.
  bool shrink(double worth, int most_moves, std::vector<std::pair<std::size_t, int>>& undo) {
    ++turn_;
    for (int moves = 0; use_->most() > 0; ++moves) {
      if (moves == most_moves || budget_.over()) return false;
      const int worst = use_->fullest();
      const double over = use_->most();
      std::size_t best_part = SIZE_MAX, best = SIZE_MAX;
      double best_worth = kInfinity, best_less = 0;
      for_each_live(worst, [&](std::size_t p) {
        const Variant& now = variants_[p][at(chosen_[p])];
        const double used = use_at(now, worst);
        if (used == 0) return;
        for (std::size_t v : worthy_[p]) {
          const double less = std::min(over, used - use_at(variants_[p][v], worst));
          if (!(less > 0)) continue;
          if (entered_[p][v] == turn_ || !(variants_[p][v].cost - now.cost < worth)) continue;
          // By the prices: what is freed in other rows counts too.
          const double each = std::max(0.0, values_[p][v] - values_[p][at(chosen_[p])]) / less;
          // Of equals the first part's first.
          if (std::tuple(each, -less, p) >= std::tuple(best_worth, -best_less, best_part)) continue;
          best_worth = each;
          best_less = less;
          best_part = p;
          best = v;
        }
        budget_.add(static_cast<double>(3 * worthy_[p].size() + 3));
      });
      if (best == SIZE_MAX) return false;
      entered_[best_part][best] = turn_;
      undo.emplace_back(best_part, chosen_[best_part]);
      worth -= move(best_part, best);
      if (!(worth > 0)) return false;
    }
    return true;
  }

  // Cheaper variants, also where others must make up for them.
  bool improve() {
    bool improved = false;
    struct Candidate {
      double gain;  // by the prices
      std::size_t part, variant;
    };
    std::vector<Candidate> candidates;
    for (std::size_t p = 0; p < variants_.size(); ++p) {
      const std::size_t now = at(chosen_[p]);
      for (std::size_t v : worthy_[p]) {
        if (!(variants_[p][v].cost < variants_[p][now].cost)) continue;
        candidates.push_back({values_[p][now] - values_[p][v], p, v});
      }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
    for (const Candidate& candidate : candidates) {
      if (budget_.over()) break;
      const std::size_t p = candidate.part;
      if (!(variants_[p][candidate.variant].cost < variants_[p][at(chosen_[p])].cost)) continue;
      std::vector<std::pair<std::size_t, int>> undo = {{p, chosen_[p]}};
      const double worth = -move(p, candidate.variant);
      if (shrink(worth, kChain, undo)) {
        improved = true;
        continue;
      }
      for (auto step = undo.rbegin(); step != undo.rend(); ++step)
        move(step->first, at(step->second));
    }
    return improved;
  }

  const Stretches stretches_;
  Budget& budget_;
  double cost_;
  double largest_ = 0;
  double reach_ = effort::combine::kMost;
  std::vector<std::vector<Variant>> variants_;     // per part; uses of stretches
  std::vector<std::pair<int, int>> live_;          // per part: the stretches between its uses' ends
  std::vector<std::size_t> by_begin_;              // parts
  std::vector<int> last_end_;                      // the last end of these and those before them
  std::vector<std::vector<std::size_t>> columns_;  // per part, the variants in the program
  std::vector<int> active_;                        // stretches with a row, ascending
  Vector prices_;                                  // sums before each stretch
  Master master_;
  bool at_most_ = false;
  std::vector<std::vector<std::pair<double, std::size_t>>> shares_;  // per part, most first
  std::unique_ptr<Peaks> use_;                                       // above the room
  std::vector<int> chosen_;
  std::vector<std::vector<int>> entered_;         // per part and variant, the last turn
  std::vector<Vector> values_;                    // by the prices
  std::vector<std::vector<std::size_t>> worthy_;  // per part
  double below_;                                  // what is chosen is to cost less
  int turn_ = 0;
};

}  // namespace

Combination combine(const Parts& parts, const Vector& capacity, const std::map<int, double>& prices,
                    std::vector<int>& rows, double below, Budget& budget) {
  if (parts.parts.empty() || capacity.empty()) return {};
  return Combining(parts, capacity, below, budget).run(prices, rows);
}

}  // namespace autopar::solver
