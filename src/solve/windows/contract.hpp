// Layers that use nothing, as one.
#pragma once

#include "solve/windows/trellis.hpp"

namespace autopar::solver {

// Where layers follow each other without any uses, only the best path between the frontier before
// them and the one after matters. Such stretches become layers of several nodes, as far as that
// makes fewer arcs per node.
void contract(Trellis& trellis, Budget& budget);

}  // namespace autopar::solver
