// What to say of a bound that is above the plan that it is about.
#pragma once

#include <string>

namespace autopar {

// By more than rounding: an error of the search. Empty: it is not. Both are prices of that cost
// model.
std::string contradiction(double bound, double plan, const std::string& cost_model = "roofline");

}  // namespace autopar
