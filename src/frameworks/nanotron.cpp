// nanotron's configuration (src/nanotron/config/).
#include "frameworks/say.hpp"

namespace autopar {

namespace {

void tell_unsaid(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  if (form.zero >= 2) {
    settings.unsaid("ZeRO " + std::to_string(form.zero) + ": it has stages 0 and 1");
    settings.runs().zero = 1;
    settings.runs().weight_group = 1;
  }
  if (form.zero > 0 && form.state_group < all_replicas(form)) {
    settings.unsaid("optimizer states split over " + std::to_string(form.state_group) + " of " +
                    std::to_string(all_replicas(form)) +
                    " devices of data parallelism: it splits over all");
    settings.runs().state_group = all_replicas(form);
  }
  if (form.recompute == "cheap" || form.recompute == "products") {
    settings.unsaid("recompute " + form.recompute + ": it repeats whole layers or nothing");
    settings.runs().recompute = "none";
  }
  if (plan.precision.find("fp16") != std::string::npos) {
    settings.unsaid("precision " + plan.precision + ": it trains in bfloat16 or float32");
  }
  if (form.stages == 1) return;
  const bool has_engine = plan.schedule == "1f1b" || plan.schedule == "gpipe";
  if (!has_engine || form.chunks_per_stage > 1) {
    settings.unsaid("the schedule " + plan.schedule +
                    ": it has 1f1b and afab, with one chunk per "
                    "stage");
    settings.runs().schedule = "1f1b";
    settings.runs().chunks_per_stage = 1;
  }
  settings.advise(
      "stages are cut where nanotron's own costs of its blocks balance" +
      (form.chunks.empty() ? std::string() : "; the plan has " + layers_text(form) + " layers"));
}

}  // namespace

void say_nanotron(const SaidPlan& plan, const ParallelForm& form, Saying& saying) {
  Settings settings(saying);
  settings.add("model.dtype", is_sixteen_bits(plan) ? "bfloat16" : "float32");
  settings.add("optimizer.accumulate_grad_in_fp32", true);
  settings.add("optimizer.zero_stage", std::int64_t{form.zero > 0 ? 1 : 0});
  settings.add("parallelism.context_parallel_size", form.context);
  settings.add("parallelism.dp", form.data);
  settings.add("parallelism.expert_parallel_size", form.expert);
  settings.add("parallelism.pp", form.stages);
  settings.add("parallelism.pp_engine", plan.schedule == "gpipe" ? "afab" : "1f1b");
  settings.add("parallelism.recompute_layer", form.recompute == "full");
  settings.add("parallelism.tp", form.tensor);
  settings.add("parallelism.tp_linear_async_communication", false);
  settings.add("parallelism.tp_mode", form.sequence ? "REDUCE_SCATTER" : "ALL_REDUCE");
  settings.add("tokens.batch_accumulation_per_replica", plan.micro_batches);
  if (form.micro_batch > 0) settings.add("tokens.micro_batch_size", form.micro_batch);
  if (form.sequence_length > 0) settings.add("tokens.sequence_length", form.sequence_length);
  tell_unsaid(plan, form, settings);
  std::string section;
  for (const auto& [name, value] : saying.settings) {
    const std::size_t dot = name.find('.');
    if (name.substr(0, dot) != section) {
      section = name.substr(0, dot);
      saying.text += section + ":\n";
    }
    saying.text += "  " + name.substr(dot + 1) + ": " + value + "\n";
  }
  saying.comment = "# ";
}

}  // namespace autopar
