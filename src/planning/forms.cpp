#include "planning/forms.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "planning/hub_ops.hpp"
#include "planning/input_pins.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/search_shown.hpp"
#include "planning/zero.hpp"
#include "search/mesh_search.hpp"
#include "search/no_plan.hpp"
#include "support/stopwatch.hpp"

namespace autopar {

namespace {

constexpr std::array kLevels = {Recompute::kNone, Recompute::kCheap, Recompute::kProducts,
                                Recompute::kFull};

// None after an interrupt.
Seconds time_left(const SolveOptions& options, std::chrono::steady_clock::time_point start) {
  if (options.stop != nullptr && options.stop->load()) return 0;
  return std::max(0.0, options.time_limit - seconds_since(start));
}

// Costs and bounds that differ by less than this part count as equal. Measured on 8B to 405B steps:
// where memory is ample, searches end within 0.0013 % of their bound; it is no use to search for
// minutes for less than this.
constexpr double kNoGain = 1e-3;
// A form that cannot be faster than the best plan by this part is not searched.
constexpr double kWorthwhile = 5e-3;
// Ops of the forms that are kept at hand, before anything is repeated in them: some 2 KB each.
constexpr std::size_t kOpsKept = 65536;
// What part of the memory a plan takes that the limit may have shaped. Measured on the same: those
// that it has shaped take at least 0.999.
constexpr double kNearlyFull = 0.9;
// A plan that fills the memory and takes so much longer than its bound may wait for what is fetched
// late for want of room, which its weighted prices do not know. A GPT of 8 layers in 4 passes on 3
// devices takes 11.90 ms so, 46 % above its bound, and 11.04 with cheap ops repeated.
constexpr double kWaits = 0.1;

// Whether keeping less could make a plan cheaper.
bool limit_binds(const SearchRequest& request, const SearchOutcome& outcome) {
  const SearchOutcome::Minimised& found = outcome.minimised;
  if (!request.limit_memory) return false;
  const Seconds without = found.unlimited_lower_bound * (1 + kNoGain);
  const bool is_full = static_cast<double>(outcome.cost.memory.total) >
                       kNearlyFull * static_cast<double>(plan_limit(request));
  if (found.best <= without) {
    return is_full && outcome.cost.time() > (1 + kWaits) * outcome.lower_bound;
  }
  return is_full || (found.unlimited_lower_bound > 0 && found.lower_bound > without);
}

bool updates_parameters(const SearchRequest& request) {
  const std::vector<ValueId> updated = updated_inputs(request.graph, request.updates);
  return std::any_of(updated.begin(), updated.end(), [&](ValueId input) {
    return input.valid() && request.graph.value(input).kind == ValueKind::kParameter;
  });
}

// A model may be planned in several forms: with ops repeated or not, and a training step in several
// numbers of passes. The best plan of all is taken. Once there is one, the search of another form
// ends where it is proven to be faster by no more than kWorthwhile.
//
// More passes and more repetition save memory and take time: so a form takes at least what one with
// less of both takes with all memory, and does not fit where one with more of both does not.
class Forms {
 public:
  Forms(const std::optional<StrategyFile>& pins, const PlanOptions& options,
        const CommonOptions& common, std::chrono::steady_clock::time_point begin, PhaseClock& clock,
        const Enough& enough, const OtherPlan& other)
      : pins_(pins),
        options_(options),
        common_(common),
        begin_(begin),
        clock_(clock),
        cutoff_(enough.cutoff),
        gap_(enough.gap),
        other_(other) {}

  // `given`: the options by which to read the model again, for other numbers of passes.
  Result<Planned> best(std::unique_ptr<Inputs> inputs, const PlanOptions& given) {
    AUTOPAR_TRY(asked, parse_recompute_option(options_.recompute, pins_ ? &*pins_ : nullptr));
    asked_ = asked;
    levels_.assign(kLevels.begin(), kLevels.end());
    if (asked_) levels_ = {*asked_};
    counts_ = {inputs->model.graph.passes};
    if (options_.training.micro_batches == "auto") {
      AUTOPAR_TRY(counts, micro_batches_of("auto", inputs->batch));
      counts_ = std::move(counts);
    }
    keep(0, std::move(inputs));
    AUTOPAR_RETURN_IF_ERROR(plan_all(given));
    AUTOPAR_RETURN_IF_ERROR(plan_moving());
    if (!best_ && !unplanned_ && why_refused_) return *why_refused_;
    if (!best_) AUTOPAR_RETURN_IF_ERROR(plan_what_saves_most());
    if (!options_.dump_file.empty() && !best_->request->mesh) {
      AUTOPAR_RETURN_IF_ERROR(dump_problem(options_.dump_file, *best_->request,
                                           best_->outcome.strategy.mesh, options_.model));
    }
    if (tried_.size() > 1) best_->inputs->tried = std::move(tried_);
    // With all memory another form may be faster, also one of which nothing fits.
    for (const Form& form : forms_) {
      Seconds& unlimited = best_->outcome.unlimited_lower_bound;
      unlimited = std::min(unlimited, form.without_limit);
    }
    Seconds& bound = best_->outcome.lower_bound;
    if (const Seconds others = bound_of_others(); others < bound * (1 - kBoundRounding))
      bound = others;
    return std::move(*best_);
  }

 private:
  // Which of the numbers of passes, and of the levels of repetition.
  struct Place {
    std::size_t count = 0, level = 0;
    bool within(const Place& other) const { return count <= other.count && level <= other.level; }
  };
  // What is known of a form.
  struct Form {
    Place at = {};
    bool may_gain = true;       // by keeping less
    Seconds without_limit = 0;  // a bound on what it costs with all memory
    bool may_fit = true;        // false: nothing was found, and not since it would be no cheaper
    bool nothing_fits = false;  // proven
    Seconds bound = 0;          // no plan of it takes less
    std::vector<KnownBound> meshes = {};  // as without_limit, of each
  };

  // Nothing repeated, in as few passes as that fits in; then with more and more repeated in fewer
  // passes, as far down as something may fit; so the best plan is met early. Then what is left, of
  // which bounds rule out most.
  Status plan_all(const PlanOptions& given) {
    const std::size_t counts = counts_.size();
    std::size_t least = 0;  // of the passes in which something fits
    while (least < counts) {
      AUTOPAR_TRY(fits, plan_at({least, 0}, given));
      if (fits) break;
      ++least;
    }
    for (std::size_t level = 1; level < levels_.size(); ++level) {
      while (least > 0) {
        AUTOPAR_TRY(fits, plan_at({least - 1, level}, given));
        if (!fits) break;
        --least;
      }
    }
    for (std::size_t count = 0; count < counts; ++count) {
      for (std::size_t level = 0; level < levels_.size(); ++level) {
        AUTOPAR_RETURN_IF_ERROR(plan_at({count, level}, given));
      }
    }
    return Ok{};
  }

  // Whether something of it may fit. Nothing is done where that is of no use.
  Result<bool> plan_at(const Place& at, const PlanOptions& given) {
    const auto known = std::find_if(forms_.begin(), forms_.end(), [&](const Form& form) {
      return form.at.within(at) && at.within(form.at);
    });
    if (known != forms_.end()) return known->may_fit;
    if (cannot_fit(at) || refused_.count(at.count) != 0) return false;
    if (is_vain(at) || has_other_.count(at.count) != 0 || (best_ && time_is_up())) return true;
    AUTOPAR_TRY(inputs, inputs_of(at, given));
    if (inputs == nullptr) return refused_.count(at.count) == 0;
    AUTOPAR_TRY(form, plan(std::move(inputs), at));
    if (refused_.count(at.count) != 0) return false;
    forms_.push_back(form);
    if (form.may_gain) AUTOPAR_RETURN_IF_ERROR(take_other(at));
    return form.may_fit;
  }

  // Where the best plan is of that form.
  Status take_other(const Place& at) {
    if (!other_ || !best_ || !best_at_.within(at) || !at.within(best_at_)) return Ok{};
    const Seconds before = best_cost();
    const double near = std::max(tuning::outer::kSingleGap, best_->request->solve.gap);
    if (before <= best_->outcome.lower_bound * (1 + near)) return Ok{};
    AUTOPAR_TRY(found, other_(std::move(*best_)));
    best_.emplace(std::move(found));
    if (best_cost() >= before) return Ok{};
    clock_.end("other searching");
    has_other_.insert(at.count);
    const Inputs& inputs = *best_->inputs;
    tried_.push_back(
        {inputs.model.graph.passes, to_text(levels_of(inputs)), best_cost(), true, false, true});
    return Ok{};
  }

  bool cannot_fit(const Place& at) const {
    return std::any_of(forms_.begin(), forms_.end(),
                       [&](const Form& form) { return form.nothing_fits && at.within(form.at); });
  }

  // What no plan of the forms beside that of the best plan is faster than. Those that were not
  // searched take at least what one with less of both takes with all memory. A search that was
  // stopped says nothing of what it had not looked at.
  Seconds bound_of_others() const {
    Seconds bound = kInfinity;
    for (std::size_t count = 0; count < counts_.size(); ++count) {
      for (std::size_t level = 0; level < levels_.size(); ++level) {
        const Place at{count, level};
        const bool is_best = at.within(best_at_) && best_at_.within(at);
        const bool is_form = level == 0 || updates_parameters(*best_->request);
        if (!is_form || is_best || cannot_fit(at) || refused_.count(count) != 0) continue;
        if (same_as_none_.count({count, level}) != 0) continue;
        const Seconds own = bound_at(at);
        if (own > 0 || !time_is_up()) bound = std::min(bound, own);
      }
    }
    return bound;
  }

  Seconds bound_at(const Place& at) const {
    Seconds bound = 0;
    for (const Form& form : forms_) {
      if (!form.at.within(at)) continue;
      bound = std::max(bound, at.within(form.at) ? form.bound : form.without_limit);
    }
    return bound;
  }

  static std::vector<KnownBound> bounds_of(const std::vector<MeshTrial>& trials) {
    std::vector<KnownBound> bounds;
    for (const MeshTrial& trial : trials) {
      if (!says_something(trial.end)) continue;
      bounds.push_back({trial.mesh, trial.unlimited_lower_bound});
    }
    return bounds;
  }

  // By forms with less of both.
  std::vector<KnownBound> known_bounds(const Place& at) const {
    std::vector<KnownBound> bounds;
    for (const Form& form : forms_) {
      if (form.at.within(at)) {
        bounds.insert(bounds.end(), form.meshes.begin(), form.meshes.end());
      }
    }
    return bounds;
  }

  bool is_vain(const Place& at) const {
    return std::any_of(forms_.begin(), forms_.end(), [&](const Form& form) {
      return form.at.within(at) && (!form.may_gain || form.without_limit >= worthwhile());
    });
  }

  // Null: it is a form that is known, or the model cannot be had with so many passes. Some numbers
  // of passes are kept at hand.
  Result<std::unique_ptr<Inputs>> inputs_of(const Place& at, const PlanOptions& given) {
    auto known = whole_.find(at.count);
    if (known == whole_.end()) {
      PlanOptions options = given;
      options.training.micro_batches = std::to_string(counts_[at.count]);
      auto loaded = load_inputs(options, common_);
      if (!loaded && loaded.error().code == ErrorCode::kInput && counts_.size() > 1) {
        left_out_.tell(counts_[at.count], loaded.error());
        refused_.insert(at.count);
        return std::unique_ptr<Inputs>();
      }
      if (!loaded) return loaded.error();
      if (pins_) AUTOPAR_RETURN_IF_ERROR(take_checkpoints(*pins_, **loaded));
      known = keep(at.count, std::move(*loaded));
    }
    auto inputs =
        is_only_one() ? std::move(known->second) : std::make_unique<Inputs>(*known->second);
    if (pins_ && repeats_by_name(*pins_)) {
      AUTOPAR_RETURN_IF_ERROR(repeat_named_ops(*pins_, false, *inputs));
    }
    if (levels_[at.level] == Recompute::kNone) return inputs;
    AUTOPAR_TRY(repeated, repeat_ops(*inputs, levels_[at.level]));
    if (!repeated && !asked_) {
      same_as_none_.insert({at.count, at.level});
      return std::unique_ptr<Inputs>();
    }
    // Of a chunk of a pipeline the table says it.
    if (!repeated && !options_.phases_apart) {
      logging::warn("warning: --recompute: nothing to gain, no op is repeated");
    }
    return inputs;
  }

  using Whole = std::map<std::size_t, std::unique_ptr<Inputs>>;
  Whole::iterator keep(std::size_t count, std::unique_ptr<Inputs> inputs) {
    const std::size_t ops = std::max<std::size_t>(1, inputs->model.graph.ops.size());
    while (!whole_.empty() && (whole_.size() + 1) * ops > kOpsKept) {
      // The one that is furthest from this one.
      const bool first = count - std::min(count, whole_.begin()->first) >
                         whole_.rbegin()->first - std::min(count, whole_.rbegin()->first);
      whole_.erase(first ? whole_.begin() : std::prev(whole_.end()));
    }
    return whole_.insert_or_assign(count, std::move(inputs)).first;
  }

  // Parts that move save memory and nothing else, so they are looked at last, in the best form, or
  // the last of those of which nothing fits. Their bound and that of the others are one.
  Status plan_moving() {
    if (options_.moving != "auto" || !proves_bounds(options_.searcher)) return Ok{};
    // A training step that fits has saved its memory by repeating ops.
    if (best_ &&
        (updates_parameters(*best_->request) || !limit_binds(*best_->request, best_->outcome))) {
      return Ok{};
    }
    Planned* const form = best_ ? &*best_ : unplanned_ ? &unplanned_->form : nullptr;
    if (form == nullptr || time_left(form->request->solve, begin_) == 0 ||
        !has_moving(*form->request)) {
      return Ok{};
    }
    SearchRequest request = *form->request;
    request.moving = SearchRequest::Moving::kOnly;
    request.solve.time_limit = time_left(request.solve, begin_);
    SearchFindings findings;
    if (best_) request.solve.cutoff = best_cost();
    if (best_) request.findings = &findings;
    auto outcome = search_shown(request, common_);
    const bool found = outcome.ok() && (!best_ || outcome->cost.time() < best_cost());
    tried_.push_back({form->inputs->model.graph.passes, to_text(levels_of(*form->inputs)),
                      found ? outcome->cost.time() : 0, best_.has_value(), true});
    clock_.end("other searching");
    // Of the meshes that this needs none may keep the pins.
    const bool is_of_pins = !outcome && pins_ && outcome.error().code == ErrorCode::kInput;
    if (!outcome && !is_of_pins && outcome.error().code != ErrorCode::kInfeasible) {
      return outcome.error();
    }
    if (best_ && !is_of_pins)
      take_bound(*best_, outcome ? outcome->lower_bound : bound_of(findings));
    if (!found) return Ok{};
    if (best_) take_trials(best_->outcome, *outcome);
    request.solve.cutoff = kInfinity;
    request.findings = nullptr;
    best_.emplace(Planned{std::move(form->inputs), std::move(request), std::move(*outcome)});
    return Ok{};
  }

  static bool proves_bounds(const std::string& name) {
    return std::any_of(searchers().begin(), searchers().end(),
                       [&](const Searcher& s) { return s.proves_bound && name == s.name; });
  }

  // Of what no plan on any mesh was found: on those where nothing fits there is none.
  static Seconds bound_of(const SearchFindings& findings) {
    Seconds bound = findings.trials.empty() ? 0 : kInfinity;
    for (const MeshTrial& trial : findings.trials) {
      const bool is_silent = trial.end == TrialEnd::kPinsNotKept ||
                             trial.end == TrialEnd::kTooLarge ||
                             trial.end == TrialEnd::kNothingFits;
      if (!is_silent) bound = std::min(bound, trial.lower_bound);
    }
    return bound;
  }

  // A bound on other plans is one on all.
  static void take_bound(Planned& planned, Seconds bound) {
    SearchOutcome& outcome = planned.outcome;
    outcome.lower_bound = std::min(outcome.lower_bound, bound);
    outcome.unlimited_lower_bound = std::min(outcome.unlimited_lower_bound, outcome.lower_bound);
  }

  // Of meshes that only the earlier search tried.
  static void take_trials(const SearchOutcome& earlier, SearchOutcome& outcome) {
    for (const MeshTrial& trial : earlier.trials) {
      const bool again =
          std::any_of(outcome.trials.begin(), outcome.trials.end(),
                      [&](const MeshTrial& other) { return other.mesh == trial.mesh; });
      if (!again) outcome.trials.push_back(trial);
    }
    outcome.lower_bound = std::min(outcome.lower_bound, earlier.lower_bound);
    outcome.unlimited_lower_bound =
        std::min(outcome.unlimited_lower_bound, earlier.unlimited_lower_bound);
  }

  static bool is_any_pruned(const SearchFindings& findings) {
    return std::any_of(findings.trials.begin(), findings.trials.end(),
                       [](const MeshTrial& trial) { return trial.end == TrialEnd::kPruned; });
  }

  static bool proves_nothing_fits(const SearchFindings& findings) {
    return !findings.trials.empty() &&
           std::all_of(findings.trials.begin(), findings.trials.end(),
                       [](const MeshTrial& trial) { return trial.end == TrialEnd::kNothingFits; });
  }

  // Says nothing of a form that is refused.
  Result<Form> plan(std::unique_ptr<Inputs> inputs, const Place& at) {
    const Recompute recompute = levels_[at.level];
    if (common_.trace && !is_only_one()) tell_of_form(inputs->model.graph.passes, recompute);
    AUTOPAR_TRY(request, request_of(*inputs, pins_, options_, common_));
    const bool dumps = !options_.dump_file.empty() && tried_.empty() && request.mesh;
    if (dumps) {
      AUTOPAR_RETURN_IF_ERROR(
          dump_problem(options_.dump_file, request, *request.mesh, options_.model));
    }
    clock_.end("import");
    // The limit is for all that comes before the plan is written.
    request.solve.time_limit = time_left(request.solve, begin_);
    SearchFindings findings;
    const bool has_other = best_ || cutoff_ < kInfinity;
    request.solve.cutoff = worthwhile();
    request.known_bounds = known_bounds(at);
    request.solve.gap = std::max(request.solve.gap, gap_);
    if (has_other || !is_only_one()) request.findings = &findings;
    request.solve.least_peak = is_only_one();
    auto outcome = search_shown(request, common_);
    const bool is_late = time_left(request.solve, begin_) == 0;
    if (!outcome && !has_other && !is_only_one() && is_late) {  // there is no other to turn to
      request.findings = nullptr;
      request.solve.time_limit = 0;
      outcome = search_shown(request, common_);
    }
    request.findings = nullptr;
    request.solve.cutoff = kInfinity;
    request.known_bounds.clear();
    request.solve.least_peak = true;
    PlanTrial trial{inputs->model.graph.passes, name_of(recompute), 0, best_.has_value()};
    if (!outcome) {
      clock_.end("other searching");
      // A pin may be of what a repeated op reads in place of it.
      const bool is_unpinned = !asked_ && recompute != Recompute::kNone && pins_ &&
                               outcome.error().code == ErrorCode::kInput;
      if (outcome.error().code != ErrorCode::kInfeasible && !is_unpinned) {
        const Error error =
            pins_ ? with_pin_file(outcome.error(), options_.pin_file) : outcome.error();
        // Pins may be of what is there in other numbers of passes alone.
        const bool is_refused =
            pins_ && counts_.size() > 1 && outcome.error().code == ErrorCode::kInput;
        if (!is_refused) return error;
        left_out_.tell(counts_[at.count], error);
        refused_.insert(at.count);
        if (!why_refused_) why_refused_ = error;
        return Form{};
      }
      tried_.push_back(std::move(trial));
      const bool saves_more = !unplanned_ || unplanned_->at.within(at);
      if (!best_ && !is_unpinned && saves_more) {
        unplanned_.emplace(
            Unplanned{at, outcome.error(), Planned{std::move(inputs), std::move(request), {}}});
      }
      return Form{at,
                  true,
                  findings.unlimited_lower_bound,
                  is_any_pruned(findings),
                  proves_nothing_fits(findings),
                  std::max(findings.unlimited_lower_bound, bound_of(findings)),
                  bounds_of(findings.trials)};
    }
    clock_.end_search(*outcome);
    trial.cost = outcome->cost.time();
    tried_.push_back(std::move(trial));
    const Form form{.at = at,
                    .may_gain = updates_parameters(request) && limit_binds(request, *outcome),
                    .without_limit = outcome->unlimited_lower_bound,
                    .bound = outcome->lower_bound,
                    .meshes = bounds_of(outcome->trials)};
    if (!best_ || outcome->cost.time() < best_cost()) {
      best_.emplace(Planned{std::move(inputs), std::move(request), std::move(*outcome)});
      best_at_ = at;
    }
    return form;
  }

  bool is_only_one() const { return counts_.size() * levels_.size() == 1; }

  // Nothing was found. How much memory would do takes longer to find out than that nothing fits, so
  // it is asked of the form alone that saves most. That may find a plan after all.
  Status plan_what_saves_most() {
    auto& [at, error, form] = *unplanned_;
    const Seconds left = time_left(form.request->solve, begin_);
    if (!is_only_one() && cutoff_ == kInfinity && left > 0) {
      form.request->solve.time_limit = left;
      auto outcome = search_shown(*form.request, common_);
      if (outcome) {
        clock_.end_search(*outcome);
        tried_.push_back({form.inputs->model.graph.passes, name_of(levels_[at.level]),
                          outcome->cost.time(), false});
        form.outcome = std::move(*outcome);
        best_.emplace(std::move(form));
        return Ok{};
      }
      error = outcome.error();
      if (forms_.size() > 1) error.message.insert(advice_of(error.message), with_options_of(at));
    }
    return pins_ ? with_pin_file(error, options_.pin_file) : error;
  }

  std::string with_options_of(const Place& at) const {
    std::string options = ", with";
    if (counts_.size() > 1) options += " --micro-batches " + std::to_string(counts_[at.count]);
    if (levels_.size() > 1) options += " --recompute " + std::string(name_of(levels_[at.level]));
    return options + ", and more with others";
  }

  // Plans that take longer are of no use.
  Seconds worthwhile() const {
    return best_ ? std::min(cutoff_, best_cost() * (1 - kWorthwhile)) : cutoff_;
  }
  Seconds best_cost() const { return best_->outcome.cost.time(); }
  bool time_is_up() const { return time_left(best_->request->solve, begin_) == 0; }

  const std::optional<StrategyFile>& pins_;
  const PlanOptions& options_;
  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  const Seconds cutoff_;
  const double gap_;
  const OtherPlan& other_;
  std::optional<Recompute> asked_;
  std::vector<std::int64_t> counts_;  // of passes, ascending
  std::vector<Recompute> levels_;     // from what repeats least
  std::vector<Form> forms_;           // that were planned
  Whole whole_;                       // by number of passes, with nothing repeated
  std::optional<Planned> best_;
  Place best_at_;
  std::set<std::size_t> has_other_;  // numbers of passes that another plan was found for
  std::set<std::pair<std::size_t, std::size_t>> same_as_none_;  // places: no op would be repeated
  std::set<std::size_t> refused_;     // that the model cannot be had with, or pins not be kept in
  std::optional<Error> why_refused_;  // of the first whose pins are not kept
  LeftOutPasses left_out_;
  // The form that saves most of those of which nothing fits; its outcome is none.
  struct Unplanned {
    Place at;
    Error error;
    Planned form;
  };
  std::optional<Unplanned> unplanned_;
  std::vector<PlanTrial> tried_;
};

}  // namespace

Result<SearchRequest> request_of(Inputs& inputs, const std::optional<StrategyFile>& pins,
                                 const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(share_in_phases(inputs, options.cost_model));
  AUTOPAR_TRY(request, make_request(inputs, options, common));
  AUTOPAR_TRY(stored, stored_rules(*parse_zero(options.zero), inputs.model));
  request.stored_rules = std::move(stored);
  request.zero = level_of(*parse_zero(options.zero));
  AUTOPAR_TRY(fill, parse_fill(options.fill));
  request.unreached = fill;
  request.propagate_exact = options.propagate_exact;
  if (options.moving == "on") request.moving = SearchRequest::Moving::kAlso;
  if (pins) {
    AUTOPAR_RETURN_IF_ERROR(add_pins(*pins, inputs, request));
    AUTOPAR_RETURN_IF_ERROR(share_pinned_hubs(*pins, inputs, request));
    // A chunk of a pipeline may repeat less than others.
    if (options.phases_apart) drop_unmade(request.graph, request.pins);
    complete_pins(*pins, request);
  }
  AUTOPAR_RETURN_IF_ERROR(set_meshes(options, request));
  find_kernels(inputs, options);
  return request;
}

Result<Planned> best_of_forms(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                              const PlanOptions& options, const std::optional<StrategyFile>& pins,
                              const CommonOptions& common,
                              std::chrono::steady_clock::time_point begin, PhaseClock& clock,
                              const Enough& enough, const OtherPlan& other) {
  return Forms(pins, options, common, begin, clock, enough, other).best(std::move(inputs), given);
}

}  // namespace autopar
