#include "planning/pipelines/uniform_stages.hpp"

#include <algorithm>

#include "autopar/kernels.hpp"
#include "autopar/report.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/pipeline_forms.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/room.hpp"
#include "planning/pipelines/template_list.hpp"
#include "planning/pipelines/template_units.hpp"
#include "planning/zero.hpp"
#include "search/uniform/roles.hpp"

namespace autopar {

namespace {

using namespace tuning::templates;
using Rank = TemplateRank;
constexpr Rank kNone = {true, kInfinity};

// A form, and what all of its templates at a level of recomputation take at least.
struct OpenForm {
  PipelineForm form;
  std::vector<std::int64_t> flying;  // per chunk
  std::vector<std::int64_t> stage_of_chunk;
  std::map<Recompute, std::pair<Seconds, std::vector<std::size_t>>> floors;  // and where it is cut
};

class Templates {
 public:
  Templates(const CommonOptions& common, std::chrono::steady_clock::time_point begin,
            PhaseClock& clock)
      : common_(common), begin_(begin), clock_(clock) {}

  Result<StagedPlan> run(const std::vector<StagedStep>& steps) {
    const std::string& searcher = steps.front().options.searcher;
    zero_ = level_of(*parse_zero(steps.front().options.zero));
    if (const std::size_t colon = searcher.find(':'); colon != std::string::npos) {
      AUTOPAR_TRY(only, asked_template(searcher.substr(colon + 1), zero_));
      only_ = only;
    }
    is_one_ = steps.size() == 1 && steps.front().forms.size() == 1;
    for (const StagedStep& step : steps) AUTOPAR_RETURN_IF_ERROR(try_step(step));
    std::stable_sort(
        found_.begin(), found_.end(),
        [](const TemplateCandidate& a, const TemplateCandidate& b) { return a.rank() < b.rank(); });
    return planned();
  }

 private:
  // Degrees of parallelism, and the time of their first template, fit or not; 0: not known.
  struct Tried {
    Template wanted;
    Rank rank = kNone;
    Seconds seconds = 0;
  };
  struct OpenStage {
    Cluster cluster;
    std::int64_t stages = 1;
    std::vector<OpenForm> forms;
    std::vector<OpenForm*> open = {};  // of these
    std::vector<Tried> tried = {};     // degrees
  };

  Status try_step(const StagedStep& asked) {
    if (!asked.inputs->model.graph.has_passes()) {
      for (const PipelineForm& form : asked.forms) {
        list_.leave_out(
            form,
            "not priced: a pass that the update is part of has no units; --stages 1 tries "
            "its templates");
      }
      return Ok{};
    }
    AUTOPAR_RETURN_IF_ERROR(prepare(asked));
    std::map<std::int64_t, OpenStage> by_stages;
    for (const PipelineForm& form : asked.forms) {
      const auto [at, is_new] = by_stages.try_emplace(form.stages);
      OpenStage& stage = at->second;
      if (is_new) {
        AUTOPAR_TRY(cluster, stage_of(asked.inputs->cluster, form.stages));
        stage.cluster = std::move(cluster);
        stage.stages = form.stages;
      }
      AUTOPAR_RETURN_IF_ERROR(open(form, stage));
    }
    std::vector<std::pair<Seconds, OpenStage*>> order;
    for (auto& [stages, stage] : by_stages) {
      Seconds least = kInfinity;
      for (OpenForm& form : stage.forms) {
        AUTOPAR_TRY(floor, floor_of(form, levels().front(), stage));
        least = std::min(least, floor);
      }
      order.emplace_back(least, &stage);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [least, stage] : order) AUTOPAR_RETURN_IF_ERROR(try_tensor(*stage));
    for (const auto& [least, stage] : order) AUTOPAR_RETURN_IF_ERROR(try_context(*stage));
    for (const auto& [least, stage] : order) AUTOPAR_RETURN_IF_ERROR(try_experts(*stage));
    return Ok{};
  }

  Status prepare(const StagedStep& asked) {
    OpenStep& step = *steps_.emplace_back(std::make_unique<OpenStep>());
    step.asked = &asked;
    step.inputs = *asked.inputs;
    Graph& graph = step.inputs.model.graph;
    graph.kernels = group_kernels(graph, step.inputs.cluster.profile, asked.options.updates);
    AUTOPAR_TRY(units, TemplateUnits::of(step.inputs, asked.options, common_));
    step.units = std::move(units);
    step_ = &step;
    AUTOPAR_TRY(room, room_of(asked.inputs->cluster, common_));
    room_ = room;
    return Ok{};
  }

  const Graph& graph() const { return step_->inputs.model.graph; }
  std::int64_t passes() const { return graph().passes; }
  // Of a micro-batch.
  std::int64_t samples() const { return step_->asked->inputs->batch / passes(); }
  const std::vector<std::size_t>& kind_of() const { return step_->units->units().kind_of; }

  Status open(PipelineForm form, OpenStage& stage) {
    const std::int64_t chunks = form.stages * form.chunks_per_stage;
    if (chunks > static_cast<std::int64_t>(kind_of().size())) {
      list_.leave_out(form, std::to_string(chunks) + " chunks, and only " +
                                std::to_string(kind_of().size()) +
                                " units between places that are "
                                "alike");
      return Ok{};
    }
    if (form.stages == 1) form.schedule = "1f1b";
    const auto schedule = schedule_of(form, graph());
    if (!schedule && is_one_) return schedule.error();
    if (!schedule) {
      list_.leave_out(form, schedule.error().message);
      return Ok{};
    }
    stage.forms.push_back({form, in_flight(*schedule).of_chunk, schedule->stage_of_chunk, {}});
    return Ok{};
  }

  // Compute alone, evenly split over the devices of each stage: per kind of unit.
  static std::vector<UnitPrice> compute_of(const TemplateUnits::Level& level,
                                           const OpenStage& stage) {
    const auto devices = static_cast<double>(stage.cluster.device_count());
    std::vector<UnitPrice> prices(level.kinds.size());
    for (std::size_t k = 0; k < prices.size(); ++k) {
      const PassSeconds& compute = level.kinds[k].compute;
      PassSeconds& steady = prices[k].cost.steady;
      steady.forward = compute.forward / devices;
      steady.backward = compute.backward / devices;
      steady.input_gradients = compute.input_gradients / devices;
      steady.weight_gradients = compute.weight_gradients / devices;
      prices[k].cost.last = steady;
    }
    return prices;
  }

  Result<Seconds> floor_of(OpenForm& form, Recompute recompute, const OpenStage& stage) {
    const auto known = form.floors.find(recompute);
    if (known != form.floors.end()) return known->second.first;
    AUTOPAR_TRY(level, step_->units->level(recompute));
    const std::vector<UnitPrice> prices = compute_of(*level, stage);
    AUTOPAR_TRY(priced, pipeline_of(form.form, graph(), kind_of(), prices, step_->inputs.cluster,
                                    stage.cluster));
    form.floors[recompute] = {priced.seconds, std::move(priced.ends)};
    return priced.seconds;
  }

  // What the fullest stage at least holds: all evenly split.
  double least_bytes(const OpenForm& form, const TemplateUnits::Level& level,
                     const StageTemplate& wanted, const OpenStage& stage) const {
    const Template& t = wanted.parallel;
    const auto replicas = static_cast<double>(t.data * t.context);
    const auto parts = static_cast<double>(t.tensor * t.expert);
    const auto devices = static_cast<double>(stage.cluster.device_count());
    const std::vector<std::size_t>& ends = form.floors.at(wanted.recompute).second;
    std::vector<double> bytes(static_cast<std::size_t>(form.form.stages), 0);
    for (std::size_t c = 0; c + 1 < ends.size(); ++c) {
      for (std::size_t u = ends[c]; u < ends[c + 1]; ++u) {
        const TemplateUnits::Unit& unit = level.kinds[kind_of()[u]];
        // Checkpoints of a chunk may lie some units apart.
        const bool keeps = wanted.recompute != Recompute::kFull;
        bytes[static_cast<std::size_t>(form.stage_of_chunk[c])] +=
            unit.stored_bytes(t.zero, replicas) / parts +
            (keeps ? static_cast<double>(form.flying[c]) * unit.kept_bytes / devices : 0);
      }
    }
    return *std::max_element(bytes.begin(), bytes.end());
  }

  // Without context and expert parallelism.
  Status try_tensor(OpenStage& stage) {
    for (OpenForm& form : stage.forms) {
      AUTOPAR_TRY(floor, floor_of(form, levels().front(), stage));
      if (floor < worthwhile()) {
        stage.open.push_back(&form);
      } else {
        list_.leave_out(form.form, "not priced: its compute alone, evenly split, takes " +
                                       format_seconds(floor));
      }
    }
    if (stage.open.empty()) return Ok{};
    if (only_) return try_only(stage);
    const std::int64_t devices = stage.cluster.device_count();
    for (std::int64_t tensor = 1; tensor <= devices; ++tensor) {
      if (devices % tensor != 0) continue;
      const std::int64_t data = devices / tensor;
      Tried tried{{data, tensor, 0, tensor > 1}};
      if (samples() % data == 0) {
        AUTOPAR_TRY(rank, try_degrees(stage, tried.wanted));
        tried.rank = rank;
        tried.seconds = of_degrees_;
      }
      stage.tried.push_back(tried);
      if (tried.seconds >= too_far()) {
        list_.leave_out(stage.open.front()->form, "more than tp=" + std::to_string(tensor) +
                                                      " is not priced: that takes " +
                                                      format_seconds(tried.seconds) + " and more");
        break;
      }
    }
    return Ok{};
  }

  // The one that is asked for.
  Status try_only(OpenStage& stage) {
    const std::int64_t devices = only_->data * only_->tensor * only_->context;
    if (devices != stage.cluster.device_count()) {
      list_.leave_out(stage.open.front()->form, "template '" + to_text(*only_) + "' is of " +
                                                    std::to_string(devices) +
                                                    " devices, and a stage has " +
                                                    std::to_string(stage.cluster.device_count()));
      return Ok{};
    }
    AUTOPAR_TRY(level, step_->units->level(Recompute::kNone));
    for (const TemplateUnits::Unit& unit : level->kinds) {
      const bool has_all = only_->expert == 1 || !unit.roles.experts.empty();
      if (has_all && !unit.roles.products.empty()) {
        AUTOPAR_TRY(own, step_->units->on_stage(unit, stage.cluster));
        AUTOPAR_RETURN_IF_ERROR(check_template(own, unit.roles, *only_));
        break;
      }
    }
    AUTOPAR_TRY(rank, try_degrees(stage, *only_));
    static_cast<void>(rank);
    return Ok{};
  }

  // Beside each degree of tensor parallelism of which nothing fits, or the batch is too small: a
  // part of the sequence in place of a part of the batch only sends more.
  Status try_context(OpenStage& stage) {
    if (stage.open.empty() || only_) return Ok{};
    AUTOPAR_TRY(level, step_->units->level(Recompute::kNone));
    const TemplateUnits::Unit& usual = level->kinds[step_->units->units().usual];
    AUTOPAR_TRY(request, step_->units->on_stage(usual, stage.cluster));
    const std::vector<Tried> without = stage.tried;
    for (const Tried& tried : without) {
      const bool fits = !tried.rank.first;
      if (fits || tried.seconds >= too_far()) continue;
      AUTOPAR_RETURN_IF_ERROR(
          climb(with_context(request, usual.roles, tried.wanted), tried.rank, stage));
    }
    return Ok{};
  }

  // Beside the best degrees.
  Status try_experts(OpenStage& stage) {
    if (stage.open.empty() || only_) return Ok{};
    AUTOPAR_TRY(level, step_->units->level(Recompute::kNone));
    const auto with =
        std::find_if(level->kinds.begin(), level->kinds.end(),
                     [](const TemplateUnits::Unit& unit) { return !unit.roles.experts.empty(); });
    if (with == level->kinds.end()) return Ok{};
    AUTOPAR_TRY(request, step_->units->on_stage(*with, stage.cluster));
    std::vector<Tried> best = stage.tried;
    std::stable_sort(best.begin(), best.end(),
                     [](const Tried& a, const Tried& b) { return a.rank < b.rank; });
    for (std::size_t t = 0; t < std::min(kExpertDegrees, best.size()); ++t) {
      AUTOPAR_RETURN_IF_ERROR(
          climb(with_experts(request, with->roles, best[t].wanted), best[t].rank, stage));
    }
    return Ok{};
  }

  // One after the other, as long as they get better.
  Status climb(const std::vector<Template>& templates, Rank last, OpenStage& stage) {
    for (const Template& wanted : templates) {
      AUTOPAR_TRY(now, try_degrees(stage, wanted));
      if (now > last || of_degrees_ >= too_far()) break;
      last = now;
      stage.tried.push_back({wanted, now, of_degrees_});
    }
    return Ok{};
  }

  // All levels of recomputation and ZeRO of these degrees, the quickest first; a form goes on to
  // the next as long as nothing of it fits.
  Result<Rank> try_degrees(const OpenStage& stage, Template degrees) {
    Rank best = kNone;
    std::vector<OpenForm*> open = stage.open;
    of_degrees_ = 0;
    for (const Recompute recompute : levels()) {
      AUTOPAR_TRY(level, step_->units->level(recompute));
      const bool is_same = recompute != Recompute::kNone && !level->repeats;
      if (is_same && levels().size() > 1) continue;
      for (const int zero : zeros_of(degrees)) {
        degrees.zero = zero;
        AUTOPAR_TRY(rank, try_template(open, stage, *level, {degrees, recompute}));
        best = std::min(best, rank);
        // What repeats and gathers more takes no less.
        if (open.empty() || of_degrees_ >= too_far()) return best;
      }
    }
    return best;
  }

  std::vector<int> zeros_of(const Template& degrees) const {
    if (only_) return {only_->zero};
    if (zero_) return {*zero_};
    return degrees.data * degrees.context > 1 ? std::vector<int>{1, 3} : std::vector<int>{0};
  }

  // Leaves of the forms those of which it does not fit.
  Result<Rank> try_template(std::vector<OpenForm*>& open, const OpenStage& stage,
                            const TemplateUnits::Level& level, const StageTemplate& wanted) {
    Rank best = kNone;
    std::vector<OpenForm*> may_fit;
    for (OpenForm* form : open) {
      AUTOPAR_TRY(floor, floor_of(*form, wanted.recompute, stage));
      const double bytes = least_bytes(*form, level, wanted, stage);
      if (floor >= worthwhile()) continue;
      if (bytes <= static_cast<double>(room_)) {
        may_fit.push_back(form);
      } else {
        list_.note_too_large(form->form, wanted, bytes);
        best = std::min(best, Rank{true, bytes});
      }
    }
    if (may_fit.empty()) return best;
    auto plans = TemplatePlans::of(*step_->units, level, stage.cluster, wanted, stage.stages);
    if (!plans) return note_refused(may_fit.front()->form, wanted, plans.error());
    Seconds of_forms = kInfinity;
    if (worthwhile() < kInfinity) {
      AUTOPAR_TRY(likely, likely_time(may_fit, stage, level, **plans));
      if (likely >= worthwhile()) {
        if (of_degrees_ == 0) of_degrees_ = likely;
        return best;
      }
    }
    for (std::size_t which = 0; !may_fit.empty(); ++which) {
      const auto prices = (*plans)->at(which);
      if (!prices) return note_refused(may_fit.front()->form, wanted, prices.error());
      if (*prices == nullptr) break;
      std::vector<OpenForm*> left;
      for (OpenForm* form : may_fit) {
        AUTOPAR_TRY(priced, pipeline_of(form->form, graph(), kind_of(), **prices,
                                        step_->inputs.cluster, stage.cluster));
        TemplateCandidate candidate{step_, form->form, wanted, which, std::move(priced), false};
        candidate.fits = candidate.priced.peak <= room_;
        best = std::min(best, candidate.rank());
        const Seconds seconds = candidate.priced.seconds;
        if (which == 0) of_forms = std::min(of_forms, seconds);
        if (!candidate.fits && seconds >= too_far()) continue;
        if (candidate.fits) {
          std::erase(open, form);
          note_fitting(candidate.priced.seconds);
        } else {
          left.push_back(form);
        }
        found_.push_back(std::move(candidate));
      }
      may_fit = std::move(left);
    }
    if (of_degrees_ == 0) of_degrees_ = of_forms;
    return best;
  }

  // Of the usual units alone, with compute of the others; 0: they have no plan.
  Result<Seconds> likely_time(const std::vector<OpenForm*>& forms, const OpenStage& stage,
                              const TemplateUnits::Level& level, TemplatePlans& plans) const {
    std::vector<UnitPrice> prices = compute_of(level, stage);
    const std::size_t usual = step_->units->units().usual;
    auto price = plans.first_of(usual);
    if (!price) return 0.0;
    prices[usual] = std::move(*price);
    Seconds least = kInfinity;
    for (const OpenForm* form : forms) {
      AUTOPAR_TRY(priced, pipeline_of(form->form, graph(), kind_of(), prices, step_->inputs.cluster,
                                      stage.cluster));
      least = std::min(least, priced.seconds);
    }
    return least;
  }

  Result<Rank> note_refused(const PipelineForm& form, const StageTemplate& wanted,
                            const Error& error) {
    const bool is_refused = error.code == ErrorCode::kInfeasible || error.code == ErrorCode::kInput;
    if (!is_refused) return error;
    list_.leave_out(form, to_text(wanted) + ": " + error.message);
    return kNone;
  }

  void note_fitting(Seconds seconds) {
    best_ = std::min(best_, seconds);
    fitting_.insert(std::upper_bound(fitting_.begin(), fitting_.end(), seconds), seconds);
  }

  // What takes longer is not listed.
  Seconds worthwhile() const {
    return fitting_.size() < kListed ? kInfinity : fitting_[kListed - 1];
  }

  // Where one takes so long, what takes no less is not tried.
  Seconds too_far() const { return std::min(tuning::templates::kFar * best_, worthwhile()); }

  std::vector<Recompute> levels() const {
    if (const auto asked = parse_recompute(step_->asked->options.recompute)) return {*asked};
    return {Recompute::kNone, Recompute::kProducts, Recompute::kFull};
  }

  Result<StagedPlan> planned() {
    if (found_.empty()) return infeasible_error(list_.why_none(found_, room_));
    std::optional<Error> error;
    std::optional<StagedPlan> best;
    Seconds seconds = kInfinity;
    for (std::size_t i = 0; i < std::min(kPlanned, found_.size()); ++i) {
      const TemplateCandidate& candidate = found_[i];
      if (best && (!candidate.fits || candidate.priced.seconds >= seconds)) break;
      auto plan = plan_of(candidate, common_, begin_, clock_);
      if (!plan) {
        logging::debug("{}, {}: {}", to_text(candidate.form), to_text(candidate.wanted),
                       plan.error().message);
        if (plan.error().code != ErrorCode::kInfeasible) return plan.error();
        if (!error) error = plan.error();
        continue;
      }
      const Seconds taken =
          plan->pipeline ? plan->pipeline->times.makespan : plan->single->outcome.cost.time();
      logging::debug("{}, {}: {} by its units, {} in whole", to_text(candidate.form),
                     to_text(candidate.wanted), format_seconds(candidate.priced.seconds),
                     format_seconds(taken));
      if (taken < seconds) best.emplace(std::move(*plan));
      seconds = std::min(seconds, taken);
    }
    if (!best) {
      Error none = infeasible_error(list_.why_none(found_, room_));
      if (error) none.message += "; the nearest in whole: " + error->message;
      return none;
    }
    if (best->pipeline) best->pipeline->tried = list_.listed(found_);
    return std::move(*best);
  }

  const CommonOptions& common_;
  const std::chrono::steady_clock::time_point begin_;
  PhaseClock& clock_;
  std::optional<Template> only_;  // that is asked for
  std::optional<int> zero_;       // by --zero
  bool is_one_ = false;           // one form alone is asked for
  std::vector<std::unique_ptr<OpenStep>> steps_;
  const OpenStep* step_ = nullptr;  // at hand
  Bytes room_ = 0;
  Seconds best_ = kInfinity;      // of what fits, by units
  std::vector<Seconds> fitting_;  // ascending
  // Of the degrees at hand, of the template that takes least, fit or not; 0: not known.
  Seconds of_degrees_ = 0;
  std::vector<TemplateCandidate> found_;
  TemplateList list_;
};

}  // namespace

Result<StagedPlan> plan_uniform_stages(const std::vector<StagedStep>& steps,
                                       const CommonOptions& common,
                                       std::chrono::steady_clock::time_point begin,
                                       PhaseClock& clock) {
  return Templates(common, begin, clock).run(steps);
}

}  // namespace autopar
