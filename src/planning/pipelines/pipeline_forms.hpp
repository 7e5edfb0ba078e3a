// What --stages, --chunks and --schedule ask for.
#pragma once

#include "planning/pipelines/pipeline_plan.hpp"

namespace autopar {

// Errors (kUsage): no number from 1 on.
Result<std::int64_t> parse_count(const std::string& text, const std::string& option);

// The passes of a step, in two parts where any backward pass of a chunk is; of a model that is not
// trained the forward passes alone. Errors: those of make_schedule(), a schedule that divides
// backward passes of a model that has none; of a file (kInput), with its name.
Result<PipelineSchedule> schedule_of_table(const std::string& text, const std::string& where,
                                           const Graph& step);
Result<PipelineSchedule> schedule_of(const PipelineForm& form, const Graph& step);

// The cuts that --cuts names, for so many chunks. Errors (kInput): another number of them; no such
// forward op.
Result<std::vector<OpId>> named_cuts(const std::string& names, const ImportedModel& model,
                                     const Graph& step, std::size_t chunks);

}  // namespace autopar
