// What became of the templates of pipelines, for those who read the table.
#pragma once

#include "planning/pipelines/template_plan.hpp"

namespace autopar {

class TemplateList {
 public:
  void leave_out(const PipelineForm& form, const std::string& why);
  // Of a number of stages and micro-batches the least is told.
  void note_too_large(const PipelineForm& form, const StageTemplate& wanted, double bytes);

  // The fastest that fit; then of each number of stages the smallest that does not, and what was
  // left out. `found`: those that fit first, the fastest first.
  std::vector<PipelineTrial> listed(const std::vector<TemplateCandidate>& found) const;
  // That none fits, with the smallest.
  std::string why_none(const std::vector<TemplateCandidate>& found, Bytes room) const;

 private:
  struct TooLarge {
    PipelineForm form;
    std::string wanted;
    double bytes = 0;
    int count = 0;
  };
  std::map<std::pair<std::int64_t, std::int64_t>, TooLarge> too_large_;
  std::vector<PipelineTrial> left_out_;
};

}  // namespace autopar
