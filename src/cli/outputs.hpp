// What search and apply leave behind: strategy.json, plan.onnx, report.json, and the table.
#pragma once

#include "cli/inputs.hpp"

namespace autopar::cli {

// Where files go: -o, or "<model stem>.autopar" in the working folder.
std::string output_folder(const PlanOptions& options);

// Writes all three files, each whole or not at all, and prints table or JSON. `strategy_text`: the
// bytes of strategy.json where they are given already (apply on a complete strategy).
Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common,
                     const std::string& strategy_text = "");

}  // namespace autopar::cli
