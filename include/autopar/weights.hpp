// The weights of a plan in files: every rank's slices in a folder of its own, together again, and
// from one plan's slices to another's. Everything is streamed: memory stays at a few buffers of
// kBufferBytes, whatever the size of the model.
//
//   gpt2.autopar/plan.onnx                        location #rankNNNNN/weights.safetensors
//   gpt2.autopar/rank00000/plan.onnx              the same program for every rank: location
//   gpt2.autopar/rank00000/weights.safetensors      weights.safetensors
//   gpt2.autopar/rank00001/plan.onnx              a hard link where the file system has them
//   gpt2.autopar/rank00001/weights.safetensors
//
// The slices of an SPMD program have equal shapes, so all ranks' files have equal offsets, and one
// program fits them all. weights.safetensors is at once a safetensors file and the ONNX external
// data of its folder's plan. metadata_props: "autopar.weights" is "sharded" (else "referenced"),
// "autopar.weights_io" gives the whole shape and the spec of every weight, as autopar.io does.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autopar/export.hpp"

namespace autopar {

inline constexpr Bytes kWeightBufferBytes = Bytes{64} << 20;
// Weights that no rank cuts and that are not larger stay inside plan.onnx.
inline constexpr Bytes kInlineWeightBytes = 1024;

// The folder of a rank's files, below the plan's: "rank00003".
std::string rank_folder(std::int64_t rank);
std::string five_digits(std::int64_t rank);  // "00003"
inline constexpr const char* kWeightsFile = "weights.safetensors";
// That of a rank, below the plan's folder.
std::string weights_file(const std::string& folder, std::int64_t rank);

// The initializers of a program that are weights: parameters with data. The spec is what the
// ShardSlices leave through which alone such an initializer is read.
std::vector<BoundaryValue> weights_of(const Plan& plan);

// What was written.
struct RankFolders {
  std::vector<std::string> files;  // all of them, plan.onnx of `folder` too
  Bytes bytes_per_rank = 0;        // of weights.safetensors
  std::vector<std::string> warnings;
};

// Writes `folder`/plan.onnx and the rank folders of a plan whose initializers are whole. External
// data is read from `model_folder`. Files appear whole or not at all. Errors: a file that cannot be
// read or written, with the reason; data that is shorter than the plan says.
Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder);
// The same as some of several files: they appear with the others.
Result<RankFolders> write_sharded_plan(const Plan& plan, const PlanMetadata& metadata,
                                       const std::string& folder, const std::string& model_folder,
                                       UnfinishedFiles& files);

struct MovedWeights {
  std::size_t weights = 0;
  Bytes bytes = 0;  // of the whole weights
  std::vector<std::string> files;
  std::vector<std::string> warnings;
};

// Puts the slices of a sharded plan's folder together in `file`: .safetensors, byte for byte what
// the safetensors package writes for these tensors, or .onnx, the model at `model_path` with the
// weights beside it in a .safetensors file of the same stem. Slices that several ranks hold must be
// equal. Errors: a rank's file that is missing or does not fit the plan; ranks that differ
// (kComparison).
Result<MovedWeights> merge_weights(const std::string& folder, const std::string& file,
                                   const std::string& model_path = "");

// Reads weights from `from` (a folder with a plan, sharded or not, a .safetensors or an .onnx file)
// and writes rank folders for the plan in the folder `to` below `folder`, with its plan.onnx. The
// rank files also hold what `from` has for graph inputs of the plan (weights and optimizer states
// of a training step), in the layout in which they come in. Errors: a weight of the plan that
// `from` does not have (with `keep_missing` it stays as `to` has it, and is told), or has in
// another shape or type. Warnings: what `from` has and the plan does not.
Result<MovedWeights> reshard_weights(const std::string& from, const std::string& to,
                                     const std::string& folder, bool keep_missing = false);

// The plan.onnx that a rank runs: that of its folder where the weights are sharded, else the plan
// itself. `plan_path`: a plan.onnx that read_plan gave, in the plan's folder or in a rank's.
std::string rank_plan_path(const PlanFile& plan, const std::string& plan_path, std::int64_t rank);

// A tensor in a mapped file; valid as long as what it comes from.
struct MappedTensor {
  DType dtype = DType::kFloat32;
  Shape shape;  // of the rank's slice
  const void* data = nullptr;
  Bytes bytes = 0;
};
// Pages are read when they are first touched, and shared with everyone who maps the same file;
// writing to them changes a copy of this mapping only.
struct MappedWeights {
  std::map<std::string, MappedTensor> initializers;  // external ones of the program
  std::map<std::string, MappedTensor> inputs;        // graph inputs that the rank's file holds
  std::vector<std::shared_ptr<const void>> files;
};
// A rank's external data. Of a plan that is not sharded the same for every rank: map it once.
// Errors: a file that is missing or too short.
Result<MappedWeights> map_weights(const PlanFile& plan, const std::string& plan_path,
                                  std::int64_t rank);

}  // namespace autopar
