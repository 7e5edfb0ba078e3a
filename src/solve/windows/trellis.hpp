// All labellings of a network as paths from layer to layer: a layer takes one node in, and its
// states are the labels of the frontier, that is of the nodes so far that have neighbours to come.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "solve/state/found.hpp"
#include "solve/windows/row_plan.hpp"

namespace autopar::solver {

// Values in units that are fine enough for their errors to vanish and that add up exactly, so that
// equal layers in another order have equal sums.
using Units = std::int64_t;

struct TrellisArc {
  int from = 0;     // frontier before the layer
  int to = 0;       // frontier after it
  int label = 0;    // of the layer's node
  Units value = 0;  // what is added, by the multipliers
  Units cost = 0;   // the same without the rows' prices
};

struct TrellisLayer {
  int node = -1;
  std::vector<TrellisArc> arcs;     // by `to`, then `from`
  std::vector<std::size_t> begins;  // per frontier after, and the end
  std::vector<Units> to_go;         // per frontier after: least value of the rest
  std::vector<RowsUsed> uses;       // what the node and its edges to earlier nodes use: where
  std::vector<double> bytes;        // [arc * uses + use]
  std::size_t frontiers() const { return to_go.size(); }
};

struct Trellis {
  std::vector<TrellisLayer> layers;
  double scale = 1;  // units per unit of value
  Units room = 0;    // paths of at least this value are at the cutoff or above
  Units least = 0;   // value of the best path
};

// The paths below cutoff; every term of the network must be >= 0. Nothing where there are too many.
// Linear in the arcs.
std::optional<Trellis> build_trellis(const Network& net, const std::vector<int>& order,
                                     double cutoff, double most_arcs, Budget& budget);

}  // namespace autopar::solver
