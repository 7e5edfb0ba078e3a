// Phase ops of a training step, and hub ops of the model that a strategy file asks for.
#pragma once

#include "planning/inputs.hpp"

namespace autopar {

// Adds phase ops to a model that has several phases, unless it has them: for plans that the
// roofline model chooses, since the others repeat what other programs count, and those know of no
// such op. Before the request is made.
Status share_in_phases(Inputs& inputs, const std::string& cost_model);
// By which model the plan of a file was chosen; what is asked for, where it does not say.
std::string cost_model_of(const StrategyFile& file, const PlanOptions& options);

// Adds to the model those hub ops that the file names, among its ops or tensors, and, unless it is
// complete then, those of the hubs that its pins fix. So a complete file stands for the same ops as
// in the search that wrote it. The request, which has the pins, is for the model as it is
// afterwards.
Status share_pinned_hubs(const StrategyFile& file, Inputs& inputs, const SearchRequest& request);

}  // namespace autopar
