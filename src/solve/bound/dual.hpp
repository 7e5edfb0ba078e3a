// Lower bound by sequential tree-reweighted message passing, for a network or, at the price of one
// of them, for its like parts.
// Source: Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI
// 2006; as sums that never get negative: Kolmogorov, "A new look at reweighted message passing",
// PAMI 2015. A pass costs one visit of every core per direction.
//
// Messages exist once per class of like nodes, and each is what every copy gets. Where the classes
// are those of a colour refinement that was ended early, some copies of a node have neighbours of
// another class than the others, at the ends of a chain of layers. A node's copies must look alike
// for one message to stand for all of them, so what comes in on the edges of one role (same table,
// neighbours alike a round of refinement before) counts as the least of them, label by label, and
// the neighbour whose message was greater keeps the rest. The terms of the split then are >= 0 on
// every copy of every edge, and the bound is one of the whole network: it falls behind that with
// every node alone only by what the ends of the chain differ.
#pragma once

#include <limits>
#include <memory>
#include <vector>

#include "solve/bound/carried.hpp"
#include "solve/bound/wiring.hpp"

namespace autopar::solver {

// Splits the value into bound() + terms >= 0 of single nodes and edges. While a pass is at a node,
// all of its own share is there: a label whose share lifts the bound to the cutoff is in no
// labelling below the cutoff, and dies. `Real` is double or, for passes that take half the time and
// whose bound is only about right, float. Copies share what does not change.
//
// Labels, per class: where every node is alone, its class has the node's number, and those that are
// gone have no labels.
template <class Real>
class DualOf {
 public:
  // Every node alone. The network must outlive it unchanged.
  explicit DualOf(const Network& net) : DualOf(net, each_alone(net)) {}
  // Every second pass a node keeps nothing of its value back, as far as it goes (any shares up to
  // the whole keep the terms >= 0): that settles the large differences in half the passes, the even
  // shares of TRW-S in between the small ones. Nodes of a class use the same of the same rows, and
  // no edge is within a class.
  DualOf(const Network& net, const Fold& fold);

  // Forward and backward. Labels that no copy can have in a labelling below cutoff die.
  void pass(double cutoff);
  double bound() const { return bound_; }
  bool exhausted() const { return exhausted_; }  // some class has no label left

  bool alive(int c, int label) const { return theta_[theta_of(c) + at(label)] < kInfinity; }
  // The labels that are alive.
  Labels left(int c) const {
    Labels labels;
    for (int l = 0; l < wiring_->places[at(c)].count; ++l) {
      if (alive(c, l)) labels.push_back(l);
    }
    return labels;
  }
  void kill(int c, int label) {
    theta_[theta_of(c) + at(label)] = std::numeric_limits<Real>::infinity();
  }
  double labels_alive() const;
  double labels_total() const { return static_cast<double>(theta_.size()); }
  double work_per_pass() const { return wiring_->work_per_pass; }

  // Multipliers of the rows from now on. The bound is one again after the next pass.
  void set_multipliers(const Vector& multipliers);
  const Vector& multipliers() const { return multipliers_; }

  // Begins with the other's messages: those of its edge edge_of[e] (-1: none) for edge e of the
  // fold; of the same tables, their classes numbered alike. The bound is one again after the next
  // pass.
  template <class Other>
  void take_over(const DualOf<Other>& other, const std::vector<int>& edge_of);

  // Messages of the same network and fold, to begin from again.
  const std::vector<Real>& messages() const { return messages_; }
  void begin_from(const std::vector<Real>& messages) {
    messages_ = messages;
    settled_ = false;
  }

  // And of another network of the same problem, every node alone in both.
  CarriedMessages carried() const;
  void begin_from(const CarriedMessages& carried);

  // As far again as from the messages before to these, so many times.
  void extrapolate(const DualOf& before, double times);

  const Network& network() const { return *net_; }

  // Labels in the order of the classes, each the best given those before it and the messages from
  // those behind.
  std::vector<int> decode() const;
  // Better single labels until there are none, by the present multipliers.
  void improve(std::vector<int>& labels) const;
  std::vector<int> decode_and_improve() const {
    std::vector<int> labels = decode();
    improve(labels);
    return labels;
  }

  // Of nodes that are alone. What is left of the network, its terms those of this split, so that
  // nothing of the bound is lost; with `plain`, the network's own terms (which share tables).
  std::unique_ptr<Network> survivors(bool plain) const;
  double surviving_entries() const;
  // How much of a labelling's value above the bound lies at each node.
  Vector excess(const std::vector<int>& labels) const;
  // Per label of node n: what its choice adds to the bound, as far as it is seen from n.
  Vector label_excess(int n) const;

 private:
  template <class Other>
  friend class DualOf;
  using Reals = std::vector<Real>;
  using Side = typename Wiring<Real>::Side;
  using Place = typename Wiring<Real>::Place;

  std::size_t theta_of(int c) const { return wiring_->places[at(c)].theta; }
  Real share_of(const Side& side) const { return side.shares[turn_ % 2]; }
  double kept_part(const Place& place) const;
  // What counts as incoming on a side: `least` is where it is put together, if it has to be.
  const Real* incoming_of(const Side& side, const Reals& messages, Reals& least) const;
  void collect(const Place& place, const Reals& messages, Reals& hat) const;
  // What a copy has of its own share after a pass: collect() without the least.
  void collect_excess(const Place& place, Vector& hat) const;
  void process(std::size_t c, bool forward, double cutoff);
  void send(const Side& side);
  void price_edges(const PriceSums& prices);
  Reals settled_messages() const;
  // What each label is worth: with the far labels or, where they are not known yet (< 0), with the
  // messages.
  void weigh(const Place& place, const std::vector<int>& labels, Reals& sum) const;
  void add_survivor(Network& child, const Place& place, const Labels& kept,
                    const Vector& hats) const;
  Edge surviving_edge(Network& child, const Side& side, const std::vector<Labels>& kept,
                      const Vector& hats) const;

  const Network* net_;
  std::shared_ptr<const Wiring<Real>> wiring_;
  Reals theta_, messages_;
  Vector least_;                     // per place: what a copy had when it was last visited
  std::vector<const Real*> tables_;  // per edge of the fold
  std::vector<std::shared_ptr<const Reals>> priced_;  // those with priced uses
  Vector multipliers_;
  double constant_ = 0, bound_ = 0;
  bool exhausted_ = false;
  bool settled_ = true;   // all terms are >= 0
  std::size_t turn_ = 0;  // of the last pass
  Reals hat_, per_class_, far_;
};

using Dual = DualOf<double>;
using QuickDual = DualOf<float>;

}  // namespace autopar::solver
