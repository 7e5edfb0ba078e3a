// MindSpore's set_auto_parallel_context (mindspore/context.py) and a strategy file as its strategy
// checkpoints have it: parallel_strategy_item, by op, with the op's stage.
#include <nlohmann/json.hpp>

#include "frameworks/roles.hpp"
#include "frameworks/say.hpp"

namespace autopar {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kStrategyFile = "strategy.json";

const char* python(bool value) { return value ? "True" : "False"; }

// How many parts every dimension of each data input goes in: ((8, 1), (8, 1)).
std::string dataset_text(const SaidPlan& plan, const ParallelForm& form) {
  std::string text;
  for (const std::string& name : plan.data) {
    const auto at = plan.tensors.find(name);
    if (at == plan.tensors.end()) continue;
    const std::size_t rank = at->second.shape.size();
    std::string counts = "(";
    for (std::size_t d = 0; d < rank; ++d) {
      counts += (d == 0   ? std::to_string(form.data)
                 : d == 1 ? ", " + std::to_string(form.context)
                          : std::string(", 1"));
    }
    text += (text.empty() ? "" : ", ") + counts + (rank == 1 ? ",)" : ")");
  }
  return text.empty() ? in_quotes("data_parallel") : "(" + text + ",)";
}

void say_mindspore_pipeline(const SaidPlan& plan, const ParallelForm& form, Settings& settings) {
  if (form.stages == 1) {
    // Which splits what it is given, and so interleaves the parts.
    if (plan.copies > 1) {
      settings.advise("nn.MicroBatchInterleaved(net, " + std::to_string(plan.copies) + ")");
    }
    const std::int64_t runs = plan.micro_batches / plan.copies;
    if (runs > 1) settings.advise("nn.GradAccumulationCell(net, " + std::to_string(runs) + ")");
    return;
  }
  settings.add("pipeline_stages", form.stages);
  const std::string& schedule = plan.schedule;
  const bool is_loop = schedule == "interleaved";
  const bool has_name = schedule == "gpipe" || schedule == "1f1b" || is_loop || schedule == "zb-v";
  const std::string name = schedule == "zb-v" ? "zero_bubble_v" : is_loop ? "1f1b" : schedule;
  settings.add("pipeline_config",
               std::string("{\"pipeline_interleave\": ") + python(form.chunks_per_stage > 1) +
                   ", \"pipeline_scheduler\": " + in_quotes(has_name ? name : "1f1b") + "}");
  if (!has_name) {
    settings.unsaid("the schedule " + schedule +
                    ": it has gpipe, 1f1b, zero_bubble_v and its own for split sequences");
    settings.runs().schedule = form.chunks_per_stage > 1 ? "interleaved" : "1f1b";
  } else if (plan.has_own_lines) {
    settings.unsaid("whole backward passes of some chunks: " + name +
                    " has all of them in two parts, which holds more");
  }
  settings.advise("nn.PipelineCell(net, " + std::to_string(plan.micro_batches) +
                  "), and pipeline_stage of every cell as the strategy file has it");
}

void add_optimizer(const ParallelForm& form, Settings& settings) {
  settings.add("enable_parallel_optimizer", python(form.zero > 0));
  if (form.zero == 0) return;
  std::string config = "{\"optimizer_level\": " + in_quotes("level" + std::to_string(form.zero));
  const std::int64_t group = form.zero == 3 ? form.weight_group : form.state_group;
  if (group < all_replicas(form)) {
    config += ", \"optimizer_weight_shard_size\": " + std::to_string(group);
  }
  settings.add("parallel_optimizer_config", config + "}");
  if (form.zero == 3 && form.state_group != form.weight_group) {
    settings.unsaid("optimizer states over " + std::to_string(form.state_group) +
                    " devices beside weights over " + std::to_string(form.weight_group));
    settings.runs().state_group = form.weight_group;
  }
}

std::string strategy_text(const SaidPlan& plan) {
  Json in = Json::object(), out = Json::object();
  for (const SaidOp& op : plan.ops) {
    if (!op.is_forward) continue;
    const std::size_t stage = stage_of_chunk(plan, op.chunk);
    in[op.name] = {{"stage", stage}, {"parallel_strategy", op.in}};
    out[op.name] = {{"stage", stage}, {"parallel_strategy", op.out}};
    if (plan.stages[stage].chunks.size() > 1) in[op.name]["chunk"] = op.chunk;
  }
  const Json document = {
      {"current_stage", 0}, {"parallel_strategy_item", in}, {"parallel_out_strategy_item", out}};
  return document.dump(1) + "\n";
}

}  // namespace

void say_mindspore(const SaidPlan& plan, const ParallelForm& form, Saying& saying) {
  Settings settings(saying);
  settings.add("parallel_mode", in_quotes("semi_auto_parallel"));
  settings.add("device_num", plan.devices());
  settings.add("dataset_strategy", dataset_text(plan, form));
  settings.add("enable_alltoall", python(true));
  add_optimizer(form, settings);
  say_mindspore_pipeline(plan, form, settings);
  settings.add("strategy_ckpt_config", "{\"load_file\": " + in_quotes(kStrategyFile) + "}");
  if (form.recompute != "none") {
    settings.advise(
        "cell.recompute() of " +
        std::string(form.recompute == "full" ? "every layer" : "what lies between products") +
        " (recompute " + form.recompute + ")");
  }
  for (const auto& [name, value] : saying.settings) {
    saying.text +=
        (saying.text.empty() ? "mindspore.set_auto_parallel_context(\n    " : ",\n    ") + name +
        "=" + value;
  }
  saying.text = "import mindspore\n\n" + saying.text + ")\n";
  saying.strategy = strategy_text(plan);
  saying.comment = "# ";
}

}  // namespace autopar
