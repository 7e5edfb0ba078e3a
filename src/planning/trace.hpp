// --trace and --without: the stages of a search, told and left out.
#pragma once

#include <string>
#include <vector>

#include "autopar/problem.hpp"
#include "autopar/support.hpp"

namespace autopar {

// As SolveOptions::left_out, of names with commas between them. Errors: kUsage for a name that is
// none of the stages, with those that there are.
Result<unsigned> stages_left_out(const std::string& names);
// "presolve, fold, ...": for help and messages.
std::string stage_names();

// A table of what each stage did: its bound, the best plan by then, the gap between them, counted
// work and seconds. `scale`: what a unit of cost is shown as.
std::string trace_text(const std::vector<StageReport>& stages, double scale);

}  // namespace autopar
