// Lower bound by sequential tree-reweighted message passing.
// Source: Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI
// 2006; as sums that never get negative: Kolmogorov, "A new look at reweighted message passing",
// PAMI 2015. A pass costs one visit of every core per direction.
#pragma once

#include <memory>
#include <vector>

#include "solve/network/network.hpp"

namespace autopar::solver {

// Splits the value into bound() + terms >= 0 of single nodes and edges. While a pass is at a node,
// all of its own share is there: a label whose share lifts the bound to the cutoff is in no
// labelling below the cutoff, and dies. Refers to the network, which must outlive it unchanged.
class Dual {
 public:
  // With weights of the edges, a node's share goes to its edges by weight instead of in equal
  // parts.
  explicit Dual(const Network& net, const std::vector<double>& edge_weights = {});

  // Forward and backward. Labels that cannot be part of a value below cutoff die.
  void pass(double cutoff);
  double bound() const { return bound_; }
  bool exhausted() const { return exhausted_; }  // some node has no label left

  bool alive(int n, int label) const {
    return theta_[offset_of(n) + static_cast<std::size_t>(label)] < kInfinity;
  }
  void kill(int n, int label) {
    theta_[offset_of(n) + static_cast<std::size_t>(label)] = kInfinity;
  }
  long labels_alive() const;
  long labels_total() const;
  double work_per_pass() const { return work_per_pass_; }

  // Multipliers of the rows from now on. The bound is one again after the next pass.
  void set_multipliers(const Vector& multipliers);
  const Vector& multipliers() const { return multipliers_; }

  // Begins with the other's messages: those of edge edge_of[e] divided by parts[edge_of[e]]; of the
  // same tables, their classes numbered alike. And with its multipliers, for the same rows. The
  // bound is one again after the next pass.
  void take_over(const Dual& other, const std::vector<int>& edge_of,
                 const std::vector<double>& parts);

  // Labels in node order, each the best given those before it and the messages from those behind.
  std::vector<int> decode() const;
  // Better single labels until there are none, by the present multipliers.
  void improve(std::vector<int>& labels) const;

  // What is left of the network, its terms those of this split, so that nothing of the bound is
  // lost; with `plain`, the network's own terms (which share tables).
  std::unique_ptr<Network> survivors(bool plain) const;
  double surviving_entries() const;
  // How much of a labelling's value above the bound lies at each node.
  Vector excess(const std::vector<int>& labels) const;
  // Per label of node n: what its choice adds to the bound, as far as it is seen from n.
  Vector label_excess(int n) const;

 private:
  struct Side {  // an edge seen from one of its nodes
    int edge = -1;
    int far = -1;
    std::size_t twin = 0;
    const int* classes = nullptr;
    int count = 0;
    int far_count = 0;
    const double* rows = nullptr;  // row of a class of mine, over the far classes
    std::size_t incoming = 0;
    std::size_t outgoing = 0;
    double share = 1;  // of the near node's value
  };
  struct Place {
    int node = -1;
    int count = 0;
    std::size_t theta = 0;
    std::size_t sides = 0;  // first those to earlier nodes
    int backward = 0;
    int forward = 0;
  };

  std::size_t offset_of(int n) const {
    return places_[place_of_[static_cast<std::size_t>(n)]].theta;
  }
  void connect(const std::vector<int>& nodes);
  void set_shares(const std::vector<double>& edge_weights);
  void collect(const Place& place, Vector& hat) const;
  void process(const Place& place, bool forward, double cutoff);
  void send(const Side& side, const Vector& hat);
  void price_edges(const Vector& sums);
  double kept_part(const Place& place) const;
  Vector settled_messages() const;

  const Network* net_;
  std::vector<Place> places_;
  std::vector<std::size_t> place_of_;
  std::vector<Side> sides_;
  Vector theta_, messages_;
  double bound_ = 0;
  bool exhausted_ = false;
  bool settled_ = true;  // all terms are >= 0
  double work_per_pass_ = 0;
  Vector multipliers_;
  std::vector<std::shared_ptr<const Core>> priced_;  // per edge: its core with priced uses, or null
  Vector hat_, per_class_;
};

}  // namespace autopar::solver
