// What search and apply leave behind: strategy.json, plan.onnx, report.json, and the table.
#pragma once

#include "cli/inputs.hpp"

namespace autopar::cli {

// Where files go: -o, or "<model stem>.autopar" in the working folder.
std::string output_folder(const PlanOptions& options);

// Writes all three files, each whole or not at all, and prints table or JSON. Where one of them
// cannot be written, none is there.
Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common);

}  // namespace autopar::cli
