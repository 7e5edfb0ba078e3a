#include "comm/steps.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace autopar {

namespace {

// Where all axes of a collective are.
struct Place {
  std::size_t d = 0;
  std::int64_t start = 1;
  std::int64_t end = 1;
};

std::optional<Place> place_of(const DigitSpec& spec, const AxisList& axes) {
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    std::optional<Place> place;
    for (const Digits& digits : spec.dims[d]) {
      if (std::find(axes.begin(), axes.end(), digits.axis) == axes.end()) continue;
      if (!place) place = {d, digits.start, digits.end};
      place->end = digits.end;
    }
    if (place) return place;
  }
  return std::nullopt;
}

// By dimension, the numbers of parts after which it is cut.
using Cuts = std::vector<std::set<std::int64_t>>;

// Around what is left out before something that is not.
void add_gaps(const DigitSpec& spec, Cuts& cuts) {
  for (std::size_t d = 0; d < spec.dims.size(); ++d) {
    std::int64_t end = 1;
    for (const Digits& digits : spec.dims[d]) {
      if (digits.start != end) cuts[d].insert({end, digits.start});
      end = digits.end;
    }
  }
}

// Around a place that is not the minor end of one block.
void add_place(const DigitSpec& spec, const Place& place, Cuts& cuts) {
  const bool at_end = spec.dims[place.d].back().end == place.end;
  if (!at_end || !cuts[place.d].empty()) cuts[place.d].insert({place.start, place.end});
}

}  // namespace

CollectiveStep step_between(const DigitSpec& from, const DigitSpec& to, CollectiveKind kind,
                            const AxisList& axes, const Shape& shape) {
  const std::optional<Place> source = place_of(from, axes), target = place_of(to, axes);
  Cuts cuts(shape.size());
  add_gaps(from, cuts);
  add_gaps(to, cuts);
  if (source) add_place(from, *source, cuts);
  if (target) add_place(to, *target, cuts);
  CollectiveStep step;
  std::vector<std::size_t> first;  // piece of each dimension
  std::vector<std::vector<std::int64_t>> starts(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    cuts[d].insert(1);
    cuts[d].erase(shape[d]);
    if (shape[d] == 1) cuts[d] = {1};
    starts[d].assign(cuts[d].begin(), cuts[d].end());
    first.push_back(step.shape.size());
    for (std::size_t i = 0; i < starts[d].size(); ++i) {
      const std::int64_t end = i + 1 < starts[d].size() ? starts[d][i + 1] : shape[d];
      step.shape.push_back(end / starts[d][i]);
    }
  }
  const auto piece = [&](std::size_t d, std::int64_t start) {
    const auto after = std::upper_bound(starts[d].begin(), starts[d].end(), start);
    return first[d] + static_cast<std::size_t>(after - starts[d].begin()) - 1;
  };
  step.spec = replicated(step.shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (const Digits& digits : to.dims[d]) {
      step.spec.dims[piece(d, digits.start)].push_back(digits.axis);
    }
  }
  step.spec.partial = to.partial;
  step.spec.reduction = to.reduction;
  const bool reduces = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
  const auto dimension = [&](const std::optional<Place>& place) {
    return place ? static_cast<int>(piece(place->d, place->start)) : -1;
  };
  step.collective = {kind, axes, dimension(target ? target : source),
                     source && target ? dimension(source) : -1,
                     reduces ? from.reduction : Reduction::kSum};
  return step;
}

}  // namespace autopar
