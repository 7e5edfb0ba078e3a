// What a cost model's prices are in.
#pragma once

#include <string>

namespace autopar {

std::string unit_of(const std::string& cost_model);  // "seconds" for a name that is not known
std::string price_word(
    const std::string& cost_model);  // "time" or "cost": heads a column of prices

}  // namespace autopar
