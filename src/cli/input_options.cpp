// Options that say what is read and how it is solved.
#include "cli/input_options.hpp"

#include <CLI/CLI.hpp>

#include "cli/command_line.hpp"
#include "planning/inputs.hpp"

namespace autopar::cli {

void add_model_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kReading);
  app.add_option("MODEL", options.model, "model.onnx or graph.json")->required();
  app.add_option("--cluster", options.cluster,
                 "cluster.json, or the name of a ready-made cluster (`autopar show clusters`)\n"
                 "The devices, their memory and speed, and the tiers of links between them.")
      ->required();
  app.add_option("--profile", options.profile,
                 "how near to its peaks the runtime comes: ideal, a profile.json, or the name of a "
                 "ready-made one (default: what the cluster says, else ideal)")
      ->type_name("NAME|FILE");
  app.add_option("--rules", options.rules_file,
                 "rules for ops that have none, or in place of theirs: OpType \"rule\"")
      ->type_name("FILE");
}

void add_layout_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kLayout);
  app.add_option("--inputs", options.inputs,
                 "layout of the inputs: free, full, data_parallel, or a file of specs")
      ->type_name("HOW|FILE");
  app.add_option("--outputs", options.outputs,
                 "layout of the outputs: free, full, data_parallel, or a file of specs")
      ->type_name("HOW|FILE");
  app.add_option("--updates", options.updates,
                 "outputs so named hold the next value of the input `*` (default new.*)")
      ->check(name_pattern())
      ->type_name("PATTERN");
  app.add_option("--io", options.io,
                 "local: ranks get and return slices (default); full: whole tensors")
      ->check(CLI::IsMember({"local", "full"}));
  app.add_option(
         "--recompute", options.recompute,
         "repeat forward ops in the backward pass to keep fewer activations (default auto)\n"
         "`cheap`: those without contractions; `products`: also products of activations, "
         "such as attention scores; `full`: whole segments of the forward pass, from checkpoints "
         "on; "
         "`auto`: `none`; where the memory limit binds a training step, whichever of these makes "
         "the fastest plan.")
      ->check(CLI::IsMember({"auto", "none", "cheap", "products", "full"}));
}

void add_solve_options(CLI::App& app, PlanOptions& options) {
  app.option_defaults()->group(group::kSearch);
  app.add_option("--max-axes", options.max_axes,
                 "mesh axes to try at most (default 3, of rec 4); on a cluster of more tiers than "
                 "that an axis spans several of them, but for rec, whose axes lie in one tier each")
      ->check(whole_number(1, 6));
  std::vector<std::string> models;
  for (const CostModelRow& row : cost_models()) models.emplace_back(row.name);
  app.add_option(
         "--cost-model", options.cost_model,
         "what prices plans (default roofline)\n"
         "`roofline`: seconds; `mindspore`: MindSpore's cost model for its dynamic programming and "
         "propagation, in bytes of computation (the mesh then has axes of prime size); "
         "`mindspore_any`: the same for strategies on any of the devices, as its propagation has "
         "them; `mindspore_all`: the same where every operator uses all devices, its option "
         "fully_use_devices; `mindspore_follow`: that with its option "
         "elementwise_op_strategy_follow too; `symbolic`: the relative costs of SAPP, for `rec`. "
         "Memory is always autopar's own account.")
      ->check(CLI::IsMember(models));
  app.add_option(
         "--gap", options.gap,
         "go on until the plan costs at most this much more than the bound, then stop: 0.5%")
      ->type_name("SHARE");
  app.add_option("--time-limit", options.time_limit,
                 "stop after this long with the best: 30s, 2m; until then the search goes on where "
                 "it would end without a proof")
      ->transform(duration())
      ->type_name("TIME");
}

Status check_mesh_options(const CLI::App& app, const CommonOptions& common) {
  if (common.mesh.empty()) return Ok{};
  return refuse_options(app, {"--max-axes"},
                        "is for meshes that the search chooses; --mesh fixes the mesh");
}

}  // namespace autopar::cli
