// Rewritten graphs out and in again: Plan -> plan.onnx -> Plan.
//
//   Result<std::vector<std::string>> warnings = write_plan(plan, metadata, "out/plan.onnx");
//   Result<PlanFile> file = read_plan("out/plan.onnx");
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autopar/grad.hpp"
#include "autopar/partition.hpp"
#include "autopar/unfinished.hpp"

namespace autopar {

struct ImportedModel;  // import.hpp
struct ImportOptions;

// What plan.onnx says about where it comes from.
struct PlanMetadata {
  std::string version;  // of the autopar that wrote it: MAJOR.MINOR.PATCH
  std::string model_sha256;
  std::string strategy_sha256;
  std::vector<std::string> tier_names;  // of the cluster, innermost first; Axis::tier is an index
  // Written with bodies for the ops of ai.autopar, so that any runtime loads it: wrong on more than
  // one rank, and marked so.
  bool fallback_functions = false;
  // Of one of several programs: its number among them, the global ranks that run it in the order
  // of the mesh, how many ranks there are in all. A plan that is alone has none of the three.
  std::int64_t stage = -1;
  std::vector<std::int64_t> ranks = {};
  std::int64_t world_size = 0;
  // Of a training step: metadata_props["autopar.training"] of the step's file, as it stands there.
  std::string training = {};
  // Of a step of a model that is not trained: the inputs that it is fed with. The others are
  // weights of the model.
  std::optional<std::vector<std::string>> data = {};
  // "referenced": whole initializers, cut by ShardSlice; "sharded": a rank's slices, one file per
  // rank (see weights.hpp). Empty: not said.
  std::string weights = {};
  // Which initializers are weights: whole shapes and the specs of the slices.
  std::vector<BoundaryValue> weights_io = {};
  bool of_step = false;  // one of the programs of a step.json

  bool sharded() const { return weights == "sharded"; }
};

// Writes plan.onnx: IR version 10, the graph's opset, `ai.autopar` version 1, a static local shape
// for every value. ONNX's checker and strict shape inference run on what is written. External data
// is put beside the plan, from `model_folder`: as a clone or a copy, since ONNX's checker refuses
// links; above kLinkBytes, where the file system has no clones, as a hard link, with a warning. An
// empty `model_folder`: the data lies where the plan says. The file appears whole or not at all.
// Returns warnings. Errors: kInput naming the op or value that ONNX refuses, or the file that
// cannot be written.
inline constexpr Bytes kLinkBytes = Bytes{4} << 30;
Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder = ".");
// The same as one of several files: what is written appears with the others.
Result<std::vector<std::string>> write_plan(const Plan& plan, const PlanMetadata& metadata,
                                            const std::string& path,
                                            const std::string& model_folder,
                                            UnfinishedFiles& files);
// Of several at the same time, on so many threads; each warning once.
struct PlanToWrite {
  const Plan& plan;
  PlanMetadata metadata;
  std::string path;
};
Result<std::vector<std::string>> write_plans(const std::vector<PlanToWrite>& plans,
                                             const std::string& model_folder, int threads,
                                             UnfinishedFiles& files);

// A plan as its file has it. Initializers are constants of the program; the tiers of the mesh are
// those that its axes name, numbered from the innermost axis.
struct PlanFile {
  Plan plan;
  PlanMetadata metadata;
  std::int64_t world_size = 1;  // of all programs together
  // That run it, in the mesh's order: 0, 1, ... where it is alone.
  std::vector<std::int64_t> ranks = {};
  std::string path = {};
  // Written by hand: `plan` is the file's graph normalised and completed. What runs is not the file
  // but plan_bytes(plan, metadata, ...), with external data from the folder of the file.
  bool by_hand = false;
  // The other runtime's in whose words its collectives were: "trt", "ort"; empty: ai.autopar's.
  std::string dialect = {};
  std::vector<std::string> warnings = {};  // what was completed, and those of the import
};
// Errors: not a plan, written by a later minor version of autopar, another version of the ops of
// ai.autopar, metadata that is missing or contradicts the program. Of one of several programs only
// what it says itself is checked.
Result<PlanFile> read_plan(const std::string& path);

// All programs of a run, their order proven (prove_order): of a folder `plan.onnx`, or
// `plan.stage0.onnx`, `plan.stage1.onnx`, ...; or a file. A file without the metadata of a plan may
// be a model with collectives of ai.autopar that somebody wrote into it: it is imported as
// import_model does (`dims` as there) and completed as complete_collectives does. Its ranks are
// those that its groups list, its mesh one axis "ranks", and its inputs and outputs lie whole on
// every rank, unless metadata_props say otherwise (autopar.world_size, .mesh, .io, .ranks, .stage).
// A folder's files are all plans or all by hand. Collectives may be in the words of TensorRT or
// ONNX Runtime, too: those that ai.autopar can say exactly become its. A JSON file (plan.trt.json,
// plan.ort.json; in a folder, where it holds no other program) lists the files of ranks whose
// groups or weights differ; these are read as one program.
Result<std::vector<PlanFile>> read_programs(const std::string& path,
                                            const std::map<std::string, std::int64_t>& dims = {});
// Whether a file holds communication in the words of TensorRT or ONNX Runtime, or was written in
// them; false for what cannot be read.
bool speaks_dialect(const std::string& path);
// Of programs that were read, as prove_order takes them.
std::vector<ProgramOnRanks> programs_of(const std::vector<PlanFile>& files);

// Other runtimes' words for the collectives of ai.autopar.
enum class Dialect : std::uint8_t {
  kTrt,  // TensorRT's DistCollective
  kOrt,  // ONNX Runtime's com.microsoft
};
std::optional<Dialect> parse_dialect(const std::string& name);  // "trt", "ort"
const char* name_of(Dialect dialect);

// Writes the plan in a dialect into `folder`: plan.<dialect>.onnx, or where ranks have different
// programs (their groups, their parts of weights) plan.<dialect>.rank<R>.onnx, R being the first
// rank that runs it; and plan.<dialect>.json, which says which ranks run which file. The files have
// the inputs and outputs of plan.onnx and the same nodes in the same order. Nothing in them orders
// collectives that do not depend on each other but their place in the file; a warning says how
// many these are. External data lie as for write_plan. Errors: kInput naming the op that the
// dialect has no words for; nothing is written then.
struct DialectFiles {
  std::vector<std::string>
      names;  // in `folder`, in the order of their first ranks; plan.<dialect>.json
  std::vector<std::string> warnings;
};
Result<DialectFiles> write_dialect(const Plan& plan, const PlanMetadata& metadata, Dialect dialect,
                                   const std::string& folder,
                                   const std::string& model_folder = ".");
Result<DialectFiles> write_dialect(const Plan& plan, const PlanMetadata& metadata, Dialect dialect,
                                   const std::string& folder, const std::string& model_folder,
                                   UnfinishedFiles& files);

// The model's own file, with what the strategy says in ONNX's sharding metadata (IR 11 or the
// model's, where that is later): every node of the main graph that became ops of `graph` has the
// layouts in which it reads its inputs and leaves its outputs; replicas are groups of devices with
// negative keys. Partial sums cannot be said: they are written as they lie once reduced, with a
// warning. `graph` is the import of `model_path`. External data as for write_plan. What is
// written appears with `files`. Returns warnings. Errors: kInput where the file is no ONNX model or
// would be too large.
Result<std::vector<std::string>> write_annotated(const std::string& model_path, const Graph& graph,
                                                 const GraphRules& rules, const Strategy& strategy,
                                                 const PlanMetadata& metadata,
                                                 const std::string& path, UnfinishedFiles& files);

// The model at `model_path` with other data for some initializers of its main graph, by name:
// inline or external. What else it has stays. Errors: a name that is no initializer, another shape
// or type.
Status write_model_with(const std::string& model_path, const std::vector<Value>& initializers,
                        const std::string& path);

// A training step as an ONNX file: metadata_props say which inputs are data (`data_inputs`) and
// what the others are (`autopar.training`). Weights that stay in the model's external data are
// referred to where they are: `path` is in the model's folder, or they are brought there as by
// write_plan. Returns warnings.
Result<std::vector<std::string>> write_training_step(const TrainingStep& step,
                                                     const std::string& path,
                                                     const std::string& model_folder);

// What it writes, in memory. Errors start with `where`.
Result<std::string> training_step_bytes(const TrainingStep& step, const std::string& where);
// As import_model_bytes() of what it writes, which is neither written nor checked; without SHA-256.
Result<ImportedModel> import_training_step(const TrainingStep& step, const std::string& path,
                                           const ImportOptions& options);
// Its metadata_props["autopar.training"], one line of JSON: optimizer and its numbers, precision,
// loss, what the inputs are, and under "asked" what else was chosen.
std::string training_json(const TrainingStep& step);
// What was chosen, read back from that. Errors start with `where`.
Result<TrainingOptions> read_training(const std::string& text, const std::string& where);

// The unsharded graph as an ONNX file. External data is not moved.
Status write_graph_onnx(const Graph& graph, const std::string& path);

}  // namespace autopar
