// What a step of several programs costs, by its schedule.
#pragma once

#include <string>
#include <vector>

#include "autopar/step_file.hpp"
#include "cli/show_program.hpp"

namespace autopar::cli {

// Ranks that share a line of the schedule.
struct LinePrice {
  Seconds busy = 0;   // in programs
  Bytes memory = 0;   // of a rank: what it stores, keeps between programs and uses in one
  double sent = 0;    // by a rank, to other lines and within its own
  Seconds ended = 0;  // its last action
};
struct StepPrice {
  std::vector<ProgramPrice> programs;  // each by itself, in the order of the step
  std::vector<LinePrice> lines;
  Seconds seconds = 0;
};
// Programs as price_programs() has them. A line takes its actions in order, each as soon as what it
// reads is there. What a program makes for another line leaves as one message when the program
// ends, over a link between the two lines that carries one at a time in each direction; it takes
// what the rank that sends or receives most needs for its pieces, one after the other. Errors:
// those of price_programs() and verify_request().
Result<StepPrice> price_step(const Step& step, const std::vector<PlanFile>& files,
                             const Cluster& cluster);
std::string step_price_table(const Step& step, const std::vector<PlanFile>& files,
                             const StepPrice& price);
std::string step_price_json(const Step& step, const std::vector<PlanFile>& files,
                            const StepPrice& price);

}  // namespace autopar::cli
