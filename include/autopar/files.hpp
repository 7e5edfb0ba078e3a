// JSON files in and out: cluster.json and strategy.json; and how files are read and written.
//
//   Result<ClusterFile> cluster = read_cluster("dgx.json");
//   Result<StrategyFile> pins = read_strategy("pins.json");           // any subset
//   Result<Strategy> strategy = complete_strategy(graph, rules, cluster->cluster, *pins);
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/search.hpp"
#include "autopar/unfinished.hpp"

namespace autopar {

// Errors name the file and the system's reason.
Result<std::string> read_file(const std::string& path);
// The file appears whole or not at all: a temporary file in the same folder, then a rename. Makes
// the folder where it is missing.
Status write_file_atomically(const std::string& path, std::string_view bytes);
// `write` gets an open file descriptor and returns 0 or an errno.
using WriteFile = std::function<int(int)>;
// For these: all bytes, or an errno.
int write_all(int file, std::string_view bytes);
Status write_file_atomically(const std::string& path, const WriteFile& write);
// The same as one of several files: it appears with the others.
Status write_file(UnfinishedFiles& files, const std::string& path, std::string_view bytes);
Status write_file(UnfinishedFiles& files, const std::string& path, const WriteFile& write);

struct ClusterFile {
  Cluster cluster;
  std::string sha256;  // of the file's bytes
};
// Errors name file and field: "dgx.json: tiers[0].size: expected a positive integer, found -1".
Result<ClusterFile> read_cluster(const std::string& path);
// The text form that read_cluster takes; for tests and `show`.
std::string cluster_to_json(const Cluster& cluster);

// Errors as above.
Result<Profile> read_profile(const std::string& path);

// The batch that a model was planned on, where --batch said one; of training steps `training` has
// it.
struct PlannedBatch {
  std::int64_t size = 0;                 // 0: the model's own
  std::size_t dim = 0;                   // of its data inputs
  std::vector<std::string> data_inputs;  // empty: as the model says
};

// A strategy.json, complete or any part of one.
struct StrategyFile {
  struct MeshAxis {
    std::string name;
    std::int64_t size = 1;
    std::string tier;  // empty: not said
    bool operator==(const MeshAxis&) const = default;
  };
  // Where plans were not priced in seconds: the price and its bound in the cost model's own unit,
  // beside the seconds that the plan takes by the roofline model, which have no bound.
  struct Price {
    std::string cost_model, unit;
    double cost = 0;
    double lower_bound = 0;
  };
  struct Cost {
    Seconds seconds = 0;
    Seconds lower_bound_seconds = 0;
    double gap = 0;  // of the price, where there is one
    Bytes memory_bytes = 0;
    std::optional<Price> price = {};
  };
  // So much is repeated from that op on, until the next of these; the first begins with the graph.
  struct LevelFrom {
    std::string op, level;
  };
  // A chunk of a pipeline: what the file says of ops and tensors holds for it, but for this.
  struct Chunk {
    std::int64_t chunk = 0;
    std::string first_op, last_op;          // forward ops of its own
    std::string recompute;                  // empty: not said
    std::vector<LevelFrom> recompute_from;  // as below
    Pins pins;
    std::map<std::string, std::string> op_types;
    std::set<std::string> absent;          // ops and tensors that others have
    std::map<std::string, bool> repeated;  // as below
  };
  // The ranks that hold some of the chunks.
  struct Stage {
    std::int64_t first_rank = 0;
    std::int64_t ranks = 1;
    std::vector<MeshAxis> mesh;
    std::vector<Chunk> chunks;
  };
  std::string path;
  std::string sha256;                           // of the file's bytes
  std::vector<MeshAxis> mesh;                   // empty: not said
  Pins pins;                                    // `ops` and `tensors`
  std::map<std::string, std::string> op_types;  // by op name, where said
  // Whether ops are repeated in the backward pass, by name, where said. Beside `recompute` they
  // only say what follows from that.
  std::map<std::string, bool> repeated;
  // Of a pipeline, by op name or a pattern of names (`*`, `?`).
  std::map<std::string, int> stage_of_ops;
  std::string model_name, model_sha256, cluster_name, cluster_sha256;
  std::string profile_name, profile_sha256;  // by which it is priced; empty: ideal
  std::string searcher;
  std::string recompute;                  // what of the graph was repeated first; empty: not said
  std::vector<LevelFrom> recompute_from;  // where that is "mixed"
  std::vector<std::string> checkpoints;   // as recompute() takes them
  Bytes gradient_bucket = 0;              // as partition() takes it
  Bytes memory_limit = 0;                 // per device, for which it was planned; 0: the cluster's
  PlannedBatch batch;
  std::optional<Cost> cost;
  std::int64_t micro_batches = 1;  // passes of a step
  bool has_passes = false;         // and an update apart from them, though there be one
  std::int64_t copies = 1;         // of them that are interleaved
  std::vector<Stage> stages;       // of a pipeline; one stage, which is all ranks, is not here
  std::string schedule;            // its name
  std::vector<std::string> schedule_lines;  // of one that came from a file: of its passes
  // Of the training step of a forward model: what it is made of, as a JSON object; empty: not said.
  std::string training;
};
Result<StrategyFile> read_strategy(const std::string& path);
// "full, cheap from layers.3/norm"
std::string to_text(const std::vector<StrategyFile::LevelFrom>& levels);
// What a file says of one chunk of a pipeline, as the file of a strategy of this chunk alone.
StrategyFile strategy_of_chunk(const StrategyFile& file, const StrategyFile::Stage& stage,
                               const StrategyFile::Chunk& chunk);

// What strategy.json says besides the strategy.
struct StrategyOrigin {
  std::string model_name, model_sha256, cluster_name, cluster_sha256;
  std::string profile_name, profile_sha256;  // empty: ideal, not written
  std::string searcher;
  std::string recompute;      // "none" is not written
  Bytes gradient_bucket = 0;  // 0 is not written
  Bytes memory_limit = 0;     // per device, where one was given; 0 is not written
  PlannedBatch batch = {};    // written where it has a size
  StrategyFile::Cost cost;
  std::string training = {};  // what a step is made of, a JSON object; empty: not written
  std::vector<std::string> checkpoints = {};                 // empty: not written
  std::set<std::string> repeated = {};                       // ops that the backward pass repeats
  std::vector<StrategyFile::LevelFrom> recompute_from = {};  // where that is "mixed"
};
// FORMATS' strategy.json: fixed key order, an op or tensor per line. Precondition: the strategy is
// verified.
std::string strategy_to_json(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const Cluster& cluster, const StrategyOrigin& origin);

// The mesh of a file, with its axis names; nothing where the file does not say. Errors: sizes that
// do not fit the cluster, a tier that differs.
Result<std::optional<Mesh>> mesh_of(const StrategyFile& file, const Cluster& cluster);
// Whether a file has a mesh and says everything about every op and value of a graph.
bool is_complete(const Graph& graph, const StrategyFile& file);
// Reads strategy_to_json() back: the same strategy exactly. Errors name op, axis and factor, or
// tensor and spec, and say what is missing.
Result<Strategy> complete_strategy(const Graph& graph, const GraphRules& rules,
                                   const Cluster& cluster, const StrategyFile& file);

}  // namespace autopar
