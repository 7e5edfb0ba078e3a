// DeepSpeed's configuration (deepspeed/runtime/config.py, runtime/zero/config.py).
#include <nlohmann/json.hpp>

#include "frameworks/say.hpp"

namespace autopar {

namespace {

using Json = nlohmann::ordered_json;

Json zero_json(const ParallelForm& form, Settings& settings) {
  Json zero = {{"stage", form.zero}};
  if (form.zero == 0) return zero;
  const std::int64_t all = all_replicas(form);
  if (form.zero == 3 && form.weight_group < all && form.state_group == all) {
    zero["zero_hpz_partition_size"] = form.weight_group;
  } else if (form.state_group < all) {
    settings.unsaid("optimizer states split over " + std::to_string(form.state_group) + " of " +
                    std::to_string(all) + " devices of data parallelism: it splits over all");
    settings.runs().state_group = all;
    if (form.zero == 3) settings.runs().weight_group = all;
  }
  if (form.zero >= 2 && form.stages > 1) {
    settings.unsaid("ZeRO " + std::to_string(form.zero) +
                    " in a pipeline: its pipelines go with stages 0 and 1");
    zero["stage"] = settings.runs().zero = 1;
    settings.runs().weight_group = 1;
  }
  if (form.zero == 3 && form.tensor > 1 && form.stages == 1) {
    settings.unsaid("ZeRO 3 beside tensor parallelism: autotp_size goes with stages 0 to 2");
    zero["stage"] = settings.runs().zero = 2;
    settings.runs().weight_group = 1;
  }
  return zero;
}

void tell_of_stages(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  if (form.stages == 1) return;
  settings.advise("the model is a PipelineModule(num_stages=" + std::to_string(form.stages) + ")");
  if (plan.schedule != "1f1b" || form.chunks_per_stage > 1) {
    settings.unsaid("the schedule " + plan.schedule +
                    (form.chunks_per_stage > 1
                         ? " with " + std::to_string(form.chunks_per_stage) + " chunks per stage"
                         : std::string()) +
                    ": it runs 1F1B, with one chunk per stage");
    settings.runs().schedule = "1f1b";
    settings.runs().chunks_per_stage = 1;
  }
  if (!form.chunks.empty() && !is_even(form)) {
    settings.unsaid("cuts into " + layers_text(form) +
                    " layers: it balances layers or parameters by itself");
  }
}

void tell_of_recompute(const ParallelForm& form, Json& json, Settings& settings) {
  if (form.recompute == "none") return;
  if (form.recompute == "full" && form.stages > 1) {
    json["pipeline"]["activation_checkpoint_interval"] = 1;
  } else if (form.recompute == "full") {
    settings.advise("every layer is to be called by deepspeed.checkpointing.checkpoint");
  } else {
    settings.unsaid("recompute " + form.recompute + ": what is repeated is up to the model's code");
  }
}

// "zero_optimization.stage" and its value, for each number or word within.
void flatten(const Json& json, const std::string& prefix, Settings& settings) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      flatten(value, name, settings);
    } else {
      settings.add(name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

}  // namespace

void say_deepspeed(const SaidPlan& plan, const ParallelForm& form, Saying& saying) {
  Settings settings(saying);
  Json json = Json::object();
  if (form.micro_batch > 0) {
    json["train_batch_size"] = form.batch;
    json["train_micro_batch_size_per_gpu"] = form.micro_batch;
    json["gradient_accumulation_steps"] = plan.micro_batches;
  }
  json["zero_optimization"] = zero_json(form, settings);
  if (plan.precision.find("bf16") != std::string::npos) json["bf16"] = {{"enabled", true}};
  if (plan.precision.find("fp16") != std::string::npos) json["fp16"] = {{"enabled", true}};
  if (form.tensor > 1) json["tensor_parallel"] = {{"autotp_size", form.tensor}};
  if (form.stages > 1) {
    json["pipeline"] = {{"stages", form.stages}, {"partition", "uniform"}};
  }
  if (form.context > 1) {
    json["sequence_parallel_size"] = form.context;
    settings.unsaid(
        "a split sequence inside attention as the plan has it: its sequence "
        "parallelism exchanges heads instead (Ulysses)");
  }
  if (form.sequence) {
    settings.unsaid(
        "the sequence split between products (sp): tensor parallelism reduces whole "
        "activations");
    settings.runs().sequence = false;
  }
  if (form.expert > 1) {
    settings.advise("ep_size=" + std::to_string(form.expert) + " of every deepspeed.moe.layer.MoE");
  }
  tell_of_stages(plan, form, settings);
  tell_of_recompute(form, json, settings);
  flatten(json, "", settings);
  saying.text = json.dump(2) + "\n";
}

}  // namespace autopar
