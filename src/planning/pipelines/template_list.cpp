#include "planning/pipelines/template_list.hpp"

#include "autopar/report.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

using tuning::templates::kListed;

void TemplateList::leave_out(const PipelineForm& form, const std::string& why) {
  left_out_.push_back({form, 0, 0, why});
}

void TemplateList::note_too_large(const PipelineForm& form, const StageTemplate& wanted,
                                  double bytes) {
  TooLarge& of = too_large_[{form.micro_batches, form.stages}];
  ++of.count;
  if (of.bytes > 0 && of.bytes <= bytes) return;
  of.form = form;
  of.bytes = bytes;
  of.wanted = to_text(wanted);
}

std::vector<PipelineTrial> TemplateList::listed(const std::vector<TemplateCandidate>& found) const {
  std::vector<PipelineTrial> all;
  std::map<std::pair<std::int64_t, std::int64_t>, const TemplateCandidate*> smallest;
  for (const TemplateCandidate& candidate : found) {
    const TemplatePipeline& priced = candidate.priced;
    if (candidate.fits && all.size() < kListed) {
      all.push_back({candidate.form, priced.seconds, priced.peak, to_text(candidate.wanted)});
    }
    if (candidate.fits) continue;
    smallest.try_emplace({candidate.form.micro_batches, candidate.form.stages}, &candidate);
  }
  for (const auto& [key, candidate] : smallest) {
    all.push_back({candidate->form, 0, 0,
                   to_text(candidate->wanted) + " takes by its units " +
                       format_bytes(static_cast<double>(candidate->priced.peak)) +
                       ", no other that does not fit takes less"});
  }
  for (const auto& [key, of] : too_large_) {
    all.push_back(
        {of.form, 0, 0,
         of.wanted + " holds at least " + format_bytes(of.bytes) +
             (of.count > 1 ? ", and " + std::to_string(of.count - 1) + " others more" : "")});
  }
  all.insert(all.end(), left_out_.begin(), left_out_.end());
  return all;
}

std::string TemplateList::why_none(const std::vector<TemplateCandidate>& found, Bytes room) const {
  // Else there is a reason for each form.
  const bool any_is_too_large = !found.empty() || !too_large_.empty();
  std::string text = any_is_too_large ? "no template fits into " +
                                            format_bytes(static_cast<double>(room)) + " per device"
                                      : "no template can be tried";
  if (!found.empty()) {
    const TemplateCandidate& least = found.front();
    return text + "; the smallest, " + to_text(least.form) + ", " + to_text(least.wanted) +
           ", takes " + format_bytes(static_cast<double>(least.priced.peak));
  }
  const TooLarge* least = nullptr;
  for (const auto& [key, of] : too_large_) {
    if (least == nullptr || of.bytes < least->bytes) least = &of;
  }
  if (least != nullptr) {
    text += "; the smallest, " + to_text(least->form) + ", " + least->wanted + ", holds at least " +
            format_bytes(least->bytes);
  }
  for (const PipelineTrial& trial : left_out_) {
    text += "; " + to_text(trial.form) + ": " + trial.why;
  }
  return text;
}

}  // namespace autopar
