#include "solve/limit/prices.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "solve/bound/master.hpp"
#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::prices;
using namespace effort::limit;

// No choices that are possible cost more.
double most_finite(const Problem& problem) {
  const auto most_of = [](const Vector& values) {
    double most = 0;
    for (double value : values) {
      if (value < kInfinity) most = std::max(most, value);
    }
    return most;
  };
  double most = 0;
  for (const ProblemNode& node : problem.nodes) most += most_of(node.cost);
  Vector of_table;
  for (const CostTable& table : problem.tables) of_table.push_back(most_of(table.values));
  for (const ProblemEdge& edge : problem.edges) {
    if (edge.cost_table >= 0) most += of_table[at(edge.cost_table)];
  }
  return most;
}

class PriceSearch {
 public:
  PriceSearch(const AllTimes& all, Pricer& pricer, Race& race)
      : net_(all.net()), pricer_(pricer), race_(race), most_(most_finite(race.problem)) {}

  Priced run(const std::vector<int>& start) {
    const bool possible = add(start);
    if (possible) add_rows(best_.met[0].excess);
    pricer_.allow(rows_);
    best_.unpriced = best_.bound = pricer_.settle({}, false);
    pricer_.keep_messages();
    if (!add(pricer_.favoured()) && !possible) return std::move(best_);
    if (!possible) add_rows(best_.met[0].excess);
    improve();
    return std::move(best_);
  }

  Priced go_on(Priced known) {
    best_ = std::move(known);
    rows_ = pricer_.rows();
    if (best_.reach > 0) reach_ = best_.reach;
    best_.bound = pricer_.settle(best_.prices, false);
    pricer_.keep_messages();
    improve();
    return std::move(best_);
  }

 private:
  void improve() {
    int in_vain = 0;
    best_.cut_off = false;
    double inwards = kInwards;
    for (int step = 0;
         step < effort::prices::kSteps && in_vain < effort::prices::kInVain && !race_.budget.over();
         ++step) {
      const Master master = solve();
      const double missing = master.value - best_.bound;
      if (missing <= effort::prices::kCloseEnough * std::abs(best_.bound)) break;
      const RowPrices now =
          between(master, in_vain == 0 ? inwards : std::max(inwards, kInwardsInVain));
      pricer_.allow(rows_);
      const double bound = pricer_.settle(now, false);
      // The first prices are too high.
      const bool begun = !best_.prices.empty();
      in_vain = begun && bound - best_.bound < kGained * missing ? in_vain + 1 : 0;
      inwards = bound > best_.bound ? kInwards : (1 + inwards) / 2;
      if (bound > best_.bound) {
        best_.bound = bound;
        best_.prices = now;
        pricer_.keep_messages();
        best_.cut_off = bound > (1 + effort::prices::kCloseEnough) * std::min(race_.below(), most_);
        if (best_.cut_off) break;
      }
      if (!add(pricer_.favoured())) ++in_vain;
      // These prices were far too high.
      if (bound < best_.unpriced) pricer_.return_to_kept();
    }
    best_.reach = reach_;
    pricer_.return_to_kept();
    best_.bound = pricer_.settle(best_.prices, true);
    // Nothing fits. Where nothing costs anything, a bound above that may be rounding.
    if (most_ > 0 && best_.bound > (1 + effort::prices::kCloseEnough) * most_)
      race_.raise(kInfinity);
  }

  // False if it was known.
  bool add(std::vector<int> labels) {
    const bool known = std::any_of(best_.met.begin(), best_.met.end(),
                                   [&](const Met& met) { return met.labels == labels; });
    if (known) return false;
    Met met = weigh(net_, std::move(labels));
    race_.budget.add(static_cast<double>(net_.nodes.size() + net_.edges.size()));
    if (!(met.cost < kInfinity)) return false;
    best_.met.push_back(std::move(met));
    return true;
  }

  bool add_rows(const Vector& excess) {
    const Vector most(excess.size(), kOver * std::abs(race_.problem.use_limit));
    bool added = false;
    for (int row : overfull_rows(excess, most, kRowsAtOnce)) {
      if (rows_.size() >= kMostRows) break;
      const auto place = std::lower_bound(rows_.begin(), rows_.end(), row);
      if (place != rows_.end() && *place == row) continue;
      rows_.insert(place, row);
      added = true;
    }
    return added;
  }

  // The best mix of what was met, with the rows that it exceeds.
  Master solve() {
    while (true) {
      Master master = solve_for_rows();
      Vector mixed(net_.capacity.size(), 0.0);
      for (std::size_t k = 0; k < master.shares.size(); ++k) {
        for (std::size_t r = 0; master.shares[k] > 0 && r < mixed.size(); ++r) {
          mixed[r] += master.shares[k] * best_.met[k].excess[r];
        }
      }
      if (at_most_ || !add_rows(mixed)) return master;
    }
  }

  // Multipliers that high make up for any cost; if they are not, they may be higher.
  Master solve_for_rows() {
    std::vector<Cut> cuts;
    double value = 0;
    Vector largest(rows_.size(), 0.0);
    for (const Met& met : best_.met) {
      cuts.push_back({.cost = met.cost});
      value = std::max(value, std::abs(met.cost));
      for (std::size_t i = 0; i < rows_.size(); ++i) {
        const double excess = met.excess[at(rows_[i])];
        cuts.back().excess.push_back({static_cast<int>(i), excess});
        largest[i] = std::max(largest[i], std::abs(excess));
      }
    }
    Vector most;
    for (double its : largest) most.push_back(its > 0 ? reach_ * value / its : 0);
    Master master = solve_master(cuts, most, race_.budget.left());
    race_.budget.add(master.work);
    at_most_ = false;
    for (std::size_t r = 0; r < most.size(); ++r) {
      at_most_ = at_most_ || (most[r] > 0 && master.multipliers[r] > 0.99 * most[r]);
    }
    if (at_most_ && reach_ < kMostReach) reach_ *= reach_ < kFarReach ? kGrowth : kFarGrowth;
    return master;
  }

  RowPrices between(const Master& master, double inwards) const {
    RowPrices prices;
    for (const auto& [row, price] : best_.prices) prices[row] = inwards * price;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      prices[rows_[i]] += (1 - inwards) * master.multipliers[i];
    }
    std::erase_if(prices, [](const auto& its) { return !(its.second > 0); });
    return prices;
  }

  const Network& net_;
  Pricer& pricer_;
  Race& race_;
  const double most_;
  std::vector<int> rows_;  // that may have prices, ascending
  double reach_ = kFirstReach;
  bool at_most_ = false;  // a price is as high as it may be: the mix does not fit yet
  Priced best_;
};

}  // namespace

double Met::priced(const RowPrices& prices) const {
  double value = cost;
  for (const auto& [row, price] : prices) value += price * excess[at(row)];
  return value;
}

Met weigh(const Network& net, std::vector<int> labels) {
  Met met = {.labels = std::move(labels)};
  met.cost = value_of(net, met.labels);
  met.excess = uses_of(net, met.labels);
  for (std::size_t r = 0; r < met.excess.size(); ++r) met.excess[r] -= net.capacity[r];
  return met;
}

Vector priced_uses(const Network& net, int n, const RowPrices& prices) {
  Vector worth(at(net.label_count(n)), 0.0);
  for (const RowUse& use : net.node(n).uses) {
    double price = 0;
    const auto end = prices.lower_bound(use.end);
    for (auto its = prices.lower_bound(use.begin); its != end; ++its) price += its->second;
    const Vector& bytes = net.algebra.vector(use.bytes);
    for (std::size_t l = 0; l < worth.size(); ++l) worth[l] += price * bytes[l];
  }
  return worth;
}

void meet_in_pool(const Network& net, const std::vector<int>& labels, Priced& priced) {
  const auto known = std::find_if(priced.met.begin(), priced.met.end(),
                                  [&](const Met& met) { return met.labels == labels; });
  if (known != priced.met.end()) {
    std::rotate(known, known + 1, priced.met.end());
    return;
  }
  if (priced.met.size() >= kPoolSize) priced.met.erase(priced.met.begin());
  priced.met.push_back(weigh(net, labels));
}

Priced find_prices(const AllTimes& all, const std::vector<int>& start, Pricer& pricer, Race& race) {
  return PriceSearch(all, pricer, race).run(start);
}

Priced find_better_prices(const AllTimes& all, Priced known, Pricer& pricer, Race& race) {
  return PriceSearch(all, pricer, race).go_on(std::move(known));
}

}  // namespace autopar::solver
