#include "search/balanced_weights.hpp"

#include <algorithm>
#include <limits>

#include "search/matrix_game.hpp"

namespace autopar {

namespace {

// A bound that can grow by less than this part is not worth another search.
constexpr double kFarApart = 0.02;

}  // namespace

StreamTimes balanced_weights(std::vector<StreamTimes> busy) {
  Seconds busiest = 0;
  for (const StreamTimes& plan : busy) busiest = std::max(busiest, plan.most());
  if (busiest == 0) return StreamTimes().sharp_weights();
  std::vector<std::vector<double>> rows(StreamTimes().all().size());
  for (StreamTimes& plan : busy) {
    const auto times = plan.all();
    for (std::size_t s = 0; s < rows.size(); ++s) rows[s].push_back(*times[s]);
  }
  const std::vector<double> mix = best_mix_of_rows(rows);
  StreamTimes weights;
  const auto to = weights.all();
  double sum = 0;
  for (std::size_t s = 0; s < to.size(); ++s) {
    sum += *to[s] = std::max(mix[s], StreamTimes::kLeastWeight);
  }
  for (Seconds* w : to) *w /= sum;
  return weights;
}

std::optional<StreamTimes> weights_of_more(const std::vector<StreamTimes>& busy, Seconds bound) {
  const StreamTimes weights = balanced_weights(busy);
  Seconds most = std::numeric_limits<Seconds>::infinity();
  for (const StreamTimes& plan : busy) most = std::min(most, plan.weighted(weights));
  return bound < (1 - kFarApart) * most ? std::optional(weights) : std::nullopt;
}

}  // namespace autopar
