#include "planning/pipelines/pipeline_plan.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "planning/input_pins.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_step.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "search/bound_beside.hpp"
#include "search/no_plan.hpp"
#include "support/counted.hpp"
#include "support/parallel.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

using tuning::outer::kFormsAtOnce;
using tuning::outer::kPerDoubling;
using tuning::outer::kUnlikely;

// More than any plan takes.
constexpr Bytes kAllMemory = Bytes{1} << 50;

// What is of use of what is found: plans that hold no more and are faster.
struct Wanted {
  Bytes room = kAllMemory;
  Seconds cutoff = kInfinity;
  bool tells = true;  // on stderr, what is faster: the plan is not one among others
};

class Pipelines {
 public:
  Pipelines(const std::optional<StrategyFile>& pins, const CommonOptions& common,
            std::chrono::steady_clock::time_point begin, PhaseClock& clock, Wanted wanted = {})
      : pins_(pins), common_(common), begin_(begin), clock_(clock), wanted_(wanted) {}

  // The form that is likely to be fastest goes on: by searches of units to an estimate and to a
  // better bound, and then to a plan, until no other can have a faster one, or is likely to
  // (best-first branch and bound: Lawler and Wood, "Branch-and-bound methods: a survey", 1966).
  Result<StagedPlan> run(std::vector<StagedStep> asked) {
    const std::size_t forms =
        std::accumulate(asked.begin(), asked.end(), std::size_t{0},
                        [](std::size_t sum, const StagedStep& s) { return sum + s.forms.size(); });
    is_one_ = forms == 1;
    for (StagedStep& step : asked) AUTOPAR_RETURN_IF_ERROR(open(std::move(step)));
    if (open_.empty() && refused_) return Error{refused_->code, why_none()};
    while (!open_.empty()) {
      guess_far();
      // Without time the first that is ready for it is planned, so that there is a plan.
      const bool is_over = steps_.front()->is_over();
      if (is_over && best_time() < kInfinity) break;
      const auto next =
          std::min_element(open_.begin(), open_.end(), [is_over](const Open& a, const Open& b) {
            if (is_over && a.form.is_searched != b.form.is_searched) return a.form.is_searched;
            return a.rank() < b.rank();
          });
      FormCandidate& form = next->form;
      if (is_out(*next)) {
        left_.push_back(std::move(*next));
        open_.erase(next);
      } else if (form.is_ready() || is_over) {
        AUTOPAR_RETURN_IF_ERROR(plan_form(form, *next->step));
        open_.erase(next);
      } else {
        AUTOPAR_RETURN_IF_ERROR(look_at(looked_at_with(*next), true));
        std::erase_if(open_, [](const Open& open) { return open.is_refused; });
      }
    }
    for (Open& open : open_) left_.push_back(std::move(open));
    AUTOPAR_RETURN_IF_ERROR(raise_bound());
    tell_of_left();
    AUTOPAR_RETURN_IF_ERROR(plan_on_finer_meshes());
    if (best_.pipeline) AUTOPAR_RETURN_IF_ERROR(improve_pipeline());
    return taken();
  }

 private:
  struct Open {
    FormCandidate form;
    PipelineStep* step = nullptr;
    bool is_refused = false;
    std::pair<bool, Seconds> rank() const {
      const auto chunks = static_cast<double>(form.schedule.stage_of_chunk.size());
      return {form.has_no_units, form.likely() * (1 + kPerDoubling * std::log2(chunks + 1))};
    }
    // What is known of units, each step has by the size of the stages.
    auto size() const { return std::pair(step, form.form.stages); }
  };

  bool is_out(const Open& open) const {
    const double unlikely = open.step->is_small() ? tuning::outer::kUnlikelySmall : kUnlikely;
    return open.form.bound >= best_time() || open.form.likely() >= best_time() * (1 + unlikely);
  }

  // The next ones of other sizes may go on beside it, before any of them is planned: the same ones
  // however many threads there are, as what was searched before is known to what comes.
  std::vector<Open*> looked_at_with(Open& first) {
    std::vector<Open*> order;
    for (Open& open : open_) order.push_back(&open);
    std::stable_sort(order.begin(), order.end(),
                     [](const Open* a, const Open* b) { return a->rank() < b->rank(); });
    std::vector<Open*> looked = {&first};
    for (Open* open : order) {
      if (looked.size() == kFormsAtOnce || open->form.is_ready() || is_out(*open)) break;
      const bool is_other = std::none_of(looked.begin(), looked.end(), [&](const Open* other) {
        return other->size() == open->size();
      });
      if (is_other) looked.push_back(open);
    }
    return looked;
  }

  // What is known of other schedules of as many stages, or of the next fewer and more, says roughly
  // how far a form is above its bound: where that is far from the likeliest, it waits until no
  // other is likelier.
  void guess_far() {
    const Seconds far = tuning::outer::kFar * std::min(best_time(), likeliest());
    for (Open& open : open_) {
      FormCandidate& form = open.form;
      if (form.is_estimated || form.guess > 0 || form.form.stages == 1) continue;
      if (open.step->is_small()) continue;  // units are planned in no time
      const double above = least_above(open);
      if (above < kInfinity && above * form.bound > far) form.guess = above * form.bound;
    }
  }

  double least_above(const Open& of) const {
    const std::int64_t stages = of.form.form.stages;
    std::int64_t fewer = 0, more = std::numeric_limits<std::int64_t>::max();
    std::map<std::int64_t, double> least;
    for (const Open& other : open_) {
      const FormCandidate& known = other.form;
      const std::int64_t its = known.form.stages;
      if (other.step != of.step || its == 1 || !known.is_estimated || known.estimate <= 0) continue;
      const double above = known.estimate / known.bound;
      const auto [at, is_new] = least.emplace(its, above);
      if (!is_new) at->second = std::min(at->second, above);
      if (its <= stages) fewer = std::max(fewer, its);
      if (its >= stages) more = std::min(more, its);
    }
    double above = kInfinity;
    for (const std::int64_t its : {fewer, more}) {
      if (least.count(its) != 0) above = std::min(above, least[its]);
    }
    return above;
  }

  // First an estimate, if it is for a plan: that puts most forms aside, and a better bound takes
  // longer.
  Status look_at(const std::vector<Open*>& forms, bool is_for_plan) {
    std::vector<char> is_estimate;
    for (const Open* open : forms) {
      const bool is_next = open->form.is_begun && !open->form.is_estimated;
      is_estimate.push_back(is_for_plan && is_next ? 1 : 0);
    }
    const Seconds far = tuning::outer::kFar * std::min(best_time(), likeliest());
    std::vector<Status> looked(forms.size(), Ok{});
    in_parallel(threads_of_search(common_), forms.size(), [&](std::size_t f) {
      Open& open = *forms[f];
      looked[f] = is_estimate[f] != 0 ? open.step->estimate(open.form, far)
                                      : open.step->search_units(open.form);
    });
    for (std::size_t f = 0; f < forms.size(); ++f) {
      const FormCandidate& form = forms[f]->form;
      if (!looked[f]) {
        if (!refuses(looked[f].error())) return told(looked[f].error());
        refuse(form.form, looked[f].error());
        forms[f]->is_refused = true;
        continue;
      }
      if (is_estimate[f] != 0) {
        logging::debug("{}: by its units about {}", to_text(form.form),
                       format_seconds(form.estimate));
      } else {
        logging::debug("{}: no plan takes less than {}", to_text(form.form),
                       format_seconds(form.bound));
      }
    }
    return Ok{};
  }

  Status open(StagedStep asked) {
    AUTOPAR_TRY(step, PipelineStep::open(std::move(asked), pins_, common_, begin_, clock_, shelf_));
    const std::size_t known = open_.size();
    for (const PipelineForm& form : step->asked().forms) {
      auto candidate = step->candidate_of(form);
      if (candidate) {
        open_.push_back({std::move(*candidate), step.get()});
      } else if (is_one_) {
        return candidate.error();
      } else {
        refuse(form, candidate.error());
      }
    }
    in_parallel(threads_of_search(common_), open_.size() - known,
                [&](std::size_t f) { step->bound_by_compute(open_[known + f].form); });
    steps_.push_back(std::move(step));
    return Ok{};
  }

  // Of the forms whose units are planned.
  Seconds likeliest() const {
    Seconds least = kInfinity;
    for (const Open& open : open_) {
      if (open.form.is_estimated) least = std::min(least, open.form.likely());
    }
    return least;
  }

  // Of what was left out, that with the least bound is looked at again, until it has the best bound
  // that there is of it, or another one is no lower.
  Status raise_bound() {
    while (!steps_.front()->is_over()) {
      std::vector<Open*> order;
      for (Open& open : left_) order.push_back(&open);
      std::stable_sort(order.begin(), order.end(),
                       [](const Open* a, const Open* b) { return a->form.bound < b->form.bound; });
      std::vector<Open*> looked;
      for (Open* open : order) {
        const bool is_other = looked.empty() || looked.front()->size() != open->size();
        if (open->form.is_searched || open->form.bound >= std::min(lower_bound_, best_time()))
          break;
        if (is_other) looked.push_back(open);
        if (looked.size() == kFormsAtOnce) break;
      }
      if (looked.empty()) break;
      AUTOPAR_RETURN_IF_ERROR(look_at(looked, false));
      std::erase_if(left_, [](const Open& open) { return open.is_refused; });
    }
    return Ok{};
  }

  void tell_of_left() {
    for (const Open& open : left_) {
      const FormCandidate& form = open.form;
      lower_bound_ = std::min(lower_bound_, form.bound);
      std::string why = "not searched: no plan takes less than " + format_seconds(form.bound);
      if (form.bound < best_time()) {
        why += form.estimate > 0 ? ", by its units about " + format_seconds(form.estimate)
               : form.guess > 0  ? ", by those of others about " + format_seconds(form.guess)
                                 : std::string("; the time was up");
      }
      tried_.push_back({form.form, 0, 0, std::move(why), form.bound});
    }
  }

  // What is best without stages may be better on a mesh that no stage has. Of small steps it is
  // also looked for where pipelines are faster, or nothing fits.
  Status plan_on_finer_meshes() {
    std::vector<PipelineStep*> steps;
    for (const auto& step : steps_) {
      const std::vector<PipelineForm>& forms = step->asked().forms;
      const bool has_single = std::any_of(
          forms.begin(), forms.end(), [](const PipelineForm& form) { return form.stages == 1; });
      const bool is_looked_at = step_of_single_ == nullptr || step.get() == step_of_single_;
      if (has_single && is_looked_at && (best_.single || step->is_small())) {
        steps.push_back(step.get());
      }
    }
    for (PipelineStep* step : steps) {
      if (step->is_over()) return Ok{};
      const Seconds cutoff = best_time() * (1 - tuning::outer::kFinerGain);
      auto planned = step->plan_single(cutoff, true);
      if (!planned && planned.error().code != ErrorCode::kInfeasible) return planned.error();
      const bool is_better = planned && planned->outcome.cost.time() < best_time() &&
                             planned->outcome.cost.memory.total <= wanted_.room;
      if (!is_better) continue;
      logging::debug("1 stage takes {} on mesh {}", format_seconds(planned->outcome.cost.time()),
                     to_text(planned->outcome.strategy.mesh));
      lower_bound_ = std::min(lower_bound_, planned->outcome.lower_bound);
      best_.single.emplace(std::move(*planned));
      best_.pipeline.reset();
      best_.inputs = step->asked().inputs;
    }
    return Ok{};
  }

  // Cuts of small steps, whose chunks are planned soon: estimates by units say less there. Meshes
  // where much is left to gain; what is faster than the bound is on a mesh that that is not about.
  Status improve_pipeline() {
    PipelinePlan& best = *best_.pipeline;
    PipelineStep& step = *step_of_best_;
    if (step.is_small()) {
      AUTOPAR_RETURN_IF_ERROR(step.move_cuts(form_of_best_, wanted_.room, best));
    }
    const Seconds enough = lower_bound_ * (1 + tuning::outer::kFarAbove);
    if (step.is_small() && best.times.makespan > enough && !step.is_over()) {
      AUTOPAR_RETURN_IF_ERROR(step.plan_on_finer_meshes(form_of_best_, wanted_.room, best));
      if (best.times.makespan < lower_bound_) lower_bound_ = step.least_compute();
    }
    PipelineTrial& trial = tried_[trial_of_best_];
    trial.seconds = best.times.makespan;
    trial.peak_bytes = best.peak_bytes;
    return Ok{};
  }

  // Where stages have several chunks their plans take longer than units say: at least as much as
  // those that did least. Of small steps what lies between units may take any part of the time.
  void learn_from(const FormCandidate& planned, Seconds takes) {
    if (planned.form.chunks_per_stage == 1 || planned.estimate <= 0) return;
    slower_ = std::min(slower_.value_or(kInfinity), takes / planned.estimate);
    for (Open& open : open_) {
      if (open.form.form.chunks_per_stage > 1) open.form.slower = std::max(1.0, *slower_);
    }
  }

  // The fastest of all, with what became of the others.
  Result<StagedPlan> taken() {
    if (!best_.pipeline && !best_.single) {
      const bool is_all = refused_ && refusals_ == tried_.size();
      return Error{is_all ? refused_->code : ErrorCode::kInfeasible, why_none()};
    }
    if (best_.single && wanted_.tells) tell_of_single();
    const bool has_pipelines =
        std::any_of(tried_.begin(), tried_.end(),
                    [](const PipelineTrial& trial) { return trial.form.stages > 1; });
    if (best_.single && has_pipelines && best_.single->outcome.lower_bound > 0) {
      SearchOutcome& outcome = best_.single->outcome;
      outcome.lower_bound = bound_beside(lower_bound_, outcome.cost.time());
      outcome.unlimited_lower_bound = 0;  // not known of pipelines
    }
    if (best_.pipeline) {
      best_.pipeline->interrupted = steps_.front()->is_over();
      best_.pipeline->tried = std::move(tried_);
      best_.pipeline->lower_bound = bound_beside(lower_bound_, best_.pipeline->times.makespan);
    }
    return std::move(best_);
  }

  // Its report has no place for pipelines.
  void tell_of_single() const {
    const PipelineTrial* next = nullptr;
    for (const PipelineTrial& trial : tried_) {
      const bool is_other = trial.form.stages > 1 && trial.seconds > 0;
      if (is_other && (next == nullptr || trial.seconds < next->seconds)) next = &trial;
    }
    const std::string other = next == nullptr ? "none of them was planned"
                                              : "the nearest, " + to_text(next->form) + ", takes " +
                                                    format_seconds(next->seconds);
    logging::info(
        "one stage is faster than pipelines: {} forms were looked at; {}, and none takes "
        "less than {}",
        tried_.size(), other, format_seconds(std::min(lower_bound_, best_time())));
    if (refused_) {
      logging::info("{} of these cannot be had: {}", refusals_, refused_->message);
    }
  }

  Status plan_form(const FormCandidate& candidate, PipelineStep& step) {
    const PipelineForm& form = candidate.form;
    if (form.stages == 1) {
      auto planned = step.plan_single(best_time(), false);
      Seconds bound = candidate.bound;
      if (planned) bound = std::max(bound, planned->outcome.lower_bound);
      lower_bound_ = std::min(lower_bound_, bound);
      if (!planned) return note(form, planned.error());
      const Seconds time = planned->outcome.cost.time();
      if (time < time_of_single_) step_of_single_ = &step;
      time_of_single_ = std::min(time_of_single_, time);
      tried_.push_back({form, time, planned->outcome.cost.memory.total, ""});
      if (time >= best_time() || tried_.back().peak_bytes > wanted_.room) return Ok{};
      best_.single.emplace(std::move(*planned));
      best_.pipeline.reset();
      best_.inputs = step.asked().inputs;
      return Ok{};
    }
    lower_bound_ = std::min(lower_bound_, candidate.bound);
    auto plan = step.plan(candidate, best_time());
    step.forget_plans();
    if (!plan) return note(form, plan.error());
    if (!step.is_small()) learn_from(candidate, plan->times.makespan);
    tried_.push_back({form, plan->times.makespan, plan->peak_bytes, ""});
    if (plan->times.makespan < best_time() && plan->peak_bytes <= wanted_.room) {
      best_.pipeline = std::move(*plan);
      best_.single.reset();
      form_of_best_ = candidate;
      step_of_best_ = &step;
      trial_of_best_ = tried_.size() - 1;
      best_.inputs = step.asked().inputs;
    }
    return Ok{};
  }

  // Whether one form of several cannot be had: the step cut into so many chunks, or pins kept that
  // are of what it has not, such as the mesh of all devices.
  bool refuses(const Error& error) const { return !is_one_ && error.code == ErrorCode::kInput; }
  Error told(const Error& error) const { return pins_ ? with_pin_file(error, pins_->path) : error; }
  void refuse(const PipelineForm& form, const Error& why) {
    const Error error = told(why);
    tried_.push_back({form, 0, 0, error.message});
    if (!refused_) refused_ = error;
    ++refusals_;
  }

  // A form without a plan is no error where there are others.
  Status note(const PipelineForm& form, const Error& error) {
    if (refuses(error)) {
      refuse(form, error);
      return Ok{};
    }
    if (is_one_ || error.code == ErrorCode::kInput || error.code == ErrorCode::kUsage) {
      return told(error);
    }
    const bool has_cutoff = best_time() < kInfinity && error.code == ErrorCode::kInfeasible;
    tried_.push_back(
        {form, 0, 0, has_cutoff ? "no plan that fits was found that is faster" : error.message});
    return Ok{};
  }

  Seconds best_time() const {
    if (best_.single) return best_.single->outcome.cost.time();
    return best_.pipeline ? best_.pipeline->times.makespan : wanted_.cutoff;
  }

  // Each reason once, with the first form that has it; of many only the first, which are those of
  // the likeliest forms.
  std::string why_none() const {
    std::vector<std::pair<std::string, std::vector<const PipelineForm*>>> reasons;
    for (const PipelineTrial& trial : tried_) {
      const std::string why = trial.why.empty() ? format_seconds(trial.seconds) : trial.why;
      const auto known = std::find_if(reasons.begin(), reasons.end(),
                                      [&](const auto& reason) { return reason.first == why; });
      if (known == reasons.end()) {
        reasons.push_back({why, {&trial.form}});
      } else {
        known->second.push_back(&trial.form);
      }
    }
    if (reasons.size() == 1) return reasons[0].first;
    constexpr std::size_t kMostReasons = 3;
    std::string text = "no plan was found", advice;
    std::size_t untold = tried_.size();
    for (std::size_t r = 0; r < std::min(kMostReasons, reasons.size()); ++r) {
      const auto& [why, forms] = reasons[r];
      untold -= forms.size();
      const std::size_t own = advice_of(why);
      if (advice.empty()) advice = why.substr(own);  // the others say the same
      text += "; " + to_text(*forms[0]) +
              (forms.size() > 1 ? " and " + std::to_string(forms.size() - 1) + " more" : "") +
              ": " + why.substr(0, own);
    }
    if (untold > 0) {
      text += "; " + counted(untold, "more form has", "more forms have") + " none either";
    }
    return text + advice;
  }

  const std::optional<StrategyFile>& pins_;
  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  const Wanted wanted_;
  const std::shared_ptr<UnitShelf> shelf_ =
      std::make_shared<UnitShelf>(tuning::units::kBytesAtHand);
  std::vector<std::unique_ptr<PipelineStep>> steps_;  // by numbers of micro-batches
  std::vector<Open> open_;
  std::vector<Open> left_;        // out
  std::optional<double> slower_;  // plans of several chunks a stage, by what units say
  Seconds lower_bound_ = kInfinity;
  std::optional<Error> refused_;  // of the first form that cannot be tried
  std::size_t refusals_ = 0;
  StagedPlan best_;
  PipelineStep* step_of_single_ = nullptr;  // of the fastest plan without stages
  Seconds time_of_single_ = kInfinity;
  PipelineStep* step_of_best_ = nullptr;  // of best_.pipeline
  FormCandidate form_of_best_;
  std::size_t trial_of_best_ = 0;
  bool is_one_ = false;  // one form alone was asked for
  std::vector<PipelineTrial> tried_;
};

}  // namespace

namespace {

// Of the fullest device.
Bytes peak_of(const StagedPlan& plan) {
  return plan.pipeline ? plan.pipeline->peak_bytes : plan.single->outcome.cost.memory.total;
}

Seconds time_of(const StagedPlan& plan) {
  return plan.pipeline ? plan.pipeline->times.makespan : plan.single->outcome.cost.time();
}

// As it is with so much room.
Status reprice(const std::string& updates, Bytes room, StagedPlan& found) {
  PipelinePlan& plan = *found.pipeline;
  const Seconds before = plan.times.makespan;
  plan.schedule.lines = plan.passes;
  for (ChunkPlan& chunk : plan.chunks) chunk.in_stage = nullptr;
  AUTOPAR_RETURN_IF_ERROR(price_pipeline(found.inputs->cluster, updates, room, plan));
  for (PipelineTrial& trial : plan.tried) {
    if (trial.seconds == before) trial.seconds = plan.times.makespan;
  }
  return Ok{};
}

// What was tried without the limit may be too large for it.
void tell_what_fits(Bytes room, std::vector<PipelineTrial>& tried) {
  for (PipelineTrial& trial : tried) {
    if (trial.peak_bytes <= room) continue;
    trial.why = "does not fit: takes " + format_bytes(static_cast<double>(trial.peak_bytes));
    trial.seconds = 0;
    trial.peak_bytes = 0;
  }
}

}  // namespace

namespace {

// A pipeline that is planned as if there was no limit, holds no more than `room` and takes less
// than `cutoff`: the fastest of all, else the fastest that is found of those. Errors: kInfeasible,
// there is none; of pricing it.
Result<StagedPlan> pipeline_without_limit(std::vector<StagedStep> steps, Bytes room, Seconds cutoff,
                                          const std::optional<StrategyFile>& pins,
                                          const CommonOptions& common,
                                          std::chrono::steady_clock::time_point begin,
                                          PhaseClock& clock) {
  const std::string updates = steps.front().options.updates;
  CommonOptions without_limit = common;
  without_limit.memory = std::to_string(kAllMemory);
  // As it is with what the limit leaves for what is fetched ahead.
  const auto within = [&](Result<StagedPlan> found) -> Result<StagedPlan> {
    const bool fits = found && found->pipeline && peak_of(*found) <= room;
    if (!fits) return infeasible_error("no plan without the limit fits");
    AUTOPAR_RETURN_IF_ERROR(reprice(updates, room, *found));
    if (time_of(*found) >= cutoff) return infeasible_error("none is faster");
    return found;
  };
  auto fastest = within(Pipelines(pins, without_limit, begin, clock, {.tells = false}).run(steps));
  if (fastest || fastest.error().code != ErrorCode::kInfeasible) return fastest;
  // A plan without stages is searched within the limit.
  for (StagedStep& step : steps) {
    std::erase_if(step.forms, [](const PipelineForm& form) { return form.stages == 1; });
  }
  std::erase_if(steps, [](const StagedStep& step) { return step.forms.empty(); });
  const std::size_t forms =
      std::accumulate(steps.begin(), steps.end(), std::size_t{0},
                      [](std::size_t sum, const StagedStep& s) { return sum + s.forms.size(); });
  if (forms < 2) return fastest;
  const Wanted wanted{room, cutoff, false};
  return within(Pipelines(pins, without_limit, begin, clock, wanted).run(std::move(steps)));
}

}  // namespace

Result<StagedPlan> plan_staged(std::vector<StagedStep> steps,
                               const std::optional<StrategyFile>& pins, const CommonOptions& common,
                               std::chrono::steady_clock::time_point begin, PhaseClock& clock) {
  const bool is_small = std::all_of(steps.begin(), steps.end(), [](const StagedStep& step) {
    return step.inputs->model.graph.ops.size() <= kSmallStep;
  });
  std::vector<StagedStep> again;
  if (is_small) again = steps;
  auto best = Pipelines(pins, common, begin, clock).run(std::move(steps));
  if (!is_small || (!best && best.error().code != ErrorCode::kInfeasible)) return best;
  AUTOPAR_TRY(room, room_of(again.front().inputs->cluster, common));
  // What units say of memory is an estimate, and the plan that they make without a limit may fit.
  const auto binding = static_cast<Bytes>(tuning::outer::kBinding * static_cast<double>(room));
  const bool binds = !best || peak_of(*best) > binding;
  const bool is_over =
      interrupt_requested().load() || seconds_since(begin) >= again.front().options.time_limit;
  if (!binds || is_over) return best;
  auto other = pipeline_without_limit(again, room, best ? time_of(*best) : kInfinity, pins, common,
                                      begin, clock);
  if (!other) return best;
  PipelinePlan& plan = *other->pipeline;
  tell_what_fits(room, plan.tried);
  // A bound of plans that fit is one of this plan, too.
  if (best && best->pipeline) {
    const Seconds bound = best->pipeline->lower_bound;
    plan.lower_bound = bound_of_two(plan.lower_bound, bound, plan.times.makespan);
  }
  return other;
}

}  // namespace autopar
