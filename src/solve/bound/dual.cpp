#include "solve/bound/dual.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "solve/bound/kernel.hpp"
#include "solve/bound/wiring.hpp"
#include "solve/effort.hpp"

namespace autopar::solver {
namespace {

using namespace effort::dual;

// The least per class of the side's near labels.
template <class Side, class Real>
void least_per_class(const Side& side, const std::vector<Real>& hat, std::vector<Real>& result) {
  result.assign(at(side.count), std::numeric_limits<Real>::infinity());
  for (std::size_t l = 0; l < hat.size(); ++l) {
    Real& least = result[at(side.classes[l])];
    least = hat[l] < least ? hat[l] : least;
  }
}

}  // namespace

template <class Real>
DualOf<Real>::DualOf(const Network& net, const Fold& fold)
    : net_(&net),
      wiring_(std::make_shared<const Wiring<Real>>(net, fold)),
      messages_(wiring_->messages, 0),
      least_(wiring_->places.size(), 0.0),
      tables_(wiring_->tables),
      multipliers_(net.multiplier),
      constant_(net.constant),
      bound_(net.constant),
      exhausted_(net.impossible) {
  theta_.reserve(wiring_->labels);
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    const Vector& cost = net.cost(place.node);
    theta_.insert(theta_.end(), cost.begin(), cost.end());
  }
}

template <class Real>
double DualOf<Real>::labels_alive() const {
  return static_cast<double>(
      std::count_if(theta_.begin(), theta_.end(), [](Real t) { return t < kInfinity; }));
}

template <class Real>
const Real* DualOf<Real>::incoming_of(const Side& side, const Reals& messages, Reals& least) const {
  if (side.role < 0) return messages.data() + side.incoming;
  least.assign(at(side.count), std::numeric_limits<Real>::infinity());
  for (std::size_t s : wiring_->roles[at(side.role)]) {
    const Real* incoming = messages.data() + wiring_->sides[s].incoming;
    for (std::size_t c = 0; c < least.size(); ++c) {
      least[c] = incoming[c] < least[c] ? incoming[c] : least[c];
    }
  }
  return least.data();
}

template <class Real>
void DualOf<Real>::collect(const Place& place, const Reals& messages, Reals& hat) const {
  const auto begin = theta_.begin() + static_cast<std::ptrdiff_t>(place.theta);
  hat.assign(begin, begin + place.count);
  Reals least;
  for (std::size_t s = place.sides; s < place.end(); ++s) {
    const Side& side = wiring_->sides[s];
    const Real* incoming = incoming_of(side, messages, least);
    if (side.copies == 1) {
      for (std::size_t l = 0; l < hat.size(); ++l) hat[l] += incoming[side.classes[l]];
    } else {
      for (std::size_t l = 0; l < hat.size(); ++l) {
        hat[l] += side.copies * incoming[side.classes[l]];
      }
    }
  }
}

// hat_ has what a copy has, its least taken off.
template <class Real>
void DualOf<Real>::send(const Side& side) {
  const Real* incoming = incoming_of(side, messages_, far_);
  // What the others in the role got is the rest of the neighbour.
  if (side.role >= 0) {
    std::copy(far_.begin(), far_.end(),
              messages_.begin() + static_cast<std::ptrdiff_t>(side.incoming));
  }
  least_per_class(side, hat_, per_class_);
  const Real share = share_of(side);
  for (std::size_t c = 0; c < per_class_.size(); ++c) {
    if (per_class_[c] < kInfinity) per_class_[c] = share * per_class_[c] - incoming[c];
  }
  Real* outgoing = messages_.data() + side.outgoing;
  const Real* table = tables_[at(side.edge)];
  if (side.by_rows) {
    min_plus_rows(outgoing, per_class_.data(), table, at(side.count), at(side.far_count));
  } else {
    min_plus_columns(outgoing, per_class_.data(), table, at(side.far_count), at(side.count));
  }
}

template <class Real>
void DualOf<Real>::process(std::size_t c, bool forward, double cutoff) {
  const Place& place = wiring_->places[c];
  if (place.count == 0) return;
  collect(place, messages_, hat_);
  const Real least = *std::min_element(hat_.begin(), hat_.end());
  if (!(least < kInfinity)) {
    exhausted_ = true;
    return;
  }
  bound_ += place.copies * (least - least_[c]);
  least_[c] = least;
  const double room = cutoff - bound_;
  Real* theta = theta_.data() + place.theta;
  for (std::size_t l = 0; l < hat_.size(); ++l) {
    hat_[l] -= least;
    if (!(hat_[l] < room)) theta[l] = hat_[l] = std::numeric_limits<Real>::infinity();
  }
  const std::size_t begin = forward ? place.middle() : place.sides;
  const std::size_t end = forward ? place.end() : place.middle();
  for (std::size_t s = begin; s < end; ++s) send(wiring_->sides[s]);
}

template <class Real>
void DualOf<Real>::pass(double cutoff) {
  ++turn_;
  // After a change of multipliers, or with messages from elsewhere, terms may be negative; the way
  // forward mends that.
  for (std::size_t p = 0; p < least_.size() && !exhausted_; ++p) {
    process(p, true, settled_ ? cutoff : kInfinity);
  }
  settled_ = true;
  for (std::size_t p = least_.size(); p-- > 0 && !exhausted_;) process(p, false, cutoff);
  // Anew, so that errors of rounding do not add up.
  bound_ = constant_;
  for (std::size_t p = 0; p < least_.size(); ++p) bound_ += wiring_->places[p].copies * least_[p];
}

template <class Real>
void DualOf<Real>::set_multipliers(const Vector& multipliers) {
  Vector change = multipliers;  // what is not yet in the network's costs
  constant_ = net_->constant;
  for (std::size_t r = 0; r < multipliers.size(); ++r) {
    change[r] -= net_->multiplier[r];
    constant_ -= change[r] * net_->capacity[r];
  }
  const PriceSums prices(change);
  bound_ = constant_;
  std::fill(least_.begin(), least_.end(), 0.0);
  multipliers_ = multipliers;
  Vector cost;
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    cost = net_->cost(place.node);
    add_worth(*net_, place.node, prices, 1, cost);
    Real* theta = theta_.data() + place.theta;
    for (std::size_t l = 0; l < cost.size(); ++l) {
      if (theta[l] < kInfinity) theta[l] = static_cast<Real>(cost[l]);
    }
  }
  price_edges(prices);
  settled_ = false;
}

template <class Real>
void DualOf<Real>::price_edges(const PriceSums& prices) {
  for (std::size_t f = 0; f < tables_.size(); ++f) {
    const Edge& edge = net_->edge(wiring_->edge_in[f]);
    if (edge.uses.empty()) continue;
    tables_[f] = wiring_->tables[f];
    std::shared_ptr<Reals> priced;
    for (const RowUse& use : edge.uses) {
      const double price = prices.of(use);
      if (price == 0) continue;
      const Vector& bytes = net_->algebra.core(use.bytes).values;
      if (priced == nullptr) {
        priced = std::make_shared<Reals>(tables_[f], tables_[f] + bytes.size());
      }
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        (*priced)[i] += static_cast<Real>(price * bytes[i]);
      }
    }
    if (priced != nullptr) tables_[f] = priced->data();
    priced_.resize(tables_.size());
    priced_[f] = std::move(priced);
  }
}

// After a pass, which ends backward, a class has sent its share to the earlier ones; here that is
// taken off what came in from them, so that the edges' terms are >= 0 without it.
template <class Real>
auto DualOf<Real>::settled_messages() const -> Reals {
  Reals result = messages_, hat, per_class;
  for (const Place& place : wiring_->places) {
    if (place.count == 0) continue;
    collect(place, messages_, hat);
    const Real least = *std::min_element(hat.begin(), hat.end());
    if (!(least < kInfinity)) continue;
    for (Real& value : hat) value -= least;
    for (std::size_t s = place.sides; s < place.middle(); ++s) {
      const Side& side = wiring_->sides[s];
      least_per_class(side, hat, per_class);
      for (std::size_t c = 0; c < per_class.size(); ++c) {
        if (per_class[c] < kInfinity) result[side.incoming + c] -= share_of(side) * per_class[c];
      }
    }
  }
  return result;
}

template <class Real>
template <class Other>
void DualOf<Real>::take_over(const DualOf<Other>& other, const std::vector<int>& edge_of) {
  // Where messages come in, per edge, at its rows and at its columns.
  std::vector<std::array<std::size_t, 2>> places(other.tables_.size());
  for (const auto& side : other.wiring_->sides) {
    places[at(side.edge)][side.by_rows ? 0 : 1] = side.incoming;
  }
  const auto theirs = other.settled_messages();
  for (const Side& side : wiring_->sides) {
    const int from = edge_of[at(side.edge)];
    if (from < 0) continue;
    const std::size_t begin = places[at(from)][side.by_rows ? 0 : 1];
    for (std::size_t c = 0; c < at(side.count); ++c) {
      const auto message = static_cast<Real>(theirs[begin + c]);
      // A class that has no label left there says nothing.
      messages_[side.incoming + c] = std::isfinite(message) ? message : 0;
    }
  }
  settled_ = false;
}

template <class Real>
void DualOf<Real>::extrapolate(const DualOf& before, double times) {
  for (std::size_t m = 0; m < messages_.size(); ++m) {
    const auto further = static_cast<Real>(times * (messages_[m] - before.messages_[m]));
    if (std::isfinite(further)) messages_[m] += further;
  }
  settled_ = false;
}

template <class Real>
void DualOf<Real>::weigh(const Place& place, const std::vector<int>& labels, Reals& sum) const {
  const auto begin = theta_.begin() + static_cast<std::ptrdiff_t>(place.theta);
  sum.assign(begin, begin + place.count);
  for (std::size_t s = place.sides; s < place.end(); ++s) {
    const Side& side = wiring_->sides[s];
    const Real* values = messages_.data() + side.incoming;
    std::size_t stride = 1;
    if (labels[at(side.far)] >= 0) {
      const std::size_t far = at(wiring_->sides[side.twin].classes[labels[at(side.far)]]);
      const Real* table = tables_[at(side.edge)];
      values = side.by_rows ? table + far : table + far * at(side.count);
      stride = side.by_rows ? at(side.far_count) : 1;
    }
    for (std::size_t l = 0; l < sum.size(); ++l) {
      sum[l] += side.copies * values[at(side.classes[l]) * stride];
    }
  }
}

template <class Real>
std::vector<int> DualOf<Real>::decode() const {
  std::vector<int> labels(least_.size(), -1);
  Reals sum;
  for (std::size_t c = 0; c < labels.size(); ++c) {
    const Place& place = wiring_->places[c];
    if (place.count == 0) {
      labels[c] = 0;
      continue;
    }
    weigh(place, labels, sum);
    labels[c] = static_cast<int>(std::min_element(sum.begin(), sum.end()) - sum.begin());
  }
  return labels;
}

// After the first sweep only those are looked at again that have a neighbour with a new label.
template <class Real>
void DualOf<Real>::improve(std::vector<int>& labels) const {
  std::vector<char> due(labels.size(), 1);
  bool changed = true;
  Reals sum;
  for (int sweep = 0; sweep < effort::dual::kSweeps && changed; ++sweep) {
    changed = false;
    for (std::size_t c = 0; c < labels.size(); ++c) {
      const Place& place = wiring_->places[c];
      if (!due[c] || place.count == 0) continue;
      due[c] = 0;
      weigh(place, labels, sum);
      const auto best = std::min_element(sum.begin(), sum.end());
      if (!(*best < sum[at(labels[c])])) continue;
      labels[c] = static_cast<int>(best - sum.begin());
      changed = true;
      for (std::size_t s = place.sides; s < place.end(); ++s) due[at(wiring_->sides[s].far)] = 1;
    }
  }
}

template class DualOf<float>;
template class DualOf<double>;
template void DualOf<float>::take_over(const DualOf<float>&, const std::vector<int>&);
template void DualOf<double>::take_over(const DualOf<float>&, const std::vector<int>&);
template void DualOf<double>::take_over(const DualOf<double>&, const std::vector<int>&);

}  // namespace autopar::solver
