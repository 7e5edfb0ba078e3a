// What search, apply and price read before they start.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/recompute.hpp"
#include "autopar/report.hpp"
#include "planning/plan_options.hpp"

namespace autopar {

// By the names of the ops.
using KernelsByOp = std::map<std::string, OpKernel>;

// The model cannot be had with the whole batch.
inline constexpr const char* kNoWholeBatch = "the whole batch";

// Everything that a search request refers to; lives as long as the request.
struct Inputs {
  ImportedModel model;
  Cluster cluster;
  std::string cluster_sha256;
  std::string profile_sha256;  // of the file that has it; empty: ideal
  UserRules user_rules;
  GraphRules rules;
  std::vector<std::string> warnings;
  RecomputeLevels recompute;                     // how `model.graph` differs from what was imported
  std::vector<std::string> recompute_from = {};  // names of the ops that its levels begin with
  std::size_t repeated_ops = 0;
  std::vector<std::string> checkpoints = {};  // as recompute() takes them
  std::map<std::string, std::string> op_of_repeat = {}, value_of_repeat = {};
  std::set<std::string> repeated_by_name = {};  // where a file says of each op whether it is
  Bytes gradient_bucket = 0;                    // as partition() takes it
  Bytes memory_limit = 0;                       // per device, as given; 0: the cluster's
  std::string data_folder;                      // where the model's external data lies
  ForwardWork forward;                          // of the model that --train trains
  // With --train: train.onnx, the step on the whole batch. It is what is planned, but for a step of
  // several passes.
  std::string training_bytes;
  bool has_whole_step = false;  // training_bytes are of that, not of one pass
  std::string training;         // what it is made of: see training_json()
  std::int64_t batch = 0;
  PlannedBatch planned_batch = {};    // of a model that is planned as it is, where one is asked for
  std::vector<PlanTrial> tried = {};  // where several numbers of passes, or recomputations, were
  // Of several passes: why they are not a pass over the whole batch, "op 'NAME'" or kNoWholeBatch.
  std::string mixing_op = {};
  std::vector<MicroInput> micro_inputs = {};  // of several passes: what is cut, and where
  // Of several passes of a model that is not trained: how its outputs become those of the batch.
  std::vector<StepOutput> outputs = {};
  LossCombining loss_combining = LossCombining::kMean;
  std::string loss;
  // How the step runs of which `model.graph` is a part. Kernels at the ends of the part have
  // ops of others there, and are taken to cost no more here than they do there. Null: that counts
  // for nothing.
  std::shared_ptr<const KernelsByOp> kernels_of_step = {};
};
// With -v: what a strategy file says, and what came of a model's file.
void tell_of_strategy(const StrategyFile& file);
void tell_of_import(const ImportedModel& model);
// Errors (kUsage): options that do not go together. (kInput): a file that cannot be read, a model
// with collectives, what import_model(), rules or a profile refuse.
Result<std::unique_ptr<Inputs>> load_inputs(const PlanOptions& options,
                                            const CommonOptions& common);

// What a strategy file says of checkpoints. Errors (kInput): a pattern that no value of the model
// has.
Status take_checkpoints(const StrategyFile& file, Inputs& inputs);

// Repeats ops of the model, which was imported as it is. False where that gains nothing. Errors
// (kInput): rules of the user that do not fit what is repeated.
Result<bool> repeat_ops(Inputs& inputs, const RecomputeLevels& levels);

// The same of a unit of a chunk, as recompute_unit() has it.
Result<bool> repeat_ops_of_unit(Inputs& inputs, Recompute level);

// Levels by the names of the ops that they begin with; the first begins with the first op, whose
// name may be left empty.
using NamedLevels = std::vector<std::pair<std::string, Recompute>>;
std::string to_text(const NamedLevels& levels);  // "full, cheap from fc3"
// Errors (kInput): the graph has no forward op of a name, or not in that order, or the first is
// another one.
Result<RecomputeLevels> levels_in(const Graph& graph, const NamedLevels& levels);
NamedLevels levels_of(const Inputs& inputs);  // of what was repeated
// The same in a strategy file, with the ops that are repeated.
void take_recompute(const Inputs& inputs, StrategyOrigin& origin);
// Whether a strategy file names the ops that are repeated, or where another level begins, in place
// of one level.
bool repeats_by_name(const StrategyFile& file);
// Repeats those of the model. Errors (kInput): ops that cannot be repeated, or, unless the model is
// a part of that of the file, that it does not have.
Status repeat_named_ops(const StrategyFile& file, bool is_part, Inputs& inputs);
// Whether the ops of the model are repeated, or not, as the file says of them.
Status check_repeated(const StrategyFile& file, const Inputs& inputs);
// The ops that the backward pass repeats, or, by name, makes in place of the forward pass.
std::set<std::string> repeated_ops_of(const Inputs& inputs);
// --recompute, or what the strategy file says where that is not said (nothing: auto; none also
// where it names ops).
Result<std::optional<Recompute>> parse_recompute_option(const std::string& option,
                                                        const StrategyFile* file);

// The request without pins. Errors (kUsage): sizes, meshes, layouts and gaps that are none, names
// that the model does not have, --io full beside --inputs or --outputs.
Result<SearchRequest> make_request(const Inputs& inputs, const PlanOptions& options,
                                   const CommonOptions& common);
// To the meshes that the request tries by itself it adds those of the options, and leaves out what
// they say. Errors: none is left (kInput).
Status set_meshes(const PlanOptions& options, SearchRequest& request);

// Where the file does not say what is data: what a step hands to the next one along the batch is,
// such as caches.
void mark_carried_data(ImportedModel& model, const GraphRules& rules, const std::string& updates);
// Finds the kernels of the model as it is now; what the rules say of classes follows.
// Other cost models than the roofline know of none but those of a profile.
void find_kernels(Inputs& inputs, const PlanOptions& options);

}  // namespace autopar
