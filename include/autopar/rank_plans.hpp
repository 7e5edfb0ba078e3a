// Whether the folders of ranks (--weights sharded) hold what was proven: the plan.onnx above them.
// That is the program of no rank: the location that it names, #rankNNNNN/weights.safetensors, is no
// file, so that a tool that does not know of the folders refuses it, and does not run all ranks on
// the weights of one.
//
//   Result<PlanFile> plan = read_plan("gpt2.autopar/plan.onnx");
//   Status same = check_rank_plans(*plan, plan->path, plan->ranks);
//   // "gpt2.autopar/rank00003/plan.onnx: ...": the first one that differs
#pragma once

#include <string>
#include <vector>

#include "autopar/weights.hpp"

namespace autopar {

// Whether these ranks run the program of `plan`, read from `plan_path`, on weights that fit it.
// Each file is read once, however many names it has. Errors name the file, the first op or weight
// that differs, and what to do.
Status check_rank_plans(const PlanFile& plan, const std::string& plan_path,
                        const std::vector<std::int64_t>& ranks);

}  // namespace autopar
