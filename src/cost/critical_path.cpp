#include "cost/critical_path.hpp"

namespace autopar {

std::vector<StreamPrices> CriticalPath::prices(const std::vector<OpId>& whens,
                                               const std::vector<std::int64_t>& times) const {
  const std::size_t ops = times.size();
  std::vector<StreamTimes> all(ops), on_path(ops);
  const auto add = [&](std::vector<StreamTimes>& to, const Step& step) {
    StreamTimes& of = to[whens[step.term].index()];
    (step.link == kCompute ? of.compute : of.links[static_cast<std::size_t>(step.link)]) +=
        step.seconds;
  };
  for (const Step& step : parts_) {
    if (step.is_busy) add(all, step);
  }
  std::array<Seconds, kLinks> on_links = {};
  Seconds links = 0;
  for (Part part = last_; part != kNone; part = parts_[static_cast<std::size_t>(part)].after) {
    const Step& step = parts_[static_cast<std::size_t>(part)];
    add(on_path, step);
    if (step.link == kCompute) continue;
    on_links[static_cast<std::size_t>(step.link)] += step.seconds;
    links += step.seconds;
  }
  std::vector<StreamPrices> prices(ops);
  double before = 1;  // the part of compute
  for (std::size_t o = 0; o < ops; ++o) {
    StreamTimes& weight = prices[o].weights;
    if (all[o].compute > 0) before = on_path[o].compute / all[o].compute;
    weight.compute = before;
    for (std::size_t l = 0; l < kLinks; ++l) {
      if (all[o].links[l] > 0) {
        weight.links[l] = on_path[o].links[l] / all[o].links[l];
      } else if (links > 0) {
        weight.links[l] = (1 - before) * on_links[l] / links;
      }
    }
  }
  for (const Behind& behind : behind_) {
    const std::size_t o = behind.op.index();
    prices[o].behind[static_cast<std::size_t>(behind.link)] +=
        behind.seconds / static_cast<double>(times[o]);
  }
  return prices;
}

}  // namespace autopar
