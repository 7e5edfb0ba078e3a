// Double recursion: the outer one cuts the machine along the axes of a mesh, outermost (slowest
// links) first; the inner one decides at each cut what it splits of every op, on the shapes that
// the earlier cuts have left, and what is decided is frozen.
//
//   Recursion r(request, wiring, mesh, pins, 0);
//   Result<Decisions> d = r.run();     // d->assignments[op]: valid on the whole mesh
//
// Source: the double recursive strategy of the SAPP paper's implementation in MindSpore ("symmetric
// multi-level abstract machine"); there a level halves the machine, here an axis may have any size,
// costs are those of the cost model that the request names, and a level is decided in one pass by
// weight plus passes that reconsider. O(levels * (ops + uses) * choices * roles); of large graphs
// only ops that do not look alike count.
#pragma once

#include <functional>

#include "search/pins.hpp"
#include "search/rec/level.hpp"
#include "search/rec/wiring.hpp"

namespace autopar::rec {

// What the user leaves free of each class of ops on one mesh; empty: everything.
using Allowed = std::vector<std::vector<Assignment>>;

// What a byte that a device holds is worth, per value; both empty: nothing.
struct BytePrices {
  std::vector<double> made;  // as the value is stored or produced
  std::vector<double> hub;   // as it lies for its readers
  bool empty() const { return made.empty(); }
};

struct Decisions {
  std::vector<Assignment> assignments;  // per op
  // How inputs and parameters lie, where that was a decision of its own: those that an output
  // updates, and with prices on bytes all of them.
  std::vector<std::pair<ValueId, Spec>> stored;
  // Per axis the choice of each op (factor or -1) weighs this much: its price before any cut.
  std::vector<double> weight_of_op;
  double cost = 0;  // of the ops, and of the values level by level: an estimate
};

// In graphs of more ops the equal layers are decided as one.
inline constexpr std::size_t kFewOps = 20000;

struct RecursionOptions {
  BytePrices byte_prices = {};  // to make plans that need less memory
  // Whether the layouts that the request asks for can be read on this mesh (else they are ignored).
  bool keep_layouts = true;
  DecideOptions decide = {};
  std::size_t few_ops = kFewOps;
  // Asked between axes: whether to end without decisions. Null: never.
  std::function<bool()> is_over = {};
};
// Errors: layouts and pins that this mesh cannot keep (kInput); it was ended (kInfeasible).
Result<Decisions> recurse(const SearchRequest& request, const KeptPins& pins, const Wiring& wiring,
                          const Mesh& mesh, const Allowed& allowed,
                          const RecursionOptions& options);

}  // namespace autopar::rec
