// A template of a pipeline that its units say fits, and its plan, chunk by chunk.
#pragma once

#include "planning/pipelines/template_pipeline.hpp"

namespace autopar {

// Whether it does not fit; then its memory, else its time.
using TemplateRank = std::pair<bool, double>;

// A step of one number of micro-batches.
struct OpenStep {
  const StagedStep* asked = nullptr;
  Inputs inputs;  // with kernels
  std::unique_ptr<TemplateUnits> units;
};

// A template by its units.
struct TemplateCandidate {
  const OpenStep* step = nullptr;
  PipelineForm form;
  StageTemplate wanted;
  std::size_t which = 0;  // of its plans
  TemplatePipeline priced;
  bool fits = false;
  TemplateRank rank() const {
    return {!fits, fits ? priced.seconds : static_cast<double>(priced.peak)};
  }
};

// Its chunks are made of its units. Errors (kInfeasible): it does not fit in whole.
Result<StagedPlan> plan_of(const TemplateCandidate& candidate, const CommonOptions& common,
                           std::chrono::steady_clock::time_point begin, PhaseClock& clock);

}  // namespace autopar
