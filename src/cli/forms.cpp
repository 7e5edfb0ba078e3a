#include "cli/forms.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>

#include "autopar/iopddl.hpp"
#include "cli/hub_ops.hpp"
#include "cli/trace.hpp"
#include "cli/zero.hpp"

namespace autopar::cli {

namespace {

constexpr std::array kLevels = {Recompute::kCheap, Recompute::kProducts, Recompute::kFull};

// One line that is drawn over, on a terminal only and not before the search has taken a while.
class ProgressLine {
 public:
  ProgressLine(bool quiet, std::string cost_model)
      : shown_(!quiet && isatty(STDERR_FILENO) != 0), cost_model_(std::move(cost_model)) {}
  ~ProgressLine() {
    if (drawn_) std::fprintf(stderr, "\r\033[K");
  }
  void draw(const SolveProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(300)) return;
    last_ = now;
    drawn_ = true;
    std::fprintf(stderr, "\r\033[Ksearching: best %s, lower bound %s",
                 format_price(progress.best_cost, cost_model_).c_str(),
                 format_price(progress.lower_bound, cost_model_).c_str());
    std::fflush(stderr);
  }

 private:
  bool shown_;
  std::string cost_model_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// Bare problems have whole numbers: of what, for the prices of a cost model.
struct SmallUnit {
  std::string name;
  double factor = 1;
};
SmallUnit small_unit(const std::string& cost_model) {
  for (const CostModelRow& row : cost_models()) {
    if (cost_model != row.name || row.unit == std::string("seconds")) continue;
    return {"thousandths of " + std::string(row.unit), 1e3};
  }
  return {"picoseconds", 1e12};
}

// The search problem of one mesh, as a bare problem.
Status dump_problem(const std::string& path, const SearchRequest& request, const Mesh& mesh,
                    const std::string& model) {
  AUTOPAR_TRY(built, build_problem(request, mesh));
  const std::string name = model + " on mesh " + to_text(mesh);
  const SmallUnit unit = small_unit(request.cost_model);
  AUTOPAR_RETURN_IF_ERROR(
      write_file_atomically(path, problem_to_iopddl(built.problem, name, unit.factor)));
  spdlog::info("{}: the search problem of mesh {}, {} nodes, costs in {}", path, to_text(mesh),
               built.problem.nodes.size(), unit.name);
  return Ok{};
}

// With -v: what became of each mesh.
void tell_of_trials(const SearchOutcome& outcome, const std::string& cost_model) {
  for (const MeshTrial& trial : outcome.trials) {
    const bool found = trial.cost < kInfinity;
    spdlog::debug(
        "mesh {}: {}{}, bound {}; {} nodes, {} edges, {} candidates; built in {}, solved "
        "in {}",
        to_text(trial.mesh), name_of(trial.end),
        found ? " " + format_price(trial.cost, cost_model) : "",
        format_price(trial.lower_bound, cost_model), trial.nodes, trial.edges, trial.candidates,
        format_seconds(trial.build_seconds), format_seconds(trial.solve_seconds));
  }
}

// With --trace: what each stage did on each mesh, in milliseconds where prices are seconds.
void tell_of_stages(const SearchOutcome& outcome) {
  for (const MeshTrial& trial : outcome.trials) {
    if (trial.stages.empty()) continue;
    std::cerr << "mesh " << to_text(trial.mesh) << ": " << name_of(trial.end)
              << (trial.end == TrialEnd::kPlan ? std::string("; ") + name_of(trial.solve_end) : "")
              << "\n"
              << trace_text(trial.stages, 1e3);
  }
}

Result<SearchOutcome> search_shown(SearchRequest& request, const CommonOptions& common) {
  ProgressLine line(common.quiet, request.cost_model);
  request.solve.progress = [&line](const SolveProgress& p) { line.draw(p); };
  auto outcome = search(request);
  request.solve.progress = nullptr;
  if (outcome) tell_of_trials(*outcome, request.cost_model);
  if (outcome && common.trace) tell_of_stages(*outcome);
  return outcome;
}

// None after an interrupt.
Seconds time_left(const SolveOptions& options, std::chrono::steady_clock::time_point start) {
  if (options.stop != nullptr && options.stop->load()) return 0;
  const std::chrono::duration<double> used = std::chrono::steady_clock::now() - start;
  return std::max(0.0, options.time_limit - used.count());
}

// Costs and bounds that differ by less than this part count as equal. Measured on 8B to 405B steps:
// where memory is ample, searches end within 0.0013 % of their bound; it is no use to search for
// minutes for less than this.
constexpr double kNoGain = 1e-3;
// What part of the memory a plan takes that the limit may have shaped. Measured on the same: those
// that it has shaped take at least 0.999.
constexpr double kNearlyFull = 0.9;

// Whether keeping less could make a plan cheaper.
bool limit_binds(const SearchRequest& request, const SearchOutcome& outcome) {
  const SearchOutcome::Minimised& found = outcome.minimised;
  const Seconds without = found.unlimited_lower_bound * (1 + kNoGain);
  if (!request.limit_memory || found.best <= without) return false;
  const bool is_proven = found.unlimited_lower_bound > 0 && found.lower_bound > without;
  return is_proven || static_cast<double>(outcome.cost.memory.total) >
                          kNearlyFull * static_cast<double>(plan_limit(request));
}

// Whether it updates parameters.
bool is_training_step(const SearchRequest& request) {
  const std::vector<ValueId> updated = updated_inputs(request.graph, request.updates);
  return std::any_of(updated.begin(), updated.end(), [&](ValueId input) {
    return input.valid() && request.graph.value(input).kind == ValueKind::kParameter;
  });
}

// A model may be planned in several forms: with ops repeated or not, and a training step in several
// numbers of passes. The best plan of all is taken. Once there is one, the search of another form
// ends where it is proven to be no cheaper.
class Forms {
 public:
  Forms(const std::optional<StrategyFile>& pins, const PlanOptions& options,
        const CommonOptions& common, std::chrono::steady_clock::time_point begin, PhaseClock& clock,
        const Enough& enough)
      : pins_(pins),
        options_(options),
        common_(common),
        begin_(begin),
        clock_(clock),
        cutoff_(enough.cutoff),
        gap_(enough.gap) {}

  // `given`: the options by which to read the model again, for other numbers of passes.
  Result<Planned> best(std::unique_ptr<Inputs> inputs, const PlanOptions& given) {
    AUTOPAR_TRY(asked, parse_recompute_option(options_.recompute, pins_ ? &*pins_ : nullptr));
    asked_ = asked;
    if (options_.train && options_.training.micro_batches == "auto") {
      AUTOPAR_RETURN_IF_ERROR(plan_counts(std::move(inputs), given));
    } else {
      AUTOPAR_RETURN_IF_ERROR(plan_recomputed(std::move(inputs)));
    }
    AUTOPAR_RETURN_IF_ERROR(plan_moving());
    if (!best_) return pins_ ? with_pin_file(*error_, options_.pin_file) : *error_;
    if (!options_.dump_file.empty() && !best_->request->mesh) {
      AUTOPAR_RETURN_IF_ERROR(dump_problem(options_.dump_file, *best_->request,
                                           best_->outcome.strategy.mesh, options_.model));
    }
    if (tried_.size() > 1) best_->inputs->tried = std::move(tried_);
    return std::move(*best_);
  }

 private:
  // What is known of a form.
  struct Form {
    bool may_gain = true;       // by keeping less
    Seconds without_limit = 0;  // a bound on what it costs with all memory
    bool fits = true;           // false: nothing was found
    bool nothing_fits = false;  // proven
  };

  // From one pass on, each number that divides the batch. More of them only save memory, by this
  // account: what so many cost with all memory and nothing repeated, more cost at least. Then with
  // ops repeated, from the largest of these numbers down: plans that fit are there by then, of
  // which one ends most searches of what repeats more.
  Status plan_counts(std::unique_ptr<Inputs> inputs, const PlanOptions& given) {
    AUTOPAR_TRY(counts, micro_batches_of("auto", inputs->batch));
    std::vector<std::int64_t> binding;  // the limit binds with nothing repeated
    for (std::size_t c = 0; c < counts.size(); ++c) {
      if (c > 0) {
        if (best_ && time_is_up()) break;
        AUTOPAR_TRY(loaded, of_count(given, counts[c]));
        inputs = std::move(loaded);
      }
      if (asked_) {
        AUTOPAR_RETURN_IF_ERROR(plan_repeated(std::move(inputs)));
      } else {
        error_.reset();
        AUTOPAR_TRY(form, plan(std::move(inputs), Recompute::kNone));
        bound_of_count_ = form.without_limit;
        if (form.may_gain) binding.push_back(counts[c]);
        if (best_ && !form.may_gain) break;
      }
      if (best_ && bound_of_count_ >= best_cost() * (1 - kNoGain)) break;
    }
    return plan_more(binding, given);
  }

  // What keeps least is that of most passes: a level that does not fit there fits nowhere before.
  Status plan_more(const std::vector<std::int64_t>& binding, const PlanOptions& given) {
    std::size_t first = 0;
    std::optional<Error> of_most;  // what is told where nothing fits
    for (auto count = binding.rbegin(); count != binding.rend(); ++count) {
      if (first == kLevels.size() || (best_ && time_is_up())) break;
      AUTOPAR_TRY(inputs, of_count(given, *count));
      AUTOPAR_RETURN_IF_ERROR(plan_levels(*inputs, {}, first));
      if (!of_most) of_most = error_;
    }
    if (of_most) error_ = std::move(of_most);
    return Ok{};
  }

  Result<std::unique_ptr<Inputs>> of_count(const PlanOptions& given, std::int64_t count) const {
    PlanOptions options = given;
    options.training.micro_batches = std::to_string(count);
    return load_inputs(options, common_);
  }

  Status plan_repeated(std::unique_ptr<Inputs> inputs) {
    error_.reset();
    AUTOPAR_TRY(repeated, repeat_ops(*inputs, *asked_));
    if (!repeated && *asked_ != Recompute::kNone) {
      spdlog::warn("warning: --recompute: nothing to gain, no op is repeated");
    }
    AUTOPAR_TRY(form, plan(std::move(inputs), *asked_));
    bound_of_count_ = form.without_limit;
    return Ok{};
  }

  // With fewer activations kept a plan may fit, or do without what another pays to fit.
  Status plan_recomputed(std::unique_ptr<Inputs> inputs) {
    if (asked_) return plan_repeated(std::move(inputs));
    error_.reset();
    const Inputs whole = *inputs;
    AUTOPAR_TRY(form, plan(std::move(inputs), Recompute::kNone));
    std::size_t first = 0;
    return plan_levels(whole, form, first);
  }

  // Repeating more costs more where nothing binds, so the last to try is what costs more without a
  // limit than the best plan with it. `first`: the level to begin with, and then that of which
  // something fits.
  Status plan_levels(const Inputs& whole, Form last, std::size_t& first) {
    bool fits = false;
    for (std::size_t level = first; level < kLevels.size(); ++level) {
      const bool is_vain = last.without_limit >= enough() * (1 - kNoGain);
      if (!last.may_gain || is_vain || (best_ && time_is_up())) break;
      auto fresh = std::make_unique<Inputs>(whole);
      AUTOPAR_TRY(repeated, repeat_ops(*fresh, kLevels[level]));
      if (!repeated) continue;
      AUTOPAR_TRY(form, plan(std::move(fresh), kLevels[level]));
      last = form;
      fits = fits || form.fits;
      if (!fits && form.nothing_fits) first = level + 1;
    }
    return Ok{};
  }

  // Parts that move save memory and nothing else, so they are looked at last, in the best form, or
  // the last of those of which nothing fits. Their bound and that of the others are one.
  Status plan_moving() {
    if (options_.moving != "auto" || !proves_bounds(options_.searcher)) return Ok{};
    // A training step that fits has saved its memory by repeating ops.
    if (best_ &&
        (is_training_step(*best_->request) || !limit_binds(*best_->request, best_->outcome))) {
      return Ok{};
    }
    std::optional<Planned>& form = best_ ? best_ : unplanned_;
    if (!form || time_left(form->request->solve, begin_) == 0 || !has_moving(*form->request)) {
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
    tried_.push_back({form->inputs->model.graph.passes, name_of(form->inputs->recompute),
                      found ? outcome->cost.time() : 0, best_.has_value(), true});
    clock_.end("other searching");
    if (!outcome && outcome.error().code != ErrorCode::kInfeasible) return outcome.error();
    if (best_) take_bound(*best_, outcome ? outcome->lower_bound : bound_of(findings));
    if (!found) return Ok{};
    if (best_) take_trials(best_->outcome, *outcome);
    request.solve.cutoff = kInfinity;
    request.findings = nullptr;
    best_.emplace(Planned{std::move(form->inputs), std::move(request), std::move(*outcome)});
    return Ok{};
  }

  static bool proves_bounds(const std::string& name) {
    return name == "auto" ||
           std::any_of(searchers().begin(), searchers().end(), [&](const Searcher& s) {
             return s.proves_bound && (name == s.name || name == s.long_name);
           });
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

  static bool proves_nothing_fits(const SearchFindings& findings) {
    return !findings.trials.empty() &&
           std::all_of(findings.trials.begin(), findings.trials.end(),
                       [](const MeshTrial& trial) { return trial.end == TrialEnd::kNothingFits; });
  }

  Result<Form> plan(std::unique_ptr<Inputs> inputs, Recompute recompute) {
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
    request.solve.cutoff = enough();
    request.solve.gap = std::max(request.solve.gap, gap_);
    if (has_other) request.findings = &findings;
    auto outcome = search_shown(request, common_);
    request.findings = nullptr;
    request.solve.cutoff = kInfinity;
    PlanTrial trial{inputs->model.graph.passes, name_of(recompute), 0, best_.has_value()};
    if (!outcome) {
      clock_.end("other searching");
      // A pin may be of what a repeated op reads in place of it.
      const bool is_unpinned = !asked_ && recompute != Recompute::kNone && pins_ &&
                               outcome.error().code == ErrorCode::kInput;
      if (outcome.error().code != ErrorCode::kInfeasible && !is_unpinned) {
        return pins_ ? with_pin_file(outcome.error(), options_.pin_file) : outcome.error();
      }
      tried_.push_back(std::move(trial));
      note(recompute, outcome.error());
      if (!best_ && outcome.error().code == ErrorCode::kInfeasible) {
        unplanned_.emplace(Planned{std::move(inputs), std::move(request), {}});
      }
      return Form{true, findings.unlimited_lower_bound, false, proves_nothing_fits(findings)};
    }
    clock_.end_search(*outcome);
    trial.cost = outcome->cost.time();
    tried_.push_back(std::move(trial));
    const Form form{is_training_step(request) && limit_binds(request, *outcome),
                    outcome->unlimited_lower_bound};
    if (!best_ || outcome->cost.time() < best_cost()) {
      best_.emplace(Planned{std::move(inputs), std::move(request), std::move(*outcome)});
    }
    return form;
  }

  // The first error is the one to tell, with what was tried.
  void note(Recompute recompute, const Error& error) {
    if (!error_) {
      error_ = error;
    } else {
      error_->message +=
          ". With --recompute " + std::string(name_of(recompute)) + ": " + error.message;
    }
  }

  Seconds enough() const { return best_ ? std::min(cutoff_, best_cost()) : cutoff_; }
  Seconds best_cost() const { return best_->outcome.cost.time(); }
  bool time_is_up() const { return time_left(best_->request->solve, begin_) == 0; }

  const std::optional<StrategyFile>& pins_;
  const PlanOptions& options_;
  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  const Seconds cutoff_;
  const double gap_;
  std::optional<Recompute> asked_;
  std::optional<Planned> best_;
  std::optional<Planned> unplanned_;  // the last form of which nothing fits, without an outcome
  std::optional<Error> error_;        // of the most passes
  std::vector<PlanTrial> tried_;
  Seconds bound_of_count_ = 0;
};

}  // namespace

Result<SearchRequest> request_of(Inputs& inputs, const std::optional<StrategyFile>& pins,
                                 const PlanOptions& options, const CommonOptions& common) {
  AUTOPAR_RETURN_IF_ERROR(share_in_phases(inputs, options.cost_model));
  AUTOPAR_TRY(request, make_request(inputs, options, common));
  AUTOPAR_TRY(stored, stored_rules(*parse_zero(options.zero), inputs.model));
  request.stored_rules = std::move(stored);
  AUTOPAR_TRY(fill, parse_fill(options.fill));
  request.unreached = fill;
  request.propagate_exact = options.propagate_exact;
  if (options.moving == "on") request.moving = SearchRequest::Moving::kAlso;
  if (pins) {
    AUTOPAR_RETURN_IF_ERROR(add_pins(*pins, inputs, request));
    AUTOPAR_RETURN_IF_ERROR(share_pinned_hubs(*pins, inputs, request));
  }
  find_kernels(inputs, options);
  return request;
}

Result<Planned> best_of_forms(std::unique_ptr<Inputs> inputs, const PlanOptions& given,
                              const PlanOptions& options, const std::optional<StrategyFile>& pins,
                              const CommonOptions& common,
                              std::chrono::steady_clock::time_point begin, PhaseClock& clock,
                              const Enough& enough) {
  return Forms(pins, options, common, begin, clock, enough).best(std::move(inputs), given);
}

}  // namespace autopar::cli
