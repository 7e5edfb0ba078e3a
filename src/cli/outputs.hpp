// What search and apply leave behind: strategy.json, plan.onnx, report.json, and the table.
#pragma once

#include <chrono>

#include "cli/inputs.hpp"

namespace autopar::cli {

// Where files go, what is written beside plan.onnx, what the table has.
void add_output_options(CLI::App& app, PlanOptions& options);

// The training step that --train makes, in the folder of its plan.
inline constexpr const char* kTrainingFile = "train.onnx";

// Where files go: -o, or "<model stem>.autopar" in the working folder.
std::string output_folder(const PlanOptions& options);

// From now on the model is the training step that is written into the folder of its plan.
void name_training_step(PlanOptions& options);

// --weights.
void add_weights_option(CLI::App& app, PlanOptions& options);

// Wall time by phase, in their order. `search`'s own are those of its meshes.
class PhaseClock {
 public:
  void end(const std::string& phase);
  void end_search(const SearchOutcome& outcome);
  const std::vector<std::pair<std::string, Seconds>>& phases() const { return phases_; }

 private:
  Seconds lap();
  void add(const std::string& phase, Seconds seconds);
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, Seconds>> phases_;
};

// The model's external data lies beside the plan under the names that the model says: none of them
// may be that of a file which is written there.
Status check_data_names(const Graph& graph, const PlanOptions& options);

// Of a step in one pass: three times the forward contractions, once forward, twice backward.
TrainingWork training_work(const ForwardWork& forward, const Cluster& cluster);

// Writes all three files and prints table or JSON. Where one of them cannot be written, none is,
// and an earlier plan in the folder stays as it was.
Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common,
                     PhaseClock clock);

}  // namespace autopar::cli
