// torchtitan's job configuration (torchtitan/config/job_config.py).
#include "frameworks/say.hpp"

namespace autopar {

namespace {

// Its names of schedules; empty: none.
std::string schedule_name(const std::string& schedule) {
  if (schedule == "gpipe") return "GPipe";
  if (schedule == "1f1b") return "1F1B";
  if (schedule == "interleaved") return "Interleaved1F1B";
  if (schedule == "zb-v") return "ZBVZeroBubble";
  if (schedule == "dualpipev") return "DualPipeV";
  return "";
}

// [["tok_embeddings", "layers.0"], ["layers.1", "norm", "output"]]
std::string modules_text(const ParallelForm& form) {
  std::string text = "[";
  std::int64_t layer = 0;
  for (std::size_t c = 0; c < form.chunks.size(); ++c) {
    std::vector<std::string> modules;
    if (c == 0) modules.emplace_back("tok_embeddings");
    for (std::int64_t l = 0; l < form.chunks[c].layers; ++l) {
      modules.push_back("layers." + std::to_string(layer++));
    }
    if (c + 1 == form.chunks.size()) {
      modules.emplace_back("norm");
      modules.emplace_back("output");
    }
    text += c == 0 ? "[" : ", [";
    for (std::size_t m = 0; m < modules.size(); ++m) {
      text += (m == 0 ? "" : ", ") + in_quotes(modules[m]);
    }
    text += "]";
  }
  return text + "]";
}

void add_training(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  if (form.micro_batch > 0) {
    const std::int64_t passes = form.stages > 1 ? plan.micro_batches : 1;
    settings.add("training.local_batch_size", form.micro_batch * passes);
    settings.add("training.global_batch_size", form.batch);
  }
  if (form.sequence_length > 0) settings.add("training.seq_len", form.sequence_length);
  settings.add("training.mixed_precision_param",
               in_quotes(is_sixteen_bits(plan) ? "bfloat16" : "float32"));
  if (plan.precision.find("fp16") != std::string::npos) {
    settings.unsaid("precision " + plan.precision + ": it has bfloat16");
  }
}

void add_data(const ParallelForm& form, Settings& settings) {
  const bool has_more = form.tensor > 1 || form.context > 1 || form.stages > 1;
  std::int64_t shard = form.zero == 0 ? 1 : form.weight_group;
  if (form.zero == 1 || form.zero == 2) shard = form.state_group;
  if (form.zero == 0 && form.data > 1 && has_more) {
    shard = form.data;
    settings.unsaid(
        "data parallelism without sharding beside other kinds: it splits what is "
        "stored (FSDP)");
    settings.runs().zero = 3;
    settings.runs().state_group = settings.runs().weight_group = all_replicas(form);
  }
  // Degrees of sharding do not count those of context parallelism.
  if (shard > form.data) shard = form.data;
  settings.add("parallelism.data_parallel_replicate_degree", form.data / shard);
  settings.add("parallelism.data_parallel_shard_degree", shard);
  if (shard > 1) {
    settings.add("parallelism.fsdp_reshard_after_forward",
                 in_quotes(form.zero == 3 ? "always" : "never"));
  }
  if (form.zero == 1 || form.zero == 2) {
    settings.unsaid("ZeRO " + std::to_string(form.zero) +
                    ": it stores weights split too, and here keeps what it has gathered until the "
                    "backward pass");
    settings.runs().zero = 3;
    settings.runs().weight_group = form.state_group;
  }
  if (form.zero == 3 && form.state_group != form.weight_group) {
    settings.unsaid("optimizer states over " + std::to_string(form.state_group) +
                    " devices beside weights over " + std::to_string(form.weight_group));
    settings.runs().state_group = form.weight_group;
  }
}

void say_torchtitan_pipeline(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  settings.add("parallelism.pipeline_parallel_degree", form.stages);
  if (form.stages == 1) return;
  const std::string name = plan.has_own_lines ? "" : schedule_name(plan.schedule);
  settings.add("parallelism.pipeline_parallel_schedule",
               in_quotes(name.empty() ? "PipelineScheduleMulti" : name));
  if (name.empty()) {
    settings.add("parallelism.pipeline_parallel_schedule_csv", in_quotes("schedule.csv"));
    settings.advise("the schedule " + plan.schedule +
                    (schedule_name(plan.schedule).empty() ? "" : ", as the plan has it,") +
                    " has no name there: its table is the plan's schedule.csv without the actions "
                    "R and U");
  }
  if (form.micro_batch > 0) {
    settings.add("parallelism.pipeline_parallel_microbatch_size", form.micro_batch);
  }
  if (form.chunks.empty()) {
    settings.advise("layers per stage: the plan does not tell where layers begin");
  } else {
    settings.add("parallelism.module_fqns_per_model_part", modules_text(form));
  }
}

// What the degree of tensor parallelism of experts may be, and what has to divide that of experts:
// torchtitan/config/job_config.py.
void add_experts(const ParallelForm& form, Settings& settings) {
  settings.add("parallelism.expert_parallel_degree", form.expert);
  if (form.expert == 1) return;
  const bool is_split = form.expert_tensor == form.tensor;
  if (form.tensor > 1) {
    settings.add("parallelism.expert_tensor_parallel_degree", is_split ? form.tensor : 1);
  }
  const std::int64_t whole = form.context * (is_split ? 1 : form.tensor);
  if (form.expert % whole != 0 || (!is_split && form.expert_tensor != 1)) {
    settings.unsaid("experts split over " + std::to_string(form.expert) +
                    " devices, and each over " + std::to_string(form.expert_tensor) + " of the " +
                    std::to_string(form.tensor) +
                    " of tensor parallelism: it has all of these or none, and parts of experts by "
                    "the multiple of " +
                    std::to_string(whole));
  }
}

void say_torchtitan_recompute(const ParallelForm& form, Settings& settings) {
  const bool is_selective = form.recompute == "cheap" || form.recompute == "products";
  settings.add("activation_checkpoint.mode",
               in_quotes(is_selective ? "selective" : form.recompute));
  if (!is_selective) return;
  settings.add("activation_checkpoint.selective_ac_option", in_quotes("op"));
  settings.unsaid("exactly what the plan repeats (recompute " + form.recompute +
                  "): it keeps its own list of ops, attention and every second product among them");
}

}  // namespace

void say_torchtitan(const SaidPlan& plan, const ParallelForm& form, Saying& saying) {
  Settings settings(saying);
  add_training(plan, form, settings);
  add_data(form, settings);
  settings.add("parallelism.tensor_parallel_degree", form.tensor);
  if (form.tensor > 1) settings.add("parallelism.enable_sequence_parallel", form.sequence);
  say_torchtitan_pipeline(plan, form, settings);
  settings.add("parallelism.context_parallel_degree", form.context);
  add_experts(form, settings);
  say_torchtitan_recompute(form, settings);
  std::string section;
  for (const auto& [name, value] : saying.settings) {
    const std::size_t dot = name.find('.');
    if (name.substr(0, dot) != section) {
      section = name.substr(0, dot);
      saying.text += (saying.text.empty() ? "[" : "\n[") + section + "]\n";
    }
    saying.text += name.substr(dot + 1) + " = " + value + "\n";
  }
  saying.comment = "# ";
}

}  // namespace autopar
