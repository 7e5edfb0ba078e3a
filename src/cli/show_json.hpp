// What `show --json` prints of files that are not JSON themselves.
#pragma once

#include <string>

#include "autopar/export.hpp"
#include "autopar/import.hpp"

namespace autopar::cli {

// {"format": "autopar-model-summary", ...}: boundary, op types, FLOPs; `all_ops`: every op too.
std::string show_model_json(const ImportedModel& model, bool all_ops);
// {"format": "autopar-plan-summary", ...}: mesh, boundary, collectives in order.
Result<std::string> show_plan_json(const PlanFile& file);

}  // namespace autopar::cli
