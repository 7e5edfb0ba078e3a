// What `run` prints.
#pragma once

#include <optional>
#include <string>

#include "autopar/exec.hpp"
#include "cli/run_table.hpp"

namespace autopar::cli {

// What is to be run, and what was said of it before.
struct RunJob {
  RunRequest request;
  std::optional<Prediction> prediction;  // rank 0 only
};

// Outputs and times; before the last line, which is PASSED or FAILED, how many elements are excused
// behind which op, if any are.
std::string run_table(const RunReport& report, const RunJob& job);
// That last line alone.
std::string run_verdict(const RunReport& report);
std::string run_json(const RunReport& report, const RunJob& job);

}  // namespace autopar::cli
