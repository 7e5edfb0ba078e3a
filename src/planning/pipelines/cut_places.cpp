#include "planning/pipelines/cut_places.hpp"

#include <algorithm>
#include <numeric>

namespace autopar {

void CutPlaces::add(const std::vector<OpId>& cuts, const std::vector<OpId>& unit_cuts,
                    const OpSeconds& seconds, const std::vector<OpId>& decides) {
  ops.insert(ops.end(), cuts.begin(), cuts.end());
  std::sort(ops.begin(), ops.end());
  ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
  unit_ends = {0};
  for (const OpId cut : unit_cuts) unit_ends.push_back(of(cut));
  unit_ends.push_back(end());
  forward.assign(end() + 1, 0);
  backward = inputs = forward;
  for (std::size_t o = 0; o < decides.size(); ++o) {
    if (!decides[o].valid()) continue;
    const std::size_t after = of(decides[o]) + 1;
    forward[after] += seconds.forward[o];
    backward[after] += seconds.backward[o];
    inputs[after] += seconds.inputs[o];
  }
  std::partial_sum(forward.begin(), forward.end(), forward.begin());
  std::partial_sum(backward.begin(), backward.end(), backward.begin());
  std::partial_sum(inputs.begin(), inputs.end(), inputs.begin());
}

std::size_t CutPlaces::of(OpId op) const {
  return static_cast<std::size_t>(std::upper_bound(ops.begin(), ops.end(), op) - ops.begin());
}

Parts CutPlaces::parts(const Cluster& stage) const {
  return {forward, backward, inputs, unit_ends, static_cast<double>(stage.device_count())};
}

}  // namespace autopar
