#include "solve/limit/columns.hpp"

#include <cmath>

#include "solve/bound/fold.hpp"
#include "solve/effort.hpp"
#include "solve/plans/combine.hpp"

namespace autopar::solver {
namespace {

using namespace effort::columns;

class Columns {
 public:
  Columns(AllTimes& all, Pricer& pricer, Priced& priced, Race& race)
      : all_(all), pricer_(pricer), priced_(priced), race_(race), like_(fold_or_alone(all.net())) {
    const Network& net = all.net();
    race.budget.add(effort::columns::kNodeWork *
                    static_cast<double>(net.nodes.size() + net.edges.size()));
  }

  void run() {
    RowPrices prices = priced_.prices;
    std::vector<int> rows;
    for (const auto& [row, price] : prices) rows.push_back(row);
    int without_news = 0;
    double last = kInfinity;
    for (int round = 0; round < effort::columns::kRounds && !race_.budget.over(); ++round) {
      const double before = gap();
      const Combination mix = combine_pool(round, prices, rows);
      if (mix.value == kInfinity || race_.closed()) break;
      prices = mix.prices;
      price_whole(prices);
      if (gap() <= effort::columns::kCloseEnough / race_.budget.effort * race_.below()) break;
      const bool converged = mix.fits && mix.value - race_.bound <= kConverged * mix.value;
      const bool better = gap() < before * (1 - effort::columns::kNews) ||
                          last - mix.value > effort::columns::kNews * (mix.value - race_.bound);
      last = mix.fits ? mix.value : kInfinity;
      priced_.mixed = last;
      without_news = better || !mix.fits ? 0 : without_news + 1;
      if (without_news >= (converged ? 1 : effort::columns::kPatience)) break;
    }
  }

 private:
  double gap() const { return race_.below() - race_.bound; }

  // The parts are those in which labellings differ from the one that is worth least at the prices.
  Combination combine_pool(int round, const RowPrices& prices, std::vector<int>& rows) {
    if (!all_.best().empty()) meet(all_.best());
    std::vector<std::vector<int>> pool;
    for (const Met& met : priced_.met) pool.push_back(met.labels);
    const std::size_t base = base_of_parts(round);
    double work = 0;
    const Parts parts = split_into_parts(all_.net(), like_, pool[base], pool, work);
    race_.budget.add(work);
    Combination mix =
        combine(parts, all_.net().capacity, prices, rows, race_.below(), race_.budget);
    if (mix.divided) priced_.divided = divided_node(parts, *mix.divided, mix.prices);
    if (!mix.variants.empty() && mix.cost < race_.below()) {
      all_.keep(labels_of(parts, mix.variants));
    }
    return mix;
  }

  // The node of the part whose uses differ most between the two variants, by the prices.
  std::optional<DividedNode> divided_node(const Parts& parts, const Divided& divided,
                                          const RowPrices& prices) const {
    const Part& part = parts.parts[divided.part];
    std::optional<DividedNode> result;
    double most = 0;
    for (std::size_t i = 0; i < part.nodes.size(); ++i) {
      const int one = part.variants[divided.one].labels[i];
      const int other = part.variants[divided.other].labels[i];
      const Vector worth = priced_uses(all_.net(), part.nodes[i], prices);
      const double difference = std::abs(worth[at(one)] - worth[at(other)]);
      if (!(difference > most)) continue;
      most = difference;
      result = {part.nodes[i], one, other};
    }
    return result;
  }

  // The best plan, if it is not far from the bound; else what is worth least at the best prices.
  // What differs from it throughout is in no part.
  std::size_t base_of_parts(int round) const {
    const bool near =
        round % 2 == 0 && race_.below() - priced_.bound < kNear * std::abs(priced_.bound);
    std::size_t base = 0;
    double least = kInfinity;
    for (std::size_t k = 0; k < priced_.met.size(); ++k) {
      const Met& met = priced_.met[k];
      if (near && met.labels == all_.best()) return k;
      const double worth = met.priced(priced_.prices);
      if (worth > least) continue;
      least = worth;
      base = k;
    }
    return base;
  }

  void meet(const std::vector<int>& labels) {
    meet_in_pool(all_.net(), labels, priced_);
    race_.budget.add(effort::columns::kNodeWork * static_cast<double>(all_.net().nodes.size()));
  }

  // The whole at these prices: a bound, and what is favoured.
  void price_whole(const RowPrices& prices) {
    std::vector<int> rows;
    for (const auto& [row, price] : prices) rows.push_back(row);
    pricer_.allow(rows);
    const double bound = pricer_.settle(prices, true);
    if (bound > priced_.bound) {
      priced_.bound = bound;
      priced_.prices = prices;
    }
    meet(pricer_.favoured());
  }

  AllTimes& all_;
  Pricer& pricer_;
  Priced& priced_;
  Race& race_;
  const Fold like_;
};

}  // namespace

void generate_columns(AllTimes& all, Pricer& pricer, Priced& priced, Race& race) {
  Columns(all, pricer, priced, race).run();
}

}  // namespace autopar::solver
