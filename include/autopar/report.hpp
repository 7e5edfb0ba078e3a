// What a person reads: tables of what was found and why, and the same as JSON.
//
//   Report report = build_report(model_facts, request, outcome, baselines);
//   std::cout << to_table(report);        // or to_json(report)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autopar/memory_parts.hpp"
#include "autopar/search.hpp"

namespace autopar {

// Bytes with a binary unit ("1.50 GiB"), seconds with a fitting one ("12.3 ms"), counts ("8.03 G").
std::string format_bytes(double bytes);
std::string format_seconds(Seconds seconds);
// A price of a cost model by name: seconds as above, other units as plain numbers ("27646").
std::string format_price(double price, const std::string& cost_model);
std::string format_count(double count);
// "41.7 %", of 0.417.
std::string format_percent(double part);

// Text columns, aligned; numbers to the right. The first row is the head.
struct TextTable {
  std::vector<std::vector<std::string>> rows;
  std::vector<bool> right_aligned;  // per column; missing: left
};
std::string to_text(const TextTable& table);
// Of a column that shall not be wider than so many characters, at least three.
std::string shortened(const std::string& text, std::size_t width);

// Another way to run the same model, for comparison.
struct Baseline {
  std::string name;
  bool found = false;  // false: no plan at all, whatever the memory
  bool fits = false;   // within the memory limit
  std::string mesh;
  Seconds seconds = 0;
  Bytes memory_bytes = 0;
};

// All collectives of one kind over the same axes.
struct CollectiveSummary {
  std::string kind;
  std::string axes;  // "nvlink" or "ib,nvlink"
  int count = 0;
  Seconds seconds = 0;
  double sent_bytes = 0;  // by one device
  Seconds exposed = 0;    // with a profile: how long compute waits for them
};

struct OpSummary {
  std::string name, type;
  std::string assignment;   // "ib:m nvlink:n"
  std::string in_strategy;  // "[[2,1],[1,4]]"
  Seconds compute = 0;
  Seconds communication = 0;  // inside the op and for what it reads
};

struct ReshardSummary {
  std::string tensor;
  std::string reader;  // op, "(hub)" or "(output)"
  std::string from, to;
  std::vector<std::string> steps;
  Seconds seconds = 0;
  double sent_bytes = 0;
};

// A plan that the search made for a number of passes and a recomputation.
struct PlanTrial {
  std::int64_t micro_batches = 1;
  std::string recompute = "none";
  Seconds cost = 0;                // 0: nothing that was looked for fits
  bool only_cheaper_ones = false;  // than the best so far were looked for
  bool moving = false;             // with parts that move during an op
  bool of_parts = false;           // made of plans of like parts, such as layers
};

std::string counts_text(const std::vector<std::vector<std::int64_t>>& counts);  // "[[2,1],[1]]"

// What a training step does in its time.
struct TrainingWork {
  double samples = 0;     // of its batch
  double tokens = 0;      // 0: not known
  Flops model_flops = 0;  // three times the contractions of the forward graph, nothing repeated
  Seconds at_peak = 0;    // that they take on all devices at the peaks of the types they are in
  std::int64_t micro_batches = 1;
  std::int64_t copies = 1;    // of the passes, interleaved
  std::string zero = "auto";  // how what is stored was asked to be
};

// Of a step that takes so long on so many devices: samples and tokens in a second and how much of
// the devices' peak the model itself uses, as a line, and as a JSON object.
std::string training_line(const TrainingWork& work, Seconds seconds, std::int64_t devices);
std::string training_json(const TrainingWork& work, Seconds seconds, std::int64_t devices);
// Back from that; throws nlohmann's exceptions.
TrainingWork training_of_json(const std::string& text);

// Everything deterministic but the times of the search itself, which are no part of a report that
// is kept: the same input gives the same file.
struct Report {
  std::string model, model_sha256;
  std::string model_path;  // as seen from the report's folder; empty: not said
  std::size_t ops = 0;
  double parameter_count = 0;
  Bytes parameter_bytes = 0;
  std::string cluster;
  std::int64_t devices = 1;
  std::string searcher;
  std::string cost_model = "roofline";
  Picked picked;
  Mesh mesh;
  Seconds seconds = 0, compute = 0, communication = 0;
  std::string profile = "ideal";
  std::optional<StepTime> step;                        // with a profile
  std::vector<std::pair<std::string, Seconds>> links;  // with it: how long each is busy, by tier
  Seconds lower_bound = 0, unlimited_lower_bound = 0;
  double gap = 0;
  bool proven = false;  // optimal over the meshes tried, under the memory limit
  bool bounded = true;  // the searcher proves a bound at all
  bool interrupted = false;
  std::size_t meshes_not_tried = 0;  // the bound says nothing about these
  std::size_t meshes_left_out = 0;   // nor about these, which are too large
  // Why the search did not go on: "proof", "gap", "effort", "time limit" or "interrupt"; empty
  // where no bound was looked for.
  std::string ended_by;
  bool bounds_own_mesh = true;  // the plan's own mesh is none of these
  MemoryPeak memory;
  std::optional<MemoryParts> memory_parts;  // of a training step
  std::string memory_op;                    // during which the peak is reached
  Bytes memory_limit = 0;                   // 0: none
  Bytes upper_memory = 0;                   // the peak, with what the runtime takes beside it
  std::string recompute = "none";
  std::size_t repeated_ops = 0;  // in the backward pass, to keep fewer activations
  std::optional<TrainingWork> training;
  std::vector<PlanTrial> tried;  // where there was more than one
  std::vector<CollectiveSummary> collectives;
  std::vector<Baseline> baselines;
  std::vector<OpSummary> op_costs;       // costliest first
  std::vector<ReshardSummary> reshards;  // costliest first
  std::vector<MeshTrial> trials;
  std::optional<Propagation> propagation;
  std::vector<std::string> warnings;
  std::vector<std::pair<std::string, Seconds>> phases;  // wall time of each; empty: not shown
};
Report build_report(const SearchRequest& request, const SearchOutcome& outcome);

// `rows`: how many of the costliest ops and reshards.
std::string to_table(const Report& report, std::size_t rows = 8);
// One document, keys in a fixed order; `rows` 0: all ops and reshards.
std::string to_json(const Report& report, std::size_t rows = 0);
// What to_json wrote. Errors name the file and what is missing.
Result<Report> report_of_json(const std::string& text, const std::string& path);

// Plans of the baselines on the best mesh of each, without a memory limit.
std::vector<Baseline> run_baselines(const SearchRequest& request, const SearchOutcome& outcome);

// Every term of a strategy's cost with its op or tensor; the last row is the total.
// In the units of the cost model by that name.
std::string terms_table(const Graph& graph, const Mesh& mesh, const StrategyCost& cost,
                        const std::string& cost_model = "roofline");
std::string terms_json(const Graph& graph, const Mesh& mesh, const StrategyCost& cost,
                       const std::string& cost_model = "roofline");

// Pictures of files.
std::string show_graph(const Graph& graph, bool all_ops);
std::string show_cluster(const Cluster& cluster);

}  // namespace autopar
