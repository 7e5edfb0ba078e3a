// What a cost model's prices are in.
#pragma once

#include <string>

namespace autopar {

std::string unit_of(const std::string& cost_model);  // "seconds" for a name that is not known

}  // namespace autopar
