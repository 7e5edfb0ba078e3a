#include "cli/nearest_template.hpp"

#include <filesystem>

#include "autopar/import.hpp"
#include "planning/forms.hpp"
#include "planning/pipelines/uniform_stages.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

// No device has as much: what does not fit is priced too.
constexpr const char* kAmple = "1000TiB";

Result<std::string> model_of(const SaidPlan& plan, const PricedFrom& from) {
  if (!from.model.empty()) return from.model;
  const fs::path step = fs::path(plan.path).parent_path() / "train.onnx";
  const bool is_whole = plan.micro_batches == 1 && plan.stages.size() == 1;
  std::error_code ignored;
  if (is_whole && fs::exists(step, ignored)) return step.string();
  return input_error("not priced: --model with the model that the plan is of is needed");
}

Result<std::string> cluster_of(const SaidPlan& plan, const PricedFrom& from) {
  if (!from.cluster.empty()) return from.cluster;
  for (const std::string& path : ready_made_clusters()) {
    const auto file = read_cluster(path);
    if (file && file->sha256 == plan.cluster_sha256) return path;
  }
  return input_error("not priced: --cluster with the cluster that the plan is of is needed");
}

Result<PlanOptions> options_of(const SaidPlan& plan, const ParallelForm& form,
                               const PricedFrom& from) {
  PlanOptions options;
  AUTOPAR_TRY(model, model_of(plan, from));
  AUTOPAR_TRY(cluster, cluster_of(plan, from));
  options.model = std::move(model);
  options.cluster = std::move(cluster);
  options.profile = from.profile;
  if (options.profile.empty()) {
    options.profile = profile_of_plan(plan.profile_name, plan.profile_sha256, plan.cluster_sha256);
  }
  options.recompute = form.recompute;
  ParallelForm inner = form;  // of one stage
  inner.stages = inner.chunks_per_stage = 1;
  options.searcher = "uniform:" + to_text(inner);
  const bool has_passes = plan.micro_batches > 1 || plan.stages.size() > 1;
  if (!plan.trains && has_passes) {
    return input_error(
        "not priced: templates of several micro-batches or stages are of training steps");
  }
  if (!plan.trains) return options;
  AUTOPAR_TRY(is_step, is_training_step(options.model));
  if (is_step) return options;
  StrategyFile file;
  file.path = plan.path;
  file.training = plan.training;
  file.micro_batches = plan.micro_batches;
  AUTOPAR_TRY(training, training_choice_of(file));
  options.training = std::move(training);
  options.train = true;
  if (form.stages == 1) return options;
  options.stages = std::to_string(form.stages);
  options.chunks = std::to_string(form.chunks_per_stage);
  options.schedule = form.schedule;
  return options;
}

Status check_same(const SaidPlan& plan, const Inputs& inputs) {
  if (!plan.model_sha256.empty() && plan.model_sha256 != inputs.model.sha256) {
    return input_error("not priced: " + inputs.model.path + " is another model than that of " +
                       plan.path);
  }
  if (!plan.cluster_sha256.empty() && plan.cluster_sha256 != inputs.cluster_sha256) {
    return input_error("not priced: the cluster is another one than that of " + plan.path);
  }
  if (plan.profile_sha256 != inputs.profile_sha256) {
    return input_error("not priced: the profile is another one than that by which " + plan.path +
                       " is priced");
  }
  return Ok{};
}

Result<TemplatePrice> priced(const SaidPlan& said, const PlanOptions& options,
                             const CommonOptions& common) {
  const auto begin = std::chrono::steady_clock::now();
  PhaseClock clock;
  const std::optional<StrategyFile> none;  // pins
  AUTOPAR_TRY(inputs, load_inputs(options, common));
  AUTOPAR_RETURN_IF_ERROR(check_same(said, *inputs));
  if (options.stages == "1") {
    AUTOPAR_TRY(planned,
                best_of_forms(std::move(inputs), options, options, {}, common, begin, clock));
    return TemplatePrice{"", planned.outcome.cost.time(), planned.outcome.cost.memory.total, true};
  }
  AUTOPAR_TRY(forms, asked_forms(options, *inputs));
  const StagedStep step{std::move(inputs), options, options, std::move(forms)};
  // Of whole layers, where there are some.
  const auto of_layers = plan_uniform_stages({step}, common, begin, clock);
  if (of_layers) {
    const PipelinePlan& plan = *of_layers->pipeline;
    return TemplatePrice{"", plan.times.makespan, plan.peak_bytes, true};
  }
  if (of_layers.error().code != ErrorCode::kInfeasible) return of_layers.error();
  AUTOPAR_TRY(plan, plan_staged({step}, none, common, begin, clock));
  AUTOPAR_CHECK(plan.pipeline.has_value(), "several stages are no pipeline");
  return TemplatePrice{"", plan.pipeline->times.makespan, plan.pipeline->peak_bytes, true};
}

}  // namespace

Result<TemplatePrice> price_template(const SaidPlan& plan, const ParallelForm& form,
                                     const PricedFrom& from, const CommonOptions& common) {
  AUTOPAR_TRY(options, options_of(plan, form, from));
  CommonOptions own = common;
  own.json = false;
  auto found = priced(plan, options, own);
  if (!found && found.error().code == ErrorCode::kInfeasible) {
    own.memory = kAmple;
    found = priced(plan, options, own);
    if (found) found->fits = false;
  }
  if (!found) return found.error();
  found->name = to_text(form);
  return found;
}

}  // namespace autopar::cli
