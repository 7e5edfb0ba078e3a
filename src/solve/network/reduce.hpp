// Reductions that keep the optimum, cheap ones only.
#pragma once

#include "solve/network/network.hpp"

namespace autopar::solver {

// Until nothing changes: parallel edges joined, additive edges dropped, labels removed that are
// forbidden, too large or dominated, nodes with one label, leaves and (where the table stays
// small) nodes between two others eliminated. Nodes with uses are eliminated only with one label.
// Returns its work.
double reduce(Network& net);

}  // namespace autopar::solver
