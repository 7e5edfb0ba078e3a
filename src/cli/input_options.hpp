// The options that say what is planned, for several commands.
#pragma once

#include "cli/command.hpp"
#include "planning/plan_options.hpp"

namespace autopar::cli {

void add_model_options(CLI::App& app, PlanOptions& options);   // model, cluster, rules
void add_layout_options(CLI::App& app, PlanOptions& options);  // inputs, outputs, updates, io
void add_solve_options(CLI::App& app, PlanOptions& options);   // gap, time limit, axes

// Refuses what says how to choose a mesh where --mesh does.
Status check_mesh_options(const CLI::App& app, const CommonOptions& common);

}  // namespace autopar::cli
