// What a cost model's prices are in.
#pragma once

#include <string>
#include <utility>

#include "autopar/support.hpp"

namespace autopar {

std::string unit_of(const std::string& cost_model);  // "seconds" for a name that is not known
std::string price_word(
    const std::string& cost_model);  // "time" or "cost": heads a column of prices

// The key of a price in JSON: "compute_seconds" of "compute", or where the unit is another one
// "compute_cost"; of "" the last word alone.
std::string price_key(const std::string& of, const std::string& cost_model);

// With a profile: why a step does not take what its compute and collectives take one after the
// other, and by how much, as a row of a table has it.
std::pair<std::string, std::string> beside_streams(Seconds one_by_one, Seconds step);

}  // namespace autopar
