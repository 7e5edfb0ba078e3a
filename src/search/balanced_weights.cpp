#include "search/balanced_weights.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace autopar {

namespace {

// With six streams the mean is within ln 6 / (kRate kRounds) + kRate / 8 of the best, 0.7 % of the
// busiest time, after some milliseconds.
constexpr int kRounds = 20000;
constexpr double kRate = 0.03;
// A bound that can grow by less than this part is not worth another search.
constexpr double kFarApart = 0.02;

}  // namespace

StreamTimes balanced_weights(std::vector<StreamTimes> busy) {
  Seconds busiest = 0;
  for (const StreamTimes& plan : busy) busiest = std::max(busiest, plan.most());
  if (busiest == 0) return StreamTimes().sharp_weights();
  StreamTimes gained, mean;
  for (int round = 0; round < kRounds; ++round) {
    StreamTimes weights = gained;
    const Seconds most = gained.most();
    double sum = 0;
    for (Seconds* w : weights.all()) sum += * w = std::exp(kRate * (*w - most));
    for (Seconds* w : weights.all()) *w /= sum;
    const auto fastest =
        std::min_element(busy.begin(), busy.end(), [&](const StreamTimes& a, const StreamTimes& b) {
          return a.weighted(weights) < b.weighted(weights);
        });
    const auto to = gained.all(), means = mean.all(), of_round = weights.all();
    const auto taken = fastest->all();
    for (std::size_t s = 0; s < to.size(); ++s) {
      *to[s] += *taken[s] / busiest;
      *means[s] += *of_round[s];
    }
  }
  double sum = 0;
  for (Seconds* w : mean.all()) sum += * w = *w / kRounds + StreamTimes::kLeastWeight;
  for (Seconds* w : mean.all()) *w /= sum;
  return mean;
}

std::optional<StreamTimes> weights_of_more(const std::vector<StreamTimes>& busy, Seconds bound) {
  const StreamTimes weights = balanced_weights(busy);
  Seconds most = std::numeric_limits<Seconds>::infinity();
  for (const StreamTimes& plan : busy) most = std::min(most, plan.weighted(weights));
  return bound < (1 - kFarApart) * most ? std::optional(weights) : std::nullopt;
}

}  // namespace autopar
