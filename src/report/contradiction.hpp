// What to say of a bound and the plan that it is about.
#pragma once

#include <string>

namespace autopar {

// By more than rounding: an error of the search. Empty: it is not. Both are prices of that cost
// model.
std::string contradiction(double bound, double plan, const std::string& cost_model = "roofline");
// "at most 5.3 % above the optimum", of a gap of 0.05, which is a part of the plan's cost; of large
// ones "at most 2.5 x the optimum".
std::string most_above_optimum(double gap);

}  // namespace autopar
