#include "solve/bound/dual.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "solve/bound/kernel.hpp"

namespace autopar::solver {
namespace {

constexpr double kVisitWork = 20;  // what a visit costs beside the entries

}  // namespace

Dual::Dual(const Network& net, const std::vector<double>& edge_weights)
    : net_(&net), place_of_(net.nodes.size(), 0), bound_(net.constant) {
  std::vector<int> nodes;
  for (std::size_t n = 0; n < net.nodes.size(); ++n) {
    if (!net.nodes[n].gone) nodes.push_back(static_cast<int>(n));
  }
  connect(nodes);
  set_shares(edge_weights);
  multipliers_ = net.multiplier;
  priced_.resize(net.edges.size());
  exhausted_ = net.impossible;
}

void Dual::connect(const std::vector<int>& nodes) {
  std::size_t labels = 0, sides = 0;
  for (int n : nodes) {
    labels += at(net_->label_count(n));
    sides += net_->node(n).edges.size();
  }
  places_.reserve(nodes.size());
  theta_.reserve(labels);
  sides_.reserve(sides);
  for (int n : nodes) {
    place_of_[at(n)] = places_.size();
    Place place = {
        .node = n, .count = net_->label_count(n), .theta = theta_.size(), .sides = sides_.size()};
    const Vector& cost = net_->cost(n);
    theta_.insert(theta_.end(), cost.begin(), cost.end());
    for (const bool earlier : {true, false}) {
      for (int e : net_->node(n).edges) {
        const Edge& edge = net_->edge(e);
        const int far = other_end(edge, n);
        if ((far < n) != earlier) continue;
        const bool is_a = edge.a == n;
        const Core& core = net_->algebra.core(edge.table.core);
        const Labels& classes = net_->algebra.labels(is_a ? edge.table.map_a : edge.table.map_b);
        sides_.push_back({.edge = e,
                          .far = far,
                          .classes = classes.data(),
                          .count = is_a ? core.rows : core.columns,
                          .far_count = is_a ? core.columns : core.rows,
                          .rows = is_a ? core.values.data() : core.transposed.data()});
        ++(earlier ? place.backward : place.forward);
        work_per_pass_ +=
            kRowEntryWork * static_cast<double>(core.values.size()) + 2 * place.count + kVisitWork;
      }
    }
    for (const RowUse& use : net_->node(n).uses)
      work_per_pass_ += use.end > use.begin ? place.count : 0;
    work_per_pass_ += kVisitWork + place.count;
    places_.push_back(place);
  }
  std::size_t messages = 0;
  for (const Side& side : sides_) messages += at(side.count);
  messages_.assign(messages, 0.0);
  messages = 0;
  std::vector<std::size_t> first(net_->edges.size(), SIZE_MAX);
  for (std::size_t s = 0; s < sides_.size(); ++s) {
    Side& side = sides_[s];
    side.incoming = messages;
    messages += at(side.count);
    std::size_t& other = first[at(side.edge)];
    if (other == SIZE_MAX) {
      other = s;
      continue;
    }
    side.twin = other;
    sides_[other].twin = s;
    side.outgoing = sides_[other].incoming;
    sides_[other].outgoing = side.incoming;
  }
}

void Dual::set_shares(const std::vector<double>& edge_weights) {
  const auto weight = [&](const Side& side) {
    return edge_weights.empty() ? 1.0 : edge_weights[at(side.edge)];
  };
  for (const Place& place : places_) {
    double backward = 0, forward = 0;
    for (int k = 0; k < place.backward + place.forward; ++k) {
      (k < place.backward ? backward : forward) += weight(sides_[place.sides + at(k)]);
    }
    for (int k = 0; k < place.backward + place.forward; ++k) {
      Side& side = sides_[place.sides + at(k)];
      side.share = weight(side) / std::max(backward, forward);
    }
  }
}

void Dual::collect(const Place& place, Vector& hat) const {
  hat.assign(theta_.begin() + static_cast<std::ptrdiff_t>(place.theta),
             theta_.begin() + static_cast<std::ptrdiff_t>(place.theta) + place.count);
  const std::size_t end = place.sides + at(place.backward + place.forward);
  for (std::size_t s = place.sides; s < end; ++s) {
    const double* incoming = messages_.data() + sides_[s].incoming;
    const int* classes = sides_[s].classes;
    for (std::size_t l = 0; l < hat.size(); ++l) hat[l] += incoming[classes[l]];
  }
}

void Dual::send(const Side& side, const Vector& hat) {
  per_class_.assign(at(side.count), kInfinity);
  for (std::size_t l = 0; l < hat.size(); ++l) {
    double& least = per_class_[at(side.classes[l])];
    least = hat[l] < least ? hat[l] : least;
  }
  double* outgoing = messages_.data() + side.outgoing;
  const double* incoming = messages_.data() + side.incoming;
  const std::size_t width = at(side.far_count);
  std::fill(outgoing, outgoing + width, kInfinity);
  for (std::size_t c = 0; c < per_class_.size(); ++c) {
    if (per_class_[c] == kInfinity) continue;
    min_plus_row(outgoing, side.share * per_class_[c] - incoming[c], side.rows + c * width, width);
  }
}

void Dual::process(const Place& place, bool forward, double cutoff) {
  collect(place, hat_);
  double* theta = theta_.data() + place.theta;
  const double least = *std::min_element(hat_.begin(), hat_.end());
  if (least == kInfinity) {
    exhausted_ = true;
    return;
  }
  bound_ += least;
  const double room = cutoff - bound_;
  for (std::size_t l = 0; l < hat_.size(); ++l) {
    theta[l] -= least;
    hat_[l] -= least;
    if (!(hat_[l] < room)) theta[l] = hat_[l] = kInfinity;
  }
  const std::size_t middle = place.sides + at(place.backward);
  const std::size_t begin = forward ? middle : place.sides;
  const std::size_t end = forward ? middle + at(place.forward) : middle;
  for (std::size_t s = begin; s < end; ++s) send(sides_[s], hat_);
}

void Dual::pass(double cutoff) {
  // After a change of multipliers terms may be negative; the way forward mends that.
  for (std::size_t p = 0; p < places_.size() && !exhausted_; ++p) {
    process(places_[p], true, settled_ ? cutoff : kInfinity);
  }
  settled_ = true;
  for (std::size_t p = places_.size(); p-- > 0 && !exhausted_;) {
    process(places_[p], false, cutoff);
  }
}

// Everything is set up afresh but the messages, so that errors of rounding do not add up.
void Dual::set_multipliers(const Vector& multipliers) {
  Vector sums(multipliers.size() + 1, 0.0);  // of what is not yet in the network's costs
  bound_ = net_->constant;
  for (std::size_t r = 0; r < multipliers.size(); ++r) {
    const double change = multipliers[r] - net_->multiplier[r];
    bound_ -= change * net_->capacity[r];
    sums[r + 1] = sums[r] + change;
  }
  multipliers_ = multipliers;
  for (const Place& place : places_) {
    Vector cost = net_->cost(place.node);
    for (const RowUse& use : net_->node(place.node).uses) {
      const double price = sums[at(use.end)] - sums[at(use.begin)];
      if (price == 0) continue;
      const Vector& bytes = net_->algebra.vector(use.bytes);
      for (std::size_t l = 0; l < cost.size(); ++l) cost[l] += price * bytes[l];
    }
    double* theta = theta_.data() + place.theta;
    for (std::size_t l = 0; l < cost.size(); ++l) {
      if (theta[l] < kInfinity) theta[l] = cost[l];
    }
  }
  price_edges(sums);
  settled_ = false;
}

void Dual::price_edges(const Vector& sums) {
  for (Side& side : sides_) {
    const Edge& edge = net_->edge(side.edge);
    if (edge.uses.empty()) continue;
    const bool is_a = edge.b == side.far;
    std::shared_ptr<const Core>& priced = priced_[at(side.edge)];
    const Core* core = &net_->algebra.core(edge.table.core);
    if (is_a) {  // each edge has two sides: made at one, used by both
      auto made = std::make_shared<Core>(*core);
      bool any = false;
      for (const RowUse& use : edge.uses) {
        const double price = sums[at(use.end)] - sums[at(use.begin)];
        if (price == 0) continue;
        any = true;
        const Core& bytes = net_->algebra.core(use.bytes);
        for (std::size_t i = 0; i < made->values.size(); ++i) {
          made->values[i] += price * bytes.values[i];
          made->transposed[i] += price * bytes.transposed[i];
        }
      }
      priced = any ? std::move(made) : nullptr;
      Side& twin = sides_[side.twin];
      if (priced != nullptr) core = priced.get();
      side.rows = core->values.data();
      twin.rows = core->transposed.data();
    }
  }
}

// Of a node's value, what it does not send to the earlier nodes.
double Dual::kept_part(const Place& place) const {
  double sent = 0;
  for (int k = 0; k < place.backward; ++k) sent += sides_[place.sides + at(k)].share;
  return std::max(0.0, 1.0 - sent);
}

// After a pass, which ends backward, a node has sent its share to the earlier nodes; here that
// share is taken off what came in from them, so that the edges' terms are >= 0 without it.
Vector Dual::settled_messages() const {
  Vector result = messages_, hat, least;
  for (const Place& place : places_) {
    collect(place, hat);
    for (int k = 0; k < place.backward; ++k) {
      const Side& side = sides_[place.sides + at(k)];
      least.assign(at(side.count), kInfinity);
      for (std::size_t l = 0; l < hat.size(); ++l) {
        least[at(side.classes[l])] = std::min(least[at(side.classes[l])], hat[l]);
      }
      for (std::size_t c = 0; c < least.size(); ++c) {
        if (least[c] < kInfinity) result[side.incoming + c] -= side.share * least[c];
      }
    }
  }
  return result;
}

void Dual::take_over(const Dual& other, const std::vector<int>& edge_of,
                     const std::vector<double>& parts) {
  // Where messages come in, per edge, at its a and at its b.
  std::vector<std::array<std::size_t, 2>> places(other.net_->edges.size());
  const auto end_of = [](const Dual& dual, const Side& side) {
    return dual.net_->edge(side.edge).a == side.far ? 1 : 0;
  };
  for (const Side& side : other.sides_) {
    places[at(side.edge)][at(end_of(other, side))] = side.incoming;
  }
  const Vector theirs = other.settled_messages();
  for (const Side& side : sides_) {
    const int from = edge_of[at(side.edge)];
    if (from < 0) continue;
    const std::size_t begin = places[at(from)][at(end_of(*this, side))];
    for (int c = 0; c < side.count; ++c) {
      const double message = theirs[begin + at(c)] / parts[at(from)];
      // A class that has no label left there says nothing.
      messages_[side.incoming + at(c)] = std::isfinite(message) ? message : 0.0;
    }
  }
  set_multipliers(other.multipliers_);
}

long Dual::labels_alive() const {
  return std::count_if(theta_.begin(), theta_.end(), [](double t) { return t < kInfinity; });
}

long Dual::labels_total() const { return static_cast<long>(theta_.size()); }

std::vector<int> Dual::decode() const {
  std::vector<int> labels(net_->nodes.size(), 0);
  Vector sum;
  for (const Place& place : places_) {
    sum.assign(theta_.begin() + static_cast<std::ptrdiff_t>(place.theta),
               theta_.begin() + static_cast<std::ptrdiff_t>(place.theta) + place.count);
    for (int k = 0; k < place.backward + place.forward; ++k) {
      const Side& side = sides_[place.sides + at(k)];
      const Side& twin = sides_[side.twin];
      const double* values =
          k < place.backward
              ? twin.rows + at(twin.classes[labels[at(side.far)]]) * at(twin.far_count)
              : messages_.data() + side.incoming;
      for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += values[side.classes[l]];
    }
    labels[at(place.node)] =
        static_cast<int>(std::min_element(sum.begin(), sum.end()) - sum.begin());
  }
  return labels;
}

void Dual::improve(std::vector<int>& labels) const {
  Vector sum;
  bool changed = true;
  for (int sweep = 0; sweep < 10 && changed; ++sweep) {
    changed = false;
    for (std::size_t p = 0; p < places_.size(); ++p) {
      const Place& place = places_[p];
      // Dead labels stay out; what was taken off all labels does not matter here.
      sum.assign(theta_.begin() + static_cast<std::ptrdiff_t>(place.theta),
                 theta_.begin() + static_cast<std::ptrdiff_t>(place.theta) + place.count);
      for (int k = 0; k < place.backward + place.forward; ++k) {
        const Side& side = sides_[place.sides + at(k)];
        const Side& twin = sides_[side.twin];
        const double* values =
            twin.rows + at(twin.classes[labels[at(side.far)]]) * at(twin.far_count);
        for (std::size_t l = 0; l < sum.size(); ++l) sum[l] += values[side.classes[l]];
      }
      int& label = labels[at(place.node)];
      const auto best = std::min_element(sum.begin(), sum.end());
      if (*best < sum[at(label)]) {
        label = static_cast<int>(best - sum.begin());
        changed = true;
      }
    }
  }
}

double Dual::surviving_entries() const {
  Vector count(net_->nodes.size(), 0.0);
  double entries = 0;
  for (const Place& place : places_) {
    for (int l = 0; l < place.count; ++l) count[at(place.node)] += alive(place.node, l) ? 1 : 0;
    entries += count[at(place.node)];
  }
  for (const Edge& edge : net_->edges) {
    if (!edge.gone) entries += count[at(edge.a)] * count[at(edge.b)];
  }
  return entries;
}

}  // namespace autopar::solver
