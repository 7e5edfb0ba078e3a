#include "solve/bound/carried.hpp"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "solve/bound/dual.hpp"
#include "solve/bound/wiring.hpp"

namespace autopar::solver {
namespace {

// Source: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

std::vector<std::vector<std::uint64_t>> choices_of_labels(const Network& net) {
  std::vector<std::vector<std::uint64_t>> result(net.nodes.size());
  for (std::size_t n = 0; n < result.size(); ++n) {
    for (int choice : net.origin_labels[n]) {
      result[n].push_back(mixed(mixed(static_cast<std::uint64_t>(net.origin[n])) +
                                static_cast<std::uint64_t>(choice)));
    }
  }
  for (const Step& step : net.steps) {
    if (step.kind == Step::Kind::kEliminate) continue;
    std::vector<std::uint64_t>& of = result[at(step.node)];
    std::vector<std::uint64_t> made;
    for (std::size_t l = 0; l < step.first.size(); ++l) {
      std::uint64_t value = of[at(step.first[l])];
      // A sum: it does not matter which of the two the merged node is.
      if (step.kind == Step::Kind::kMerge) value += result[at(step.other)][at(step.second[l])];
      made.push_back(value);
    }
    of = std::move(made);
  }
  return result;
}

template <class Real>
CarriedMessages DualOf<Real>::carried() const {
  CarriedMessages result;
  result.nodes.resize(net_->nodes.size());
  const Reals messages = settled_messages();
  auto choices = choices_of_labels(*net_);
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    CarriedMessages::Node& node = result.nodes[at(place.node)];
    node.choices = std::move(choices[at(place.node)]);
    for (std::size_t s = place.sides; s < place.end(); ++s) {
      const Side& side = wiring_->sides[s];
      std::vector<float>& values = node.from[wiring_->places[at(side.far)].node];
      for (int l = 0; l < place.count; ++l) {
        values.push_back(static_cast<float>(messages[side.incoming + at(side.classes[l])]));
      }
    }
  }
  return result;
}

template <class Real>
void DualOf<Real>::begin_from(const CarriedMessages& carried) {
  if (carried.empty()) return;
  const auto choices = choices_of_labels(*net_);
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    const CarriedMessages::Node& node = carried.nodes[at(place.node)];
    std::unordered_map<std::uint64_t, std::size_t> label_of;
    for (std::size_t l = 0; l < node.choices.size(); ++l) label_of.emplace(node.choices[l], l);
    for (std::size_t s = place.sides; s < place.end(); ++s) {
      const Side& side = wiring_->sides[s];
      const auto from = node.from.find(wiring_->places[at(side.far)].node);
      if (from == node.from.end()) continue;
      Reals least(at(side.count), std::numeric_limits<Real>::infinity());
      for (int l = 0; l < place.count; ++l) {
        const auto its = label_of.find(choices[at(place.node)][at(l)]);
        if (its == label_of.end()) continue;
        Real& value = least[at(side.classes[l])];
        value = std::min(value, static_cast<Real>(from->second[its->second]));
      }
      for (std::size_t c = 0; c < least.size(); ++c) {
        messages_[side.incoming + c] = std::isfinite(least[c]) ? least[c] : 0;
      }
    }
  }
  settled_ = false;
}

template CarriedMessages DualOf<float>::carried() const;
template CarriedMessages DualOf<double>::carried() const;
template void DualOf<float>::begin_from(const CarriedMessages&);
template void DualOf<double>::begin_from(const CarriedMessages&);

}  // namespace autopar::solver
