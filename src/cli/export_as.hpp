// export --as: a plan as the flags of another program.
#pragma once

#include "cli/nearest_template.hpp"

namespace autopar::cli {

struct ExportAsOptions {
  std::string plan;  // folder, a file of it, or strategy.json
  std::string as;    // "megatron"
  std::string file;  // empty: standard output
  PricedFrom from;
};

// Writes the settings, what they do not say and what that costs. Errors (kInput): the plan is not
// there, or its file says no plan.
Result<int> export_as(const ExportAsOptions& options, const CommonOptions& common);

}  // namespace autopar::cli
