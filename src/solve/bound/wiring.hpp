// Which messages there are between the classes of a network, in which order, and what they share.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "solve/bound/fold.hpp"
#include "solve/network/network.hpp"

namespace autopar::solver {

// Immutable, so that all copies of a dual share it.
template <class Real>
struct Wiring {
  Wiring(const Network& net, const Fold& fold);

  using Reals = std::vector<Real>;

  struct Side {     // an edge seen from one of its classes
    int edge = -1;  // of the fold
    int far = -1;
    std::size_t twin = 0;
    const int* classes = nullptr;  // of the labels, in the table
    int count = 0;
    int far_count = 0;
    bool by_rows = true;  // the table's rows are the classes of mine, else of the far side
    std::size_t incoming = 0;
    std::size_t outgoing = 0;
    Real copies = 1;                  // of the edge, per copy of the near node
    std::array<Real, 2> shares = {};  // of a copy's value, to each of those; taken in turns
    int role = -1;                    // of several sides
  };
  struct Place {    // a class
    int node = -1;  // the first of it
    int count = 0;  // of labels
    double copies = 0;
    std::size_t theta = 0;
    std::size_t sides = 0;  // first those to earlier classes
    int backward = 0;
    int forward = 0;
    std::size_t middle() const { return sides + at(backward); }
    std::size_t end() const { return middle() + at(forward); }
  };
  using Role = std::vector<std::size_t>;  // sides

  std::vector<Place> places;
  std::vector<Side> sides;
  std::vector<Role> roles;
  std::vector<int> edge_in;                        // per edge of the fold: one in the network
  std::vector<const Real*> tables;                 // per edge of the fold: its core's values
  std::vector<std::shared_ptr<const Reals>> made;  // of those that are not the network's own
  std::size_t labels = 0, messages = 0;
  double work_per_pass = 0;
};

extern template struct Wiring<float>;
extern template struct Wiring<double>;

}  // namespace autopar::solver
