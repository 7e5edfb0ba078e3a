#include "planning/pipelines/uniform_stages.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "autopar/kernels.hpp"
#include "autopar/report.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/template_units.hpp"
#include "search/uniform/roles.hpp"

namespace autopar {

namespace {

// Where tensor parallelism of one degree takes so many times the best template, more of it is not
// tried: it only sends more.
constexpr double kFar = 1.5;
// Templates that are planned in whole, from the best by units on, until one fits: where none does
// by units, which are planned without a limit and so keep more, the smallest first.
constexpr std::size_t kPlanned = 3;
// What is listed.
constexpr std::size_t kListed = 10;

struct StoredBytes {
  double read = 0, states = 0, accumulators = 0;  // of the whole step
};

StoredBytes stored_bytes_of(const Inputs& inputs, const PlanOptions& options) {
  SearchRequest request{inputs.model.graph, inputs.rules, inputs.cluster};
  request.updates = options.updates;
  StoredBytes bytes;
  for (const TemplateStored& stored : template_roles(request).stored) {
    const Value& value = inputs.model.graph.value(stored.value);
    const double size =
        static_cast<double>(element_count(value.shape)) * static_cast<double>(size_of(value.dtype));
    using Kind = TemplateStored::Kind;
    (stored.kind == Kind::kRead    ? bytes.read
     : stored.kind == Kind::kState ? bytes.states
                                   : bytes.accumulators) += size;
  }
  return bytes;
}

// A template by its units.
struct Candidate {
  const StagedStep* step = nullptr;
  PipelineForm form;
  StageTemplate wanted;
  Seconds seconds = 0;
  Bytes peak = 0;
  bool fits = false;
};

std::string text_of(const Candidate& candidate) {
  std::string text = to_text(candidate.wanted);
  if (candidate.wanted.recompute != Recompute::kNone) {
    text += " recompute=" + std::string(name_of(candidate.wanted.recompute));
  }
  return text;
}

class Templates {
 public:
  Templates(const CommonOptions& common, std::chrono::steady_clock::time_point begin,
            PhaseClock& clock)
      : common_(common), begin_(begin), clock_(clock) {}

  Result<StagedPlan> run(const std::vector<StagedStep>& steps) {
    for (const StagedStep& step : steps) AUTOPAR_RETURN_IF_ERROR(try_step(step));
    std::stable_sort(found_.begin(), found_.end(), [](const Candidate& a, const Candidate& b) {
      if (a.fits != b.fits) return a.fits;
      return a.fits ? a.seconds < b.seconds : a.peak < b.peak;
    });
    return planned();
  }

 private:
  Status try_step(const StagedStep& asked) {
    if (!asked.inputs->model.graph.has_passes()) {
      for (const PipelineForm& form : asked.forms) {
        leave_out(form,
                  "not priced: a pass that the update is part of has no units; --stages 1 tries "
                  "its templates");
      }
      return Ok{};
    }
    AUTOPAR_RETURN_IF_ERROR(prepare(asked));
    std::map<std::int64_t, std::vector<PipelineForm>> by_stages;
    for (const PipelineForm& form : asked.forms) {
      by_stages[form.stages].push_back(form);
      if (form.stages == 1) by_stages[1].back().schedule = "1f1b";
    }
    for (const auto& [stages, of_stages] : by_stages) {
      AUTOPAR_RETURN_IF_ERROR(try_stages(stages, of_stages));
    }
    return Ok{};
  }

  Status prepare(const StagedStep& asked) {
    asked_ = &asked;
    step_ = *asked.inputs;
    step_.model.graph.kernels =
        group_kernels(step_.model.graph, step_.cluster.profile, asked_->options.updates);
    AUTOPAR_TRY(seconds, seconds_of_ops(step_, step_.model.graph, asked_->options.updates));
    AUTOPAR_TRY(units, TemplateUnits::of(step_, seconds, asked_->options));
    units_.emplace(std::move(units));
    stored_ = stored_bytes_of(step_, asked_->options);
    bare_.emplace(step_);
    bare_->model.graph = Graph();
    bare_->rules = GraphRules();
    bare_->training_bytes.clear();
    Bytes limit = asked_->inputs->cluster.device.memory_bytes;
    if (!common_.memory.empty()) {
      AUTOPAR_TRY(asked, parse_bytes(common_.memory));
      limit = asked;
    }
    room_ = asked_->inputs->cluster.profile.room_in(limit);
    return Ok{};
  }

  Status try_stages(std::int64_t stages, const std::vector<PipelineForm>& forms) {
    AUTOPAR_TRY(stage, stage_of(asked_->inputs->cluster, stages));
    std::vector<PipelineForm> open;
    for (const PipelineForm& form : forms) {
      const auto bound = compute_of(form, stage);
      if (!bound) {
        leave_out(form, bound.error().message);
      } else if (*bound >= best_) {
        leave_out(form,
                  "not priced: its compute alone, evenly split, takes " + format_seconds(*bound));
      } else {
        open.push_back(form);
      }
    }
    if (open.empty()) return Ok{};
    const std::int64_t devices = stage.device_count();
    for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
      if (devices % tensor != 0 || samples() % (devices / tensor) != 0) continue;
      AUTOPAR_TRY(least, try_degrees(open, stage, {devices / tensor, tensor, 0}));
      if (least > kFar * best_) {
        leave_out(open.front(), "more than tp=" + std::to_string(tensor) +
                                    " is not priced: that "
                                    "takes over 1.5 times the best");
        break;
      }
    }
    return Ok{};
  }

  // All levels of recomputation and ZeRO of one degree of tensor parallelism, the quickest first.
  // Returns the least time by units, whether it fits or not.
  Result<Seconds> try_degrees(const std::vector<PipelineForm>& forms, const Cluster& stage,
                              StageTemplate wanted) {
    Seconds least = kInfinity;
    for (const Recompute recompute : levels()) {
      wanted.recompute = recompute;
      bool fits = false;
      for (const int zero : wanted.data > 1 ? std::vector<int>{1, 3} : std::vector<int>{0}) {
        wanted.zero = zero;
        const double stored = least_stored(wanted, forms.front().stages);
        if (stored > static_cast<double>(room_)) {
          leave_out(forms.front(),
                    to_text(wanted) + ": weights and states alone take " + format_bytes(stored));
          continue;
        }
        if (fits) continue;
        const auto prices = units_->priced(*bare_, stage, wanted, asked_->options, common_);
        if (!prices) {
          if (prices.error().code != ErrorCode::kInfeasible) return prices.error();
          leave_out(forms.front(), to_text(wanted) + ": " + prices.error().message);
          continue;
        }
        for (const PipelineForm& form : forms) {
          AUTOPAR_TRY(candidate, composed(form, wanted, *prices));
          least = std::min(least, candidate.seconds);
          fits = fits || candidate.fits;
          if (candidate.fits) best_ = std::min(best_, candidate.seconds);
          found_.push_back(std::move(candidate));
        }
      }
      if (fits) break;
    }
    return least;
  }

  std::vector<Recompute> levels() const {
    if (const auto asked = parse_recompute(asked_->options.recompute)) return {*asked};
    return {Recompute::kNone, Recompute::kProducts, Recompute::kFull};
  }

  // Of a micro-batch.
  std::int64_t samples() const { return asked_->inputs->batch / step_.model.graph.passes; }

  // What is stored, per device of the fullest stage, if all of it divides.
  double least_stored(const StageTemplate& wanted, std::int64_t stages) const {
    const auto data = static_cast<double>(wanted.data);
    const double read = stored_.read / (wanted.zero == 3 ? data : 1);
    const double accumulators = stored_.accumulators / (wanted.zero == 3 ? data : 1);
    const double states = stored_.states / (wanted.zero >= 1 ? data : 1);
    return (read + accumulators + states) / static_cast<double>(wanted.tensor * stages);
  }

  // Units of every chunk: the longest chunk is as short as it can be. Dynamic programming,
  // O(chunks x units^2).
  std::vector<std::size_t> ends_of(std::size_t chunks, const std::vector<Seconds>& seconds) const {
    const std::size_t units = seconds.size();
    std::vector<Seconds> sums(units + 1, 0);
    for (std::size_t u = 0; u < units; ++u) sums[u + 1] = sums[u] + seconds[u];
    std::vector<std::vector<Seconds>> longest(chunks + 1,
                                              std::vector<Seconds>(units + 1, kInfinity));
    std::vector<std::vector<std::size_t>> from(chunks + 1, std::vector<std::size_t>(units + 1));
    longest[0][0] = 0;
    for (std::size_t c = 1; c <= chunks; ++c) {
      for (std::size_t to = c; to + (chunks - c) <= units; ++to) {
        for (std::size_t begin = c - 1; begin < to; ++begin) {
          const Seconds time = std::max(longest[c - 1][begin], sums[to] - sums[begin]);
          if (time < longest[c][to]) std::tie(longest[c][to], from[c][to]) = std::tie(time, begin);
        }
      }
    }
    std::vector<std::size_t> ends(chunks + 1, units);
    for (std::size_t c = chunks; c > 0; --c) ends[c - 1] = from[c][ends[c]];
    return ends;
  }

  static UnitPlace place_of(std::size_t unit, std::size_t units) {
    return unit == 0           ? UnitPlace::kFirst
           : unit + 1 == units ? UnitPlace::kLast
                               : UnitPlace::kBetween;
  }

  Result<Candidate> composed(const PipelineForm& form, const StageTemplate& wanted,
                             const UnitPrices& prices) const {
    AUTOPAR_TRY(schedule, schedule_of(form, step_.model.graph.passes));
    const std::size_t units = units_->count(), chunks = schedule.stage_of_chunk.size();
    const auto price_of = [&](std::size_t unit) -> const UnitPrice& {
      return prices[static_cast<std::size_t>(place_of(unit, units))];
    };
    std::vector<Seconds> seconds;
    for (std::size_t u = 0; u < units; ++u) {
      seconds.push_back(price_of(u).cost.steady.forward + price_of(u).cost.steady.backward);
    }
    const std::vector<std::size_t> ends = ends_of(chunks, seconds);
    const InFlight flying = in_flight(schedule);
    std::vector<ChunkCost> costs(chunks);
    std::vector<Bytes> of_stage(schedule.lines.size()), beside(schedule.lines.size());
    for (std::size_t c = 0; c < chunks; ++c) {
      ChunkCost& cost = costs[c];
      const auto stage = static_cast<std::size_t>(schedule.stage_of_chunk[c]);
      for (std::size_t u = ends[c]; u < ends[c + 1]; ++u) {
        const UnitPrice& price = price_of(u);
        cost.steady.forward += price.cost.steady.forward;
        cost.steady.backward += price.cost.steady.backward;
        cost.update += price.cost.update;
        of_stage[stage] += price.stored + flying.of_chunk[c] * price.kept;
        beside[stage] = std::max(beside[stage], price.beside);
      }
      // Products are half for the weights' gradients, half for the inputs'.
      cost.steady.input_gradients = cost.steady.weight_gradients = cost.steady.backward / 2;
      cost.send_forward = prices[0].cost.send_forward;
      cost.send_backward = prices[0].cost.send_backward;
    }
    add_updates(schedule, false);
    AUTOPAR_TRY(times, simulate_schedule(schedule, costs));
    Candidate candidate{asked_, form, wanted, times.makespan};
    for (std::size_t s = 0; s < of_stage.size(); ++s) {
      candidate.peak = std::max(candidate.peak, of_stage[s] + beside[s]);
    }
    candidate.fits = candidate.peak <= room_;
    return candidate;
  }

  // Compute alone, evenly split over the devices of each stage.
  Result<Seconds> compute_of(const PipelineForm& form, const Cluster& stage) const {
    const std::int64_t chunks = form.stages * form.chunks_per_stage;
    if (chunks > static_cast<std::int64_t>(units_->count())) {
      return input_error(std::to_string(chunks) + " chunks, and only " +
                         std::to_string(units_->count()) + " units between places that are alike");
    }
    const Seconds all =
        std::accumulate(units_->compute().begin(), units_->compute().end(), Seconds{0});
    const double devices = static_cast<double>(stage.device_count());
    const auto passes = static_cast<double>(step_.model.graph.passes);
    return all * passes / devices / static_cast<double>(form.stages);
  }

  void leave_out(const PipelineForm& form, const std::string& why) {
    left_out_.push_back({form, 0, 0, why});
  }

  PlanOptions options_of(const PlanOptions& from, const Candidate& candidate) const {
    PlanOptions options = from;
    options.searcher = "uniform:" + to_text(candidate.wanted);
    options.recompute = name_of(candidate.wanted.recompute);
    options.stages = std::to_string(candidate.form.stages);
    return options;
  }

  Result<StagedPlan> planned() {
    if (found_.empty()) return infeasible_error(why_none());
    std::optional<Error> error;
    for (std::size_t i = 0; i < std::min(kPlanned, found_.size()); ++i) {
      const Candidate& candidate = found_[i];
      StagedStep step{candidate.step->inputs,
                      options_of(candidate.step->given, candidate),
                      options_of(candidate.step->options, candidate),
                      {candidate.form}};
      if (candidate.form.stages == 1) step.forms.front().schedule.clear();
      auto plan = plan_staged({std::move(step)}, none_, common_, begin_, clock_);
      if (plan) {
        if (plan->pipeline) {
          plan->pipeline->tried = listed();
          plan->pipeline->lower_bound = 0;
        }
        return std::move(*plan);
      }
      error = plan.error();
      if (error->code != ErrorCode::kInfeasible) return *error;
    }
    return infeasible_error(why_none() + "; " + error->message);
  }

  std::vector<PipelineTrial> listed() const {
    std::vector<PipelineTrial> all;
    for (const Candidate& candidate : found_) {
      if (all.size() == kListed || !candidate.fits) break;
      all.push_back({candidate.form, candidate.seconds, candidate.peak, text_of(candidate)});
    }
    for (const Candidate& candidate : found_) {
      if (candidate.fits) continue;
      all.push_back({candidate.form, 0, 0,
                     text_of(candidate) + ": takes by its units " +
                         format_bytes(static_cast<double>(candidate.peak))});
    }
    all.insert(all.end(), left_out_.begin(), left_out_.end());
    return all;
  }

  std::string why_none() const {
    const auto least =
        std::min_element(found_.begin(), found_.end(),
                         [](const Candidate& a, const Candidate& b) { return a.peak < b.peak; });
    std::string text =
        "no template fits into " + format_bytes(static_cast<double>(room_)) + " per device";
    if (least != found_.end()) {
      return text + "; the smallest, " + to_text(least->form) + ", " + text_of(*least) +
             ", takes " + format_bytes(static_cast<double>(least->peak));
    }
    for (const PipelineTrial& trial : left_out_) {
      text += "; " + to_text(trial.form) + ": " + trial.why;
    }
    return text;
  }

  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  const std::optional<StrategyFile> none_;  // pins
  const StagedStep* asked_ = nullptr;       // at hand
  Inputs step_;                             // with kernels
  std::optional<Inputs> bare_;              // what is read of the step but for its graph and rules
  std::optional<TemplateUnits> units_;
  StoredBytes stored_;
  Bytes room_ = 0;
  Seconds best_ = kInfinity;  // of what fits, by units
  std::vector<Candidate> found_;
  std::vector<PipelineTrial> left_out_;
};

}  // namespace

Result<StagedPlan> plan_uniform_stages(const std::vector<StagedStep>& steps,
                                       const CommonOptions& common,
                                       std::chrono::steady_clock::time_point begin,
                                       PhaseClock& clock) {
  return Templates(common, begin, clock).run(steps);
}

}  // namespace autopar
