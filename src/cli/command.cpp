#include "cli/command.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/fit.hpp"

namespace autopar::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"search", "find a plan for a model on a cluster",
       kJson | kDims | kMesh | kMemory | kThreads | kStages, add_search},
      {"apply", "write the plan of a given strategy, complete or partial",
       kJson | kDims | kMesh | kMemory | kThreads, add_apply},
      {"grad", "the training step of a forward graph: loss, backward pass and update",
       kJson | kDims, add_grad},
      {"price", "what a strategy costs, term by term", kJson | kDims | kMesh | kMemory | kThreads,
       add_price},
      {"run", "execute a plan on all its ranks and compare with the unsharded model",
       kJson | kDims | kSeed | kThreads, add_run},
      {"verify", "the proofs of a plan, without running it", kJson | kDims, add_verify},
      {"export", "write a plan in the words of another runtime", kJson | kDims, add_export},
      {"calibrate", "time the machine at hand and write its cluster file", kJson | kDims | kThreads,
       add_calibrate},
      {"fit", "fit a profile to the measured times of plans", kJson | kDims, add_fit},
      {"merge", "put the ranks' weights together in one file", kJson, add_merge},
      {"reshard-weights", "the weights of one plan, or a whole model, as another plan wants them",
       kJson, add_reshard_weights},
      {"show", "a readable picture of a model, cluster, strategy, plan or report", kJson | kDims,
       add_show},
      {"solve", "solve a bare search problem (IOPDDL JSON)", kJson | kThreads | kStages, add_solve},
      {"doctor", "what this program and this machine have, and what is then not possible", kJson,
       add_doctor},
      {"manual", "the whole manual, as a man page or as Markdown", 0, add_manual},
  };
  return table;
}

Status refuse_options(const CLI::App& app, const std::vector<std::string>& names,
                      const std::string& because) {
  for (const std::string& name : names) {
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option != nullptr && option->count() > 0) return usage_error(name + " " + because);
  }
  return Ok{};
}

CLI::Validator duration() {
  return {[](std::string& text) -> std::string {
            const auto seconds = parse_duration(text);
            if (!seconds) return seconds.error().message;
            char number[40];
            std::snprintf(number, sizeof number, "%.17g", *seconds);
            text = number;
            return "";
          },
          ""};
}

}  // namespace autopar::cli
