// From a network and its bound to the least value below a cutoff, or the best that the budget
// allows.
#pragma once

#include "solve/bound/dual.hpp"
#include "solve/state/found.hpp"

namespace autopar::solver {

// Where there are rows. kAlways: also where much is open.
enum class UseWindows { kNever, kWhereNarrow, kAlways };

// Explores below cutoffs that approach the incumbent from the bound: near the bound few labels are
// left, and a labelling found there is the optimum, however bad the incumbent was. The dual is the
// network's, after a pass; `bound` may be better than its own. Where the gap is small, it is worth
// only so much work. First by windows.
Found close_gap(const Network& net, const Dual& dual, double bound, double cutoff, Budget& budget,
                UseWindows windows);

}  // namespace autopar::solver
