// What search and apply leave behind: strategy.json, plan.onnx, report.json, and the table.
#pragma once

#include <set>

#include "autopar/step.hpp"
#include "cli/command.hpp"
#include "planning/inputs.hpp"
#include "planning/phase_clock.hpp"

namespace autopar::cli {

// Where files go, what is written beside plan.onnx, what the table has.
void add_output_options(CLI::App& app, PlanOptions& options);

// --weights.
void add_weights_option(CLI::App& app, PlanOptions& options);

// The model's external data lies beside the plan under the names that the model says: none of them
// may be that of a file which is written there.
Status check_data_names(const Graph& graph, const PlanOptions& options);

// Where the model lies, as seen from the folder of its plan.
std::string path_from_folder(const PlanOptions& options);

// Of the options that only a plan of one program can be written with the first that is asked for;
// null: none is.
const char* option_of_one_program(const PlanOptions& options);
inline constexpr const char* kOneProgram =
    " goes with a plan of one program, which a step of several micro-batches is not";

// What strategy.json says of what a plan was made of; who searched it and what it costs are still
// to be said.
StrategyOrigin origin_of(const Inputs& inputs, const std::string& model_name);

// What a step of several passes tells, and how that becomes one: the loss; of a model that is not
// trained its outputs.
std::vector<StepOutput> outputs_of_step(const Inputs& inputs);
// Without an optimizer the update tells the gradients: its outputs but the loss, next values and
// what it hands to other programs.
void add_told(const Graph& update, const std::string& loss, const std::set<std::string>& handed,
              Step& step);

// Of a step in one pass: three times the forward contractions, once forward, twice backward.
TrainingWork training_work(const ForwardWork& forward, const Cluster& cluster);

// Writes all three files and prints table or JSON. Where one of them cannot be written, none is,
// and an earlier plan in the folder stays as it was.
Status write_outputs(const SearchRequest& request, const SearchOutcome& outcome,
                     const Inputs& inputs, const PlanOptions& options, const CommonOptions& common,
                     PhaseClock clock);

}  // namespace autopar::cli
