// Pins that say of which stage ops are, as MindSpore's pipeline_stage does.
#pragma once

#include <string>
#include <vector>

#include "planning/inputs.hpp"

namespace autopar {

// Per op of the step what the file says of it (see cuts_of_stages), by a name before by a pattern,
// and by a longer pattern before by a shorter one; -1: nothing. Names are the user's or those that
// import gave. Errors (kInput): a name or pattern that no op of the forward pass has.
Result<std::vector<int>> pinned_stages(const StrategyFile& file, const ImportedModel& model,
                                       const Graph& step);

// Errors (kInput): an op that is pinned, and the step does not have, with the nearest name.
// Repeated ops and those that hand on hubs come with the chunks.
Status check_op_names(const StrategyFile& file, const ImportedModel& model, const Graph& step);
// Names pinned ops of the user as the ops that import made of them are named, and pins both that it
// makes of a Gemm: a chunk may have one of them. Errors (kInput): import made none of it, or
// several; a Gemm that cannot be cut so.
Status name_as_imported(const ImportedModel& model, const GraphRules& rules, StrategyFile& file);
// As check_op_names(), of tensors.
Status check_tensor_names(const StrategyFile& file, const Graph& step);

// Of an op that the forward pass does not have, why not.
std::string why_absent(const ImportedModel& model, const std::string& name);

}  // namespace autopar
