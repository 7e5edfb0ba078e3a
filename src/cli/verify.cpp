// autopar verify: the proofs of a plan without running it.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/rank_plans.hpp"
#include "autopar/report.hpp"
#include "autopar/sha256.hpp"
#include "cli/command.hpp"
#include "cli/model_path.hpp"
#include "cli/run_step.hpp"
#include "cli/show_program.hpp"
#include "cli/show_step.hpp"
#include "cli/weights_from.hpp"
#include "planning/logging.hpp"
#include "support/counted.hpp"
#include "weights/step_weights.hpp"
#include "weights/stores.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

enum class Verdict { kProven, kAbsent, kWrong };

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kProven:
      return "ok";
    case Verdict::kAbsent:
      return "absent";
    case Verdict::kWrong:
      return "wrong";
  }
  return "?";
}

struct Check {
  std::string name;
  Verdict verdict = Verdict::kProven;
  std::string what;
};

// What read_programs has checked of one file, in numbers.
Result<std::vector<Check>> checks_of(const PlanFile& file, const std::string& prefix) {
  const Plan& plan = file.plan;
  AUTOPAR_TRY(collectives, collectives_of(plan));
  std::vector<const std::vector<std::int64_t>*> lists;
  for (const ProgramCollective& c : collectives) {
    const std::vector<std::int64_t>& list = c.groups;
    const bool known =
        std::any_of(lists.begin(), lists.end(), [&](const auto* other) { return *other == list; });
    if (!known) lists.push_back(&list);
  }
  const std::string origin = file.by_hand ? "imported and completed" : "ONNX's checker passed";
  return std::vector<Check>{
      {prefix + "program", Verdict::kProven,
       file.path + ": " + counted(plan.program.ops.size(), "op", "ops") + ", " + origin +
           ", shapes inferred"},
      {prefix + "groups", Verdict::kProven,
       counted(collectives.size(), "collective", "collectives") + " over " +
           counted(lists.size(), "list", "lists") + " of groups, every rank in one group of each"},
      {prefix + "boundary", Verdict::kProven,
       counted(plan.inputs.size(), "input", "inputs") + " and " +
           counted(plan.outputs.size(), "output", "outputs") + " have the shapes of their layouts"},
  };
}

// A file that the plan names by its hash.
Check hash_check(const std::string& name, const Result<std::string>& bytes, const std::string& path,
                 const std::string& sha256) {
  if (!bytes) return {name, Verdict::kAbsent, path + " is not there"};
  if (sha256.empty()) return {name, Verdict::kAbsent, "the plan does not say which it was made of"};
  if (sha256_hex(*bytes) == sha256)
    return {name, Verdict::kProven, path + ": the hash is the plan's"};
  return {name, Verdict::kWrong,
          path +
              ": is not what the plan was made of (SHA-256 differs); make the plan again by "
              "autopar apply, or bring back the file"};
}

Check strategy_check(const PlanFile& file) {
  const std::string path = (fs::path(file.path).parent_path() / "strategy.json").string();
  const Result<std::string> bytes =
      fs::exists(path) ? read_file(path) : Result<std::string>(input_error("is not there"));
  return hash_check("strategy.json", bytes, path, file.metadata.strategy_sha256);
}

Check model_check(const PlanFile& file, const std::string& given) {
  const auto path = model_path_of_plan(given, file.path);
  if (!path) return {"model", Verdict::kAbsent, path.error().message};
  const auto missing = given.empty() ? Verdict::kAbsent : Verdict::kWrong;
  if (!fs::exists(*path)) return {"model", missing, *path + " is not there"};
  return hash_check("model", read_file(*path), *path, file.metadata.model_sha256);
}

Check rank_check(const PlanFile& file, const std::string& prefix) {
  const Status checked = check_rank_plans(file, file.path, file.ranks);
  if (!checked) return {prefix + "ranks", Verdict::kWrong, checked.error().message};
  return {prefix + "ranks", Verdict::kProven,
          counted(file.world_size, "folder", "folders") +
              " with this program, and weights as long as it reads them"};
}

// Of a step of one program, whose weights and states are inputs.
Check rank_weights_check(const PlanFile& file) {
  const std::string folder = fs::path(file.path).parent_path().string();
  std::optional<FolderPlan> held;
  std::vector<std::string> unknown;
  const auto stored = stored_in(folder.empty() ? "." : folder, held, unknown);
  if (!stored) return {"weights", Verdict::kWrong, stored.error().message};
  if (!unknown.empty()) return {"weights", Verdict::kWrong, unknown.front()};
  return {
      "weights", Verdict::kProven,
      "slices of " + counted(stored->size(), "value", "values") + ", as the program reads them"};
}

// What stands beside the programs.
void check_origin(const PlanFile& first, const std::string& model, std::vector<Check>& checks) {
  checks.push_back(strategy_check(first));
  checks.push_back(model_check(first, model));
}

// Of a step: each rank's file of its weights, where there are such or the programs need them.
std::optional<Check> rank_files_check(const Step& step, const std::vector<PlanFile>& files,
                                      const std::string& folder) {
  std::vector<const Plan*> plans;
  for (const PlanFile& file : files) plans.push_back(&file.plan);
  const auto layout = step_layout(step, plans, files.front().metadata, files.front().path);
  if (!layout) return Check{"ranks", Verdict::kWrong, layout.error().message};
  const bool may_lack = layout->not_trained().empty() || are_made_up(files.front(), folder);
  if (!has_rank_files(folder) && may_lack) return std::nullopt;
  const auto stored = stored_in_step(*layout, folder);
  if (!stored) return Check{"ranks", Verdict::kWrong, stored.error().message};
  return Check{"ranks", Verdict::kProven,
               counted(step.world_size, "file", "files") + " with slices of " +
                   counted(stored->size(), "value", "values") + ", as the programs read them"};
}

// A step of several programs: each, and then what passes between them.
Result<std::vector<Check>> step_checks(const std::string& folder, const std::string& model,
                                       const std::map<std::string, std::int64_t>& dims) {
  const auto step = read_step(folder);
  if (!step) return std::vector<Check>{{"step", Verdict::kWrong, step.error().message}};
  const auto files = read_step_programs(folder, *step, dims);
  if (!files) return std::vector<Check>{{"programs", Verdict::kWrong, files.error().message}};
  tell_of_programs(*files);
  std::vector<Check> checks;
  std::size_t actions = 0;
  for (const StepLine& line : step->lines) actions += line.size();
  checks.push_back({"schedule", Verdict::kProven,
                    counted(actions, "action", "actions") + " of " +
                        counted(step->lines.size(), "set of ranks", "sets of ranks") +
                        ", each once, for " +
                        counted(step->micro_batches, "micro-batch", "micro-batches")});
  for (std::size_t p = 0; p < files->size(); ++p) {
    const StepProgram& program = step->programs[p];
    const std::string prefix = std::to_string(program.chunk) + name_of(program.phase) + " ";
    AUTOPAR_TRY(of_file, checks_of((*files)[p], prefix));
    checks.insert(checks.end(), of_file.begin(), of_file.end());
    if ((*files)[p].metadata.sharded()) checks.push_back(rank_check((*files)[p], prefix));
    for (const std::string& warning : (*files)[p].warnings) logging::warn("warning: {}", warning);
  }
  const Status values = check_values(*step, *files);
  checks.push_back({"values", values ? Verdict::kProven : Verdict::kWrong,
                    values ? "every value that a program reads is given or made before it is read"
                           : values.error().message});
  const auto ranks = rank_files_check(*step, *files, folder);
  if (ranks) checks.push_back(*ranks);
  const std::string whole = model.empty() ? whole_step_in(folder, files->front()) : model;
  check_origin(files->front(), whole, checks);
  return checks;
}

// Everything that can be said; the first that is wrong ends it only where nothing can be read.
Result<std::vector<Check>> all_checks(const std::string& path, const std::string& model,
                                      const std::map<std::string, std::int64_t>& dims) {
  if (const std::string folder = step_folder_of(path); !folder.empty()) {
    return step_checks(folder, model, dims);
  }
  const auto files = read_programs(path, dims);
  if (!files) return std::vector<Check>{{"programs", Verdict::kWrong, files.error().message}};
  tell_of_programs(*files);
  std::vector<Check> checks;
  for (std::size_t f = 0; f < files->size(); ++f) {
    const std::string prefix = files->size() > 1 ? "stage " + std::to_string(f) + " " : "";
    AUTOPAR_TRY(of_file, checks_of((*files)[f], prefix));
    checks.insert(checks.end(), of_file.begin(), of_file.end());
    const PlanFile& file = (*files)[f];
    if (file.metadata.sharded()) {
      checks.push_back(rank_check(file, prefix));
      if (!file.metadata.training.empty()) checks.push_back(rank_weights_check(file));
    }
    for (const std::string& warning : (*files)[f].warnings) logging::warn("warning: {}", warning);
  }
  const PlanFile& first = files->front();
  checks.push_back({"order", Verdict::kProven,
                    counted(first.world_size, "rank issues", "ranks issue") +
                        " matching collectives in one order, none waits for itself in a circle"});
  check_origin(first, model, checks);
  return checks;
}

std::string json_of(const std::string& path, const std::vector<Check>& checks, bool passed) {
  nlohmann::ordered_json json = {{"format", "autopar-verification"},
                                 {"version", 1},
                                 {"path", path},
                                 {"passed", passed},
                                 {"checks", nlohmann::ordered_json::array()}};
  for (const Check& check : checks) {
    json["checks"].push_back(
        {{"name", check.name}, {"state", name_of(check.verdict)}, {"what", check.what}});
  }
  return json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

struct VerifyOptions {
  std::string plan;
  std::string model;
};

Result<int> verify_plan(const VerifyOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  if (!fs::exists(options.plan)) return input_error(options.plan + ": no such file or folder");
  AUTOPAR_TRY(checks, all_checks(options.plan, options.model, dims));
  const auto wrong = std::find_if(checks.begin(), checks.end(),
                                  [](const Check& c) { return c.verdict == Verdict::kWrong; });
  const bool passed = wrong == checks.end();
  if (common.json) {
    std::cout << json_of(options.plan, checks, passed);
  } else {
    TextTable table{{{"check", "", "what"}}, {false, false, false}};
    for (const Check& check : checks) {
      table.rows.push_back({check.name, name_of(check.verdict), check.what});
    }
    if (!common.quiet) std::cout << to_text(table) << "\n";
    std::cout << (passed ? "PASSED" : "FAILED") << "\n";
  }
  std::cout.flush();
  if (!passed) return input_error(wrong->what);
  return 0;
}

}  // namespace

Run add_verify(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<VerifyOptions>();
  app.add_option(
         "PLAN", options->plan,
         "a plan, a step or a program with collectives: folder, plan.onnx, step.json, model, or "
         "list of ranks' files")
      ->required();
  app.add_option("--model", options->model, "the unsharded model (default: as the report says)")
      ->type_name("FILE")
      ->group(group::kReading);
  return [options, &common] { return verify_plan(*options, common); };
}

}  // namespace autopar::cli
