#include "solve/bound/folded_dual.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "solve/bound/kernel.hpp"

namespace autopar::solver {
namespace {

constexpr double kVisitWork = 20;  // what a visit costs beside the entries
// Half as many bytes, and read in fours.
template <class Real>
constexpr double kEntryWork = std::is_same_v<Real, float> ? kRowEntryWork / 4 : kRowEntryWork;
constexpr int kSweeps = 10;  // of better single labels

// Sides of a class with the same key are in the same role.
using RoleKey = std::tuple<int, bool, int, int, int>;

}  // namespace

// Which sides there are, in which order, and what they share.
template <class Real>
class FoldedDual<Real>::Wiring {
 public:
  Wiring(const Network& net, const Fold& fold, FoldedDual& dual)
      : net_(net), fold_(fold), dual_(dual), seen_(fold.edges_in.size(), SIZE_MAX) {}

  void run() {
    edges_of_.resize(fold_.first.size());
    std::vector<char> known(fold_.edges_in.size(), 0);
    for (std::size_t e = 0; e < net_.edges.size(); ++e) {
      const int folded = fold_.edge_of[e];
      if (folded < 0 || known[at(folded)]) continue;
      known[at(folded)] = 1;
      const Edge& edge = net_.edges[e];
      edges_of_[at(fold_.class_of[at(edge.a)])].push_back(static_cast<int>(e));
      edges_of_[at(fold_.class_of[at(edge.b)])].push_back(static_cast<int>(e));
    }
    for (std::size_t c = 0; c < fold_.first.size(); ++c) add_sides(static_cast<int>(c));
    dual_.messages_.assign(messages_, 0.0);
  }

 private:
  // Copies count as earlier or later by their class; a role's value goes where most of it is.
  struct Roles {
    std::map<RoleKey, std::vector<Side>> sides;
    double even = 0;             // of a copy's value, to each edge, the same both ways
    double back = 0, forth = 0;  // all of it
    static bool mostly_earlier(const std::vector<Side>& sides, int c) {
      double earlier = 0, later = 0;
      for (const Side& side : sides) (side.far < c ? earlier : later) += side.copies;
      return earlier >= later;
    }
  };

  void add_sides(int c) {
    Place& place = dual_.places_[at(c)];
    place.sides = dual_.sides_.size();
    const Roles roles = roles_of(c);
    std::map<const std::vector<Side>*, int> role_of;
    for (const auto& [key, sides] : roles.sides) {
      if (sides.size() < 2) continue;
      role_of[&sides] = static_cast<int>(dual_.roles_.size());
      dual_.roles_.push_back({});
    }
    for (const bool earlier : {true, false}) {
      for (const auto& [key, sides] : roles.sides) {
        std::array<double, 2> shares = {roles.even, earlier ? roles.back : roles.forth};
        if (Roles::mostly_earlier(sides, c) != earlier) shares = {0, 0};
        const auto role = role_of.find(&sides);
        for (const Side& side : sides) {
          if ((side.far < c) != earlier) continue;
          add_side(side, shares, role == role_of.end() ? -1 : role->second);
          ++(earlier ? place.backward : place.forward);
        }
      }
    }
  }

  Roles roles_of(int c) {
    Roles roles;
    const Place& place = dual_.places_[at(c)];
    for (int e : edges_of_[at(c)]) {
      const Edge& edge = net_.edge(e);
      const bool is_a = fold_.class_of[at(edge.a)] == c;
      const int far_node = is_a ? edge.b : edge.a;
      const Core& core = net_.algebra.core(edge.table.core);
      const int mine = is_a ? edge.table.map_a : edge.table.map_b;
      const int theirs = is_a ? edge.table.map_b : edge.table.map_a;
      const int folded = fold_.edge_of[at(e)];
      roles.sides[{edge.table.core, is_a, mine, theirs, fold_.class_before[at(far_node)]}]
          .push_back({.edge = folded,
                      .far = fold_.class_of[at(far_node)],
                      .classes = net_.algebra.labels(mine).data(),
                      .count = is_a ? core.rows : core.columns,
                      .far_count = is_a ? core.columns : core.rows,
                      .table = table_of(edge.table.core),
                      .by_rows = is_a,
                      .copies = static_cast<Real>(fold_.edges_in[at(folded)] / place.copies)});
    }
    double backward = 0, forward = 0;
    for (const auto& [key, sides] : roles.sides) {
      double& sum = Roles::mostly_earlier(sides, c) ? backward : forward;
      for (const Side& side : sides) sum += side.copies;
    }
    roles.back = 1 / std::max(1.0, backward);
    roles.forth = 1 / std::max(1.0, forward);
    roles.even = std::min(roles.back, roles.forth);
    return roles;
  }

  void add_side(Side side, const std::array<double, 2>& shares, int role) {
    const std::size_t index = dual_.sides_.size();
    side.shares = {static_cast<Real>(shares[0]), static_cast<Real>(shares[1])};
    side.role = role;
    side.incoming = messages_;
    messages_ += at(side.count);
    std::size_t& other = seen_[at(side.edge)];
    if (other == SIZE_MAX) {
      other = index;
    } else {
      Side& twin = dual_.sides_[other];
      side.twin = other;
      side.outgoing = twin.incoming;
      twin.twin = index;
      twin.outgoing = side.incoming;
    }
    if (role >= 0) dual_.roles_[at(role)].push_back(index);
    dual_.work_per_pass_ += kEntryWork<Real> * side.count * side.far_count + kVisitWork;
    dual_.sides_.push_back(side);
  }

  const Real* table_of(int core) {
    const Vector& values = net_.algebra.core(core).values;
    if constexpr (std::is_same_v<Real, double>) {
      return values.data();
    } else {
      auto [known, added] = tables_.try_emplace(core, nullptr);
      if (added) {
        dual_.tables_.push_back(std::make_shared<const Reals>(values.begin(), values.end()));
        known->second = dual_.tables_.back()->data();
      }
      return known->second;
    }
  }

  const Network& net_;
  const Fold& fold_;
  FoldedDual& dual_;
  std::unordered_map<int, const Real*> tables_;  // per core
  std::vector<std::vector<int>> edges_of_;       // per class, one of each folded edge
  std::vector<std::size_t> seen_;                // per folded edge: the side that was first
  std::size_t messages_ = 0;
};

template <class Real>
FoldedDual<Real>::FoldedDual(const Network& net, const Fold& fold)
    : places_(fold.first.size()),
      constant_(net.constant),
      bound_(net.constant),
      exhausted_(net.impossible) {
  for (int c : fold.class_of) {
    if (c >= 0) ++places_[at(c)].copies;
  }
  for (std::size_t c = 0; c < places_.size(); ++c) {
    const Vector& cost = net.cost(fold.first[c]);
    places_[c].count = static_cast<int>(cost.size());
    places_[c].theta = theta_.size();
    theta_.insert(theta_.end(), cost.begin(), cost.end());
    work_per_pass_ += kVisitWork + 3 * static_cast<double>(cost.size());
  }
  Wiring(net, fold, *this).run();
}

template <class Real>
template <class Other>
void FoldedDual<Real>::take_over(const FoldedDual<Other>& other, const std::vector<int>& edge_of) {
  std::vector<std::array<std::size_t, 2>> places;  // where messages come in, per edge and end
  for (const auto& side : other.sides_) {
    places.resize(std::max(places.size(), at(side.edge) + 1));
    places[at(side.edge)][side.by_rows ? 0 : 1] = side.incoming;
  }
  for (const Side& side : sides_) {
    const int from = edge_of[at(side.edge)];
    if (from < 0) continue;
    const std::size_t begin = places[at(from)][side.by_rows ? 0 : 1];
    for (std::size_t c = 0; c < at(side.count); ++c) {
      const auto message = static_cast<Real>(other.messages_[begin + c]);
      // A class that has no label left there says nothing.
      messages_[side.incoming + c] = std::isfinite(message) ? message : 0;
    }
  }
  settled_ = false;
}

template <class Real>
double FoldedDual<Real>::labels_alive() const {
  return static_cast<double>(
      std::count_if(theta_.begin(), theta_.end(), [](Real t) { return t < kInfinity; }));
}

template <class Real>
auto FoldedDual<Real>::thetas_of(const Place& place) const -> Reals {
  const auto begin = theta_.begin() + static_cast<std::ptrdiff_t>(place.theta);
  return Reals(begin, begin + place.count);
}

template <class Real>
const Real* FoldedDual<Real>::incoming_of(const Side& side, const Reals& messages,
                                          Reals& least) const {
  if (side.role < 0) return messages.data() + side.incoming;
  least.assign(at(side.count), std::numeric_limits<Real>::infinity());
  for (std::size_t s : roles_[at(side.role)]) {
    const Real* incoming = messages.data() + sides_[s].incoming;
    for (std::size_t c = 0; c < least.size(); ++c) {
      least[c] = incoming[c] < least[c] ? incoming[c] : least[c];
    }
  }
  return least.data();
}

template <class Real>
void FoldedDual<Real>::collect(const Place& place, const Reals& messages, Reals& hat) const {
  const auto begin = theta_.begin() + static_cast<std::ptrdiff_t>(place.theta);
  hat.assign(begin, begin + place.count);
  Reals least;
  for (std::size_t s = place.sides; s < end_of(place); ++s) {
    const Side& side = sides_[s];
    const Real* incoming = incoming_of(side, messages, least);
    for (std::size_t l = 0; l < hat.size(); ++l) hat[l] += side.copies * incoming[side.classes[l]];
  }
}

template <class Real>
void FoldedDual<Real>::least_per_class(const Side& side, const Reals& hat, Reals& per_class) {
  per_class.assign(at(side.count), std::numeric_limits<Real>::infinity());
  for (std::size_t l = 0; l < hat.size(); ++l) {
    Real& least = per_class[at(side.classes[l])];
    least = hat[l] < least ? hat[l] : least;
  }
}

// hat_ has what a copy has, its least taken off.
template <class Real>
void FoldedDual<Real>::send(const Side& side) {
  const Real* incoming = incoming_of(side, messages_, least_);
  // What the others in the role got is the rest of the neighbour.
  if (side.role >= 0) {
    std::copy(least_.begin(), least_.end(),
              messages_.begin() + static_cast<std::ptrdiff_t>(side.incoming));
  }
  least_per_class(side, hat_, per_class_);
  for (std::size_t c = 0; c < per_class_.size(); ++c) {
    if (per_class_[c] < kInfinity) per_class_[c] = side.share * per_class_[c] - incoming[c];
  }
  Real* outgoing = messages_.data() + side.outgoing;
  if (side.by_rows) {
    min_plus_rows(outgoing, per_class_.data(), side.table, at(side.count), at(side.far_count));
  } else {
    min_plus_columns(outgoing, per_class_.data(), side.table, at(side.far_count), at(side.count));
  }
}

template <class Real>
void FoldedDual<Real>::process(Place& place, bool forward, double cutoff) {
  collect(place, messages_, hat_);
  const Real least = *std::min_element(hat_.begin(), hat_.end());
  if (!(least < kInfinity)) {
    exhausted_ = true;
    return;
  }
  bound_ += place.copies * (least - place.least);
  place.least = least;
  const double room = cutoff - bound_;
  Real* theta = theta_.data() + place.theta;
  for (std::size_t l = 0; l < hat_.size(); ++l) {
    hat_[l] -= least;
    if (!(hat_[l] < room)) theta[l] = hat_[l] = std::numeric_limits<Real>::infinity();
  }
  const std::size_t begin = forward ? middle_of(place) : place.sides;
  const std::size_t end = forward ? end_of(place) : middle_of(place);
  for (std::size_t s = begin; s < end; ++s) send(sides_[s]);
}

template <class Real>
void FoldedDual<Real>::pass(double cutoff) {
  const std::size_t turn = turn_++ % 2;
  for (Side& side : sides_) side.share = side.shares[turn];
  // After messages from elsewhere terms may be negative; the way forward mends that.
  for (std::size_t p = 0; p < places_.size() && !exhausted_; ++p) {
    process(places_[p], true, settled_ ? cutoff : kInfinity);
  }
  settled_ = true;
  for (std::size_t p = places_.size(); p-- > 0 && !exhausted_;) {
    process(places_[p], false, cutoff);
  }
  // Anew, so that errors of rounding do not add up.
  bound_ = constant_;
  for (const Place& place : places_) bound_ += place.copies * place.least;
}

// After a pass, which ends backward, a class has sent its share to the earlier ones; here that is
// taken off what came in from them.
template <class Real>
auto FoldedDual<Real>::settled_messages() const -> Reals {
  Reals result = messages_, hat, per_class;
  for (const Place& place : places_) {
    collect(place, messages_, hat);
    const Real least = *std::min_element(hat.begin(), hat.end());
    for (Real& value : hat) value -= least;
    for (std::size_t s = place.sides; s < middle_of(place); ++s) {
      const Side& side = sides_[s];
      least_per_class(side, hat, per_class);
      for (std::size_t c = 0; c < per_class.size(); ++c) {
        if (per_class[c] < kInfinity) result[side.incoming + c] -= side.share * per_class[c];
      }
    }
  }
  return result;
}

// Over the pairs that are left.
template <class Real>
double FoldedDual<Real>::least_term(const Place& place, const Side& side,
                                    const Reals& settled) const {
  const Side& twin = sides_[side.twin];
  Reals near_least, far_least, near_alive, far_alive;
  const Real* near = incoming_of(side, settled, near_least);
  const Real* far = incoming_of(twin, settled, far_least);
  least_per_class(side, thetas_of(place), near_alive);
  least_per_class(twin, thetas_of(places_[at(side.far)]), far_alive);
  double least = kInfinity;
  for (std::size_t i = 0; i < near_alive.size(); ++i) {
    for (std::size_t j = 0; j < far_alive.size(); ++j) {
      const double value =
          side.table[side.by_rows ? i * far_alive.size() + j : j * near_alive.size() + i];
      const bool counts = near_alive[i] < kInfinity && far_alive[j] < kInfinity;
      if (counts && value < kInfinity) least = std::min(least, value - near[i] - far[j]);
    }
  }
  return least;
}

template <class Real>
double FoldedDual<Real>::sum_of_terms() const {
  const Reals settled = settled_messages();
  double sum = constant_;
  Reals hat;
  for (const Place& place : places_) {
    collect(place, settled, hat);
    sum += place.copies * *std::min_element(hat.begin(), hat.end());
    for (std::size_t s = place.sides; s < middle_of(place); ++s) {
      sum += place.copies * sides_[s].copies * least_term(place, sides_[s], settled);
    }
  }
  return sum;
}

template <class Real>
void FoldedDual<Real>::add_far(const Place& place, const std::vector<int>& labels,
                               Reals& sum) const {
  Reals column;
  for (std::size_t s = place.sides; s < end_of(place); ++s) {
    const Side& side = sides_[s];
    const Real* values = messages_.data() + side.incoming;
    if (labels[at(side.far)] >= 0) {
      const std::size_t far = at(sides_[side.twin].classes[labels[at(side.far)]]);
      values = side.table + far * at(side.count);
      if (side.by_rows) {
        column.clear();
        for (std::size_t c = 0; c < at(side.count); ++c) {
          column.push_back(side.table[c * at(side.far_count) + far]);
        }
        values = column.data();
      }
    }
    for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += side.copies * values[side.classes[l]];
  }
}

template <class Real>
std::vector<int> FoldedDual<Real>::decode() const {
  std::vector<int> labels(places_.size(), -1);
  for (std::size_t c = 0; c < places_.size(); ++c) {
    Reals sum = thetas_of(places_[c]);
    add_far(places_[c], labels, sum);
    labels[c] = static_cast<int>(std::min_element(sum.begin(), sum.end()) - sum.begin());
  }
  improve(labels);
  return labels;
}

template <class Real>
void FoldedDual<Real>::improve(std::vector<int>& labels) const {
  bool changed = true;
  for (int sweep = 0; sweep < kSweeps && changed; ++sweep) {
    changed = false;
    for (std::size_t c = 0; c < places_.size(); ++c) {
      Reals sum = thetas_of(places_[c]);
      add_far(places_[c], labels, sum);
      const auto best = std::min_element(sum.begin(), sum.end());
      if (!(*best < sum[at(labels[c])])) continue;
      labels[c] = static_cast<int>(best - sum.begin());
      changed = true;
    }
  }
}

template class FoldedDual<float>;
template class FoldedDual<double>;
template void FoldedDual<float>::take_over(const FoldedDual<float>&, const std::vector<int>&);
template void FoldedDual<double>::take_over(const FoldedDual<float>&, const std::vector<int>&);

}  // namespace autopar::solver
