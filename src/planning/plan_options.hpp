// What a plan is asked for with: the options of search, apply and price as values.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "planning/common_options.hpp"
#include "planning/training_choice.hpp"

namespace autopar {

struct PlanOptions {
  std::string model;
  std::string cluster;
  std::string profile;  // empty: what the cluster says
  std::string output_folder;
  std::string searcher = "dp";
  std::string cost_model = "roofline";
  std::string pin_file;
  std::string strategy_file;
  std::string rules_file;
  std::string dump_file;
  std::string timeline_file;
  std::string fill = "data_parallel";
  bool propagate_exact = false;
  std::string inputs = "free";
  std::string outputs = "free";
  std::string updates = kNextPattern;
  std::string io = "local";
  std::string weights = "referenced";
  std::string recompute = "auto";
  std::string moving = "auto";
  std::string gradient_bucket;
  std::string zero = "auto";
  bool phases_apart = false;        // as of SearchRequest
  int max_axes = 0;                 // 0: the default of the searcher
  std::vector<std::string> meshes;  // that are tried where none is given; empty: by max_axes
  // That are tried beside those, and are not, unless one is given.
  std::vector<std::string> more_meshes;
  std::set<std::string> left_out_meshes;
  double effort = 1;  // of what a search spends by default
  std::string gap;
  Seconds time_limit = kInfinity;
  std::size_t rows = 8;
  std::vector<std::string> dialects;
  bool fallback_functions = false;
  bool annotate = false;
  bool train = false;  // the model is a forward graph, and what is planned is its training step
  std::string stages = "1";  // of a pipeline
  // Whether it is planned in passes, one for each micro-batch, though it is no training step.
  bool runs_in_passes() const {
    return !train && (training.micro_batches != "1" || training.options.update_apart);
  }
  std::string chunks;  // per stage; empty: as many as the schedule has
  std::string schedule = "1f1b";
  std::string cuts;  // ops that chunks but the first begin with; empty: where the work is balanced
  TrainingChoice training;
};
// Where files go: -o, or "<model stem>.autopar" in the working folder.
std::string output_folder(const PlanOptions& options);

// The training step that --train makes, in the folder of its plan.
inline constexpr const char* kTrainingFile = "train.onnx";

// From now on the model is the training step that is written into the folder of its plan.
void name_training_step(PlanOptions& options);

}  // namespace autopar
