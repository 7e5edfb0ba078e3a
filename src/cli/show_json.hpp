// What `show --json` prints of files that are not JSON themselves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/import.hpp"

namespace autopar::cli {

// {"format": "autopar-model-summary", ...}: boundary, op types, FLOPs; `all_ops`: every op too.
std::string show_model_json(const ImportedModel& model, bool all_ops);
// {"format": "autopar-plan-summary", ...}: mesh, boundary, collectives in order. Of several
// programs a list of such.
Result<nlohmann::ordered_json> program_json(const PlanFile& file);
Result<std::string> show_programs_json(const std::vector<PlanFile>& files);

}  // namespace autopar::cli
