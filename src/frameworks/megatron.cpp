// Megatron-LM's command line (megatron/training/arguments.py).
#include "frameworks/say.hpp"

namespace autopar {

namespace {

// "Et*3|t*4|t*4|t*3L": chunk by chunk, those of the first stages first; E: embedding, t: a layer,
// L: loss.
std::string layout_text(const ParallelForm& form) {
  std::string text = "E";
  for (std::size_t c = 0; c < form.chunks.size(); ++c) {
    const std::int64_t layers = form.chunks[c].layers;
    if (layers > 0) text += layers == 1 ? "t" : "t*" + std::to_string(layers);
    text += c + 1 == form.chunks.size() ? "L" : "|";
  }
  return text;
}

void say_megatron_pipeline(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  settings.add("--pipeline-model-parallel-size", form.stages);
  if (form.stages == 1) return;
  const bool is_loop = plan.schedule == "interleaved" || plan.schedule == "1f1b";
  if (!is_loop) {
    settings.unsaid("the schedule " + plan.schedule + ": it runs " +
                    (form.chunks_per_stage > 1 ? "interleaved 1F1B" : "1F1B"));
    settings.runs().schedule = form.chunks_per_stage > 1 ? "interleaved" : "1f1b";
  }
  if (form.chunks.empty()) {
    settings.advise("layers per stage: the plan does not tell where layers begin");
  } else if (!is_even(form)) {
    settings.add("--pipeline-model-parallel-layout", "'" + layout_text(form) + "'");
  } else if (form.chunks_per_stage > 1) {
    settings.add("--num-layers-per-virtual-pipeline-stage", form.chunks.front().layers);
  }
}

void add_sharding(const ParallelForm& form, Settings& settings) {
  if (form.zero == 0) return;
  settings.add("--use-distributed-optimizer");
  if (form.zero >= 2) {
    settings.add("--use-megatron-fsdp");
    settings.add("--data-parallel-sharding-strategy",
                 form.zero == 3 ? "optim_grads_params" : "optim_grads");
    settings.add("--no-gradient-accumulation-fusion");
    settings.add("--ckpt-format", "fsdp_dtensor");
  }
  const std::int64_t group = form.zero == 3 ? form.weight_group : form.state_group;
  if (group == all_replicas(form)) return;
  settings.add("--num-distributed-optimizer-instances", all_replicas(form) / group);
  if (form.zero == 3) {
    const bool is_outer = form.state_group == all_replicas(form);
    settings.add("--outer-dp-sharding-strategy", is_outer ? "optim" : "no_shard");
    if (!is_outer && form.state_group != group) {
      settings.unsaid("optimizer states over " + std::to_string(form.state_group) +
                      " devices beside weights over " + std::to_string(group));
    }
  }
}

void say_megatron_recompute(const ParallelForm& form, Settings& settings) {
  if (form.recompute == "none") return;
  if (form.recompute == "full") {
    settings.add("--recompute-granularity", "full");
    settings.add("--recompute-method", "uniform");
    settings.add("--recompute-num-layers", std::int64_t{1});
    return;
  }
  settings.add("--recompute-granularity", "selective");
  settings.add("--recompute-modules",
               form.recompute == "products" ? "core_attn layernorm" : "layernorm");
  settings.unsaid(
      "repeating activation functions and what lies between products, as the plan "
      "does (recompute " +
      form.recompute + "): it repeats whole modules");
}

void add_precision(const SaidPlan& plan, Settings& settings) {
  if (plan.precision == "mixed-bf16") settings.add("--bf16");
  if (plan.precision == "mixed-fp16") settings.add("--fp16");
  if (plan.precision == "bf16" || plan.precision == "fp16") {
    settings.add("--" + plan.precision);
    settings.unsaid("weights without a float32 master (precision " + plan.precision + ")");
  }
}

}  // namespace

void say_megatron(const SaidPlan& plan, const ParallelForm& form, Saying& saying) {
  Settings settings(saying);
  settings.add("--tensor-model-parallel-size", form.tensor);
  say_megatron_pipeline(plan, form, settings);
  if (form.context > 1) settings.add("--context-parallel-size", form.context);
  if (form.expert > 1) {
    settings.add("--expert-model-parallel-size", form.expert);
    // Which is that of tensor parallelism where nothing is said.
    if (form.expert_tensor != form.tensor) {
      settings.add("--expert-tensor-parallel-size", form.expert_tensor);
    }
  }
  if (form.sequence) settings.add("--sequence-parallel");
  if (form.micro_batch > 0) {
    settings.add("--micro-batch-size", form.micro_batch);
    settings.add("--global-batch-size", form.batch);
  }
  if (form.sequence_length > 0) settings.add("--seq-length", form.sequence_length);
  add_sharding(form, settings);
  say_megatron_recompute(form, settings);
  add_precision(plan, settings);
  for (const auto& [name, value] : saying.settings) {
    saying.text += (saying.text.empty() ? "" : " \\\n") + name + (value.empty() ? "" : " " + value);
  }
  saying.text += "\n";
  saying.comment = "# ";
}

}  // namespace autopar
