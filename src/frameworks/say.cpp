#include "frameworks/say.hpp"

#include <algorithm>
#include <array>

namespace autopar {

namespace {

struct Row {
  Framework framework;
  const char* name;
  const char* title;
  void (*say)(const SaidPlan& plan, const ParallelForm& form, Saying& saying);
};
constexpr std::array kRows = {
    Row{Framework::kMegatron, "megatron", "Megatron-LM", say_megatron},
    Row{Framework::kDeepSpeed, "deepspeed", "DeepSpeed", say_deepspeed},
    Row{Framework::kTorchtitan, "torchtitan", "torchtitan", say_torchtitan},
    Row{Framework::kNanotron, "nanotron", "nanotron", say_nanotron},
    Row{Framework::kMindSpore, "mindspore", "MindSpore", say_mindspore},
};
const Row& row_of(Framework framework) { return kRows[static_cast<std::size_t>(framework)]; }

}  // namespace

const char* name_of(Framework framework) { return row_of(framework).name; }
const char* title_of(Framework framework) { return row_of(framework).title; }

std::optional<Framework> parse_framework(std::string_view name) {
  for (const Row& row : kRows) {
    if (name == row.name) return row.framework;
  }
  return std::nullopt;
}

std::vector<Framework> frameworks() {
  std::vector<Framework> all;
  for (const Row& row : kRows) all.push_back(row.framework);
  return all;
}

Saying say_as(Framework framework, const SaidPlan& plan, const ParallelForm& form) {
  Saying saying;
  saying.runs = form;
  row_of(framework).say(plan, form, saying);
  if (plan.copies > 1 && framework != Framework::kMindSpore) {
    saying.unsaid.push_back(std::to_string(plan.copies) +
                            " passes interleaved: it runs one after the other");
  }
  return saying;
}

bool is_even(const ParallelForm& form) {
  return std::all_of(form.chunks.begin(), form.chunks.end(), [&](const ChunkLayers& chunk) {
    return chunk.layers == form.chunks.front().layers;
  });
}

std::string layers_text(const ParallelForm& form) {
  std::string text;
  for (const ChunkLayers& chunk : form.chunks) {
    text += (text.empty() ? "" : ", ") + std::to_string(chunk.layers);
  }
  return text;
}

std::int64_t all_replicas(const ParallelForm& form) { return form.data * form.context; }

bool is_sixteen_bits(const SaidPlan& plan) {
  return plan.precision.find("bf16") != std::string::npos ||
         plan.precision.find("fp16") != std::string::npos;
}

}  // namespace autopar
