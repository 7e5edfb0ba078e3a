// A plan in the words of the programs that train with it: flags of Megatron-LM, JSON of DeepSpeed,
// TOML of torchtitan, YAML of nanotron, MindSpore's context and strategy file.
//
//   AUTOPAR_TRY(plan, parse_said_plan(text, "plan/strategy.json"));
//   const ParallelForm form = form_of(plan);        // dp=8 tp=8 sp zero=1, and what deviates
//   const Saying saying = say_as(Framework::kMegatron, plan, form);
//   saying.text                                     // "--tensor-model-parallel-size 8 \ ..."
//   saying.unsaid                                   // what has no word there
//
// The form is read from the layouts of products, activations and stored tensors alone, not from
// what found the plan. strategy.json has no edges: a product with a weight is a MatMul or Gemm of
// the forward pass whose second input has two dimensions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

using SplitCounts = std::vector<std::vector<std::int64_t>>;  // per tensor, per dimension

struct SaidOp {
  std::string name, type;
  std::map<std::string, std::string> factor_of_axis;
  SplitCounts in, out;
  std::size_t chunk = 0;
  bool is_forward = true;  // false: its name is that of a backward, repeated or update op
};

struct SaidTensor {
  std::vector<std::int64_t> shape;
  std::vector<std::vector<std::string>> dims;  // per dimension the axes that split it
  std::vector<std::string> partial;
  std::vector<std::int64_t> device_matrix;
  std::string tensor_map;  // as JSON
};

struct SaidAxis {
  std::string name, tier;
  std::int64_t size = 1;
  bool operator==(const SaidAxis&) const = default;
};

struct SaidStage {
  std::int64_t ranks = 1;
  std::vector<SaidAxis> mesh;       // outermost first
  std::vector<std::size_t> chunks;  // ascending
};

// What of a strategy.json this is about, in the file's order.
struct SaidPlan {
  std::string path;
  std::string model_name, model_sha256, cluster_sha256;
  std::string profile_name, profile_sha256;  // by which it is priced; empty: ideal
  std::vector<SaidStage> stages;             // at least one
  std::vector<std::string> recompute;        // per chunk; "none", "full, cheap from layers.3/norm"
  std::int64_t micro_batches = 1;
  std::int64_t copies = 1;  // of the passes, interleaved
  std::string schedule;     // empty: one stage
  std::vector<SaidOp> ops;
  std::map<std::string, SaidTensor> tensors;
  bool trains = false;   // the rest is said
  std::string training;  // as a JSON object
  std::string optimizer, precision;
  std::vector<std::string> data, parameters, states, accumulators;
  std::optional<double> seconds;
  std::int64_t memory_bytes = 0;
  bool has_own_lines = false;  // the passes are not quite those of the schedule of that name

  std::int64_t devices() const;
};
// Errors (kInput) name the file and the field; a file that says only some ops is one.
Result<SaidPlan> parse_said_plan(std::string_view text, const std::string& path);

// A part of the model that a chunk holds.
struct ChunkLayers {
  std::int64_t stage = 0;
  std::int64_t layers = 0;
  bool is_between = true;  // it ends between layers
};

// What of a plan is not as its template has it, as a sentence.
struct Deviation {
  bool of_ops = false;  // of how ops are split, which can be told op by op where a program has that
  std::string text;
};

// What training programs can be told, as far as a plan keeps to it.
struct ParallelForm {
  std::int64_t data = 1, tensor = 1, context = 1, expert = 1;
  std::int64_t expert_tensor = 1;  // devices of `tensor` over which each expert is split
  std::int64_t stages = 1, chunks_per_stage = 1;
  bool sequence = false;  // split between the products, over the devices of tensor parallelism
  int zero = 0;           // 0 to 3
  std::int64_t state_group = 1;   // devices over which optimizer states are split, of `data`
  std::int64_t weight_group = 1;  // the same of what passes read
  std::int64_t node_devices = 0;  // of the innermost tier that the mesh names, taken together
  std::string schedule;           // of several stages
  std::string recompute = "none";
  std::int64_t batch = 0;        // samples of a step; 0: not known
  std::int64_t micro_batch = 0;  // samples of one replica in one pass
  std::int64_t sequence_length = 0;
  std::int64_t layers = 0;            // 0: not known
  std::vector<ChunkLayers> chunks;    // of several
  std::vector<Deviation> deviations;  // empty: the plan is the template
};
ParallelForm form_of(const SaidPlan& plan);
// "dp=8 tp=8 sp zero=1"; with "/4" where states are split over 4 devices only.
std::string to_text(const ParallelForm& form);

enum class Framework : std::uint8_t { kMegatron, kDeepSpeed, kTorchtitan, kNanotron, kMindSpore };
const char* name_of(Framework framework);   // "megatron"
const char* title_of(Framework framework);  // "Megatron-LM"
std::optional<Framework> parse_framework(std::string_view name);
std::vector<Framework> frameworks();

struct Saying {
  // By their names there, in order; values as they stand there, a flag without one has none.
  std::vector<std::pair<std::string, std::string>> settings;
  std::string text;                 // the file of that program, without comments
  std::string strategy;             // MindSpore's strategy file; else empty
  std::string comment;              // what begins a comment in `text`; empty: there are none
  std::vector<std::string> unsaid;  // sentences: the form has it, and that program no word for it
  std::vector<std::string> advice;  // what is to be said elsewhere than in this file
  ParallelForm runs;  // what these settings stand for: the form, but for what is unsaid
};
Saying say_as(Framework framework, const SaidPlan& plan, const ParallelForm& form);

}  // namespace autopar
