// The bound of Dual for a network with like parts, at the price of one of them: messages exist once
// per class of like nodes, and each is what every copy gets.
//
// Where the classes are those of a colour refinement that was ended early, some copies of a node
// have neighbours of another class than the others, at the ends of a chain of layers. A node's
// copies must look alike for one message to stand for all of them, so what comes in on the edges
// of one role (same table, neighbours alike a round of refinement before) counts as the least of
// them, label by label, and the neighbour whose message was greater keeps the rest. The terms of
// the split then are >= 0 on every copy of every edge, and the bound is one of the whole network:
// it falls behind that of Dual only by what the ends of the chain differ.
//
// Every second pass a node keeps nothing of its value back, as far as it goes (any shares up to the
// whole keep the terms >= 0): that settles the large differences in half the passes, the even
// shares of TRW-S in between the small ones.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "solve/bound/fold.hpp"

namespace autopar::solver {

// Refers to network and fold, which must outlive it unchanged. Without capacities, and without an
// edge within a class: the copies at the ends of such a chain would have a message that the others
// have not, and there would be no bound. Real is double or, for passes that take half the time and
// whose bound is only about right, float.
template <class Real>
class FoldedDual {
 public:
  FoldedDual(const Network& net, const Fold& fold);

  // Goes on from the other's messages, those of its edge edge_of[e] for edge e; of the same tables,
  // their classes numbered alike. The bound is one again after the next pass.
  template <class Other>
  void take_over(const FoldedDual<Other>& other, const std::vector<int>& edge_of);

  // Forward and backward. Labels that no copy can have in a labelling below cutoff die.
  void pass(double cutoff);
  double bound() const { return bound_; }
  bool exhausted() const { return exhausted_; }  // some class has no label left
  bool alive(int c, int label) const {
    return theta_[places_[at(c)].theta + at(label)] < kInfinity;
  }
  double labels_alive() const;
  double labels_total() const { return static_cast<double>(theta_.size()); }
  double work_per_pass() const { return work_per_pass_; }

  // One label per class: in their order, each the best given those before it and the messages from
  // those behind; then better single ones until there are none.
  std::vector<int> decode() const;

  // What the terms of the split add up to at least, each looked at: the bound without trusting the
  // passes. As dear as some passes.
  double sum_of_terms() const;

 private:
  template <class Other>
  friend class FoldedDual;
  using Reals = std::vector<Real>;

  struct Side {  // an edge seen from one of its classes
    int edge = -1;
    int far = -1;
    std::size_t twin = 0;
    const int* classes = nullptr;
    int count = 0;
    int far_count = 0;
    const Real* table = nullptr;
    bool by_rows = true;  // the table's rows are the classes of mine, else of the far side
    std::size_t incoming = 0;
    std::size_t outgoing = 0;
    Real copies = 1;                  // of the edge, per copy of the near node
    std::array<Real, 2> shares = {};  // taken in turns
    Real share = 0;                   // of a copy's value, to each of those
    int role = -1;                    // of several sides
  };
  struct Place {
    int count = 0;
    double copies = 0;
    std::size_t theta = 0;
    std::size_t sides = 0;  // first those to earlier classes
    int backward = 0;
    int forward = 0;
    double least = 0;  // of what a copy had when it was last visited
  };
  using Role = std::vector<std::size_t>;  // sides

  class Wiring;

  static std::size_t middle_of(const Place& place) { return place.sides + at(place.backward); }
  static std::size_t end_of(const Place& place) { return middle_of(place) + at(place.forward); }
  Reals thetas_of(const Place& place) const;
  // What counts as incoming on a side: `least` is where it is put together, if it has to be.
  const Real* incoming_of(const Side& side, const Reals& messages, Reals& least) const;
  void collect(const Place& place, const Reals& messages, Reals& hat) const;
  // The least per class of the side's near labels.
  static void least_per_class(const Side& side, const Reals& hat, Reals& per_class);
  void process(Place& place, bool forward, double cutoff);
  void send(const Side& side);
  Reals settled_messages() const;
  double least_term(const Place& place, const Side& side, const Reals& settled) const;
  void improve(std::vector<int>& labels) const;
  // Adds what the far labels make of mine, or where they are not known yet (< 0) the messages.
  void add_far(const Place& place, const std::vector<int>& labels, Reals& sum) const;

  std::vector<Place> places_;
  std::vector<Side> sides_;
  std::vector<Role> roles_;
  std::vector<std::shared_ptr<const Reals>> tables_;  // that are not the network's own
  Reals theta_, messages_;
  double constant_ = 0;
  double bound_ = 0;
  double work_per_pass_ = 0;
  bool exhausted_ = false;
  std::size_t turn_ = 0;
  bool settled_ = true;  // all terms are >= 0
  Reals hat_, per_class_, least_;
};

extern template class FoldedDual<float>;
extern template class FoldedDual<double>;
extern template void FoldedDual<float>::take_over(const FoldedDual<float>&,
                                                  const std::vector<int>&);
extern template void FoldedDual<double>::take_over(const FoldedDual<float>&,
                                                   const std::vector<int>&);

}  // namespace autopar::solver
