// Hub ops of the model that a strategy file asks for.
#pragma once

#include "cli/inputs.hpp"

namespace autopar::cli {

// Adds to the model those that the file names, among its ops or tensors, and, unless it is complete
// then, those of the hubs that its pins fix. So a complete file stands for the same ops as in the
// search that wrote it. The request, which has the pins, is for the model as it is afterwards.
Status share_pinned_hubs(const StrategyFile& file, Inputs& inputs, const SearchRequest& request);

}  // namespace autopar::cli
