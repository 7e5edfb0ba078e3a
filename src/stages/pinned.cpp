#include "autopar/stages.hpp"
#include "stages/assign.hpp"

namespace autopar {

Result<std::vector<OpId>> cuts_of_stages(const Graph& step, const std::vector<int>& stage_of_op,
                                         int stages, const std::string& updates) {
  AUTOPAR_CHECK(stage_of_op.size() == step.ops.size(), "stages of other ops");
  const std::vector<char> shared = stages::made_of_data(step, stages::next_values(step, updates));
  std::vector<OpId> cuts;
  const Op* before = nullptr;  // the last op whose stage was said
  int now = 0;
  for (std::size_t o = 0; o < step.ops.size(); ++o) {
    const Op& op = step.ops[o];
    const int stage = stage_of_op[o];
    if (stage < 0 || op.phase != Phase::kForward || shared[o]) continue;
    const std::string said = "op '" + op.name + "': pipeline_stage " + std::to_string(stage);
    if (stage >= stages) {
      return input_error(said + ", and there are stages 0 to " + std::to_string(stages - 1) +
                         "; --stages says how many");
    }
    if (stage < now) {
      return input_error(said + " behind op '" + before->name + "' of stage " +
                         std::to_string(now) + ": stages hold ops that follow each other");
    }
    if (stage > now + 1) {
      return input_error(said + ": no op before it is of stage " + std::to_string(now + 1));
    }
    if (stage > now) cuts.push_back(OpId(static_cast<std::int64_t>(o)));
    now = stage;
    before = &op;
  }
  if (now + 1 < stages) {
    return input_error("pipeline_stage: no op is of stage " + std::to_string(now + 1) +
                       ", and --stages is " + std::to_string(stages));
  }
  return cuts;
}

}  // namespace autopar
