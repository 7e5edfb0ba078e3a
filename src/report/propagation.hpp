// What sharding propagation found, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "autopar/report.hpp"

namespace autopar {

// Adds "propagation" and "conflicts" to a report's document; `rows` 0: all conflicts.
void add_propagation(const Report& report, std::size_t rows, nlohmann::ordered_json& document);
// What add_propagation wrote; nothing where it is not there. Throws like the reader of reports.
std::optional<Propagation> propagation_of(const nlohmann::json& document,
                                          const std::string& cost_model);
// The price under that key, see price_key(); infinite where it is null.
double price_at(const nlohmann::json& j, const std::string& of, const std::string& cost_model);

// Tables: from what to how much, and the conflicts.
std::string propagation_table(const Report& report, std::size_t rows);

}  // namespace autopar
