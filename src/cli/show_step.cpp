#include "cli/show_step.hpp"

#include <nlohmann/json.hpp>

#include "autopar/exec.hpp"
#include "autopar/report.hpp"
#include "cli/show_json.hpp"
#include "cli/show_program.hpp"
#include "support/counted.hpp"

namespace autopar::cli {

namespace {

constexpr std::size_t kShownActions = 24;  // of a line
constexpr std::size_t kShownRanks = 8;

std::string ranks_text(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShownRanks); ++i) {
    text += (i > 0 ? "," : "") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kShownRanks ? ",..." : "");
}

std::string line_text(const StepLine& line) {
  std::string text;
  for (std::size_t i = 0; i < std::min(line.size(), kShownActions); ++i) {
    text += (i > 0 ? " " : "") + to_text(line[i]);
  }
  if (line.size() <= kShownActions) return text;
  return text + " ... " + to_text(line.back()) + " (" + std::to_string(line.size()) + " actions)";
}

std::string values_text(const Step& step) {
  std::string text;
  for (const MicroInput& input : step.micro_inputs) {
    text += (text.empty() ? "" : ", ") + input.name + " (dimension " +
            std::to_string(input.dimension) + ")";
  }
  text = "cut into micro-batches: " + (text.empty() ? "nothing" : text) + "\noutputs:";
  for (const StepOutput& output : step.outputs)
    text += " " + output.name + " (" + to_text(output) + ")";
  return text + (step.outputs.empty() ? " next values only\n" : " and next values\n");
}

}  // namespace

Result<std::string> show_step(const Step& step, const std::vector<PlanFile>& files, bool all_ops) {
  std::string text = "step of " + counted(step.programs.size(), "program") + " for " +
                     counted(step.world_size, "rank") + ", " +
                     counted(step.micro_batches, "micro-batch", "micro-batches") +
                     (step.copies > 1 ? " of " + std::to_string(step.copies) + " copies" : "") +
                     (step.reference == StepReference::kPasses
                          ? ", whose passes are not those of the whole batch\n"
                          : "\n") +
                     values_text(step) + "\n";
  TextTable programs{{{"program", "chunk", "phase", "ranks", "mesh", "ops"}},
                     {false, true, false, false, false, true}};
  for (std::size_t p = 0; p < files.size(); ++p) {
    const StepProgram& program = step.programs[p];
    programs.rows.push_back({program.file, std::to_string(program.chunk), name_of(program.phase),
                             ranks_text(program.ranks), to_text(files[p].plan.mesh),
                             std::to_string(files[p].plan.program.ops.size())});
  }
  TextTable lines{{{"ranks", "actions"}}, {}};
  for (const StepLine& line : step.lines) {
    if (line.empty()) continue;
    lines.rows.push_back({ranks_text(program_of(step, line[0])->ranks), line_text(line)});
  }
  text += to_text(programs) + "\n" + to_text(lines);
  for (std::size_t p = 0; p < files.size(); ++p) {
    AUTOPAR_TRY(program, show_program(files[p], all_ops));
    text += "\n" + step.programs[p].file + ": " + program;
  }
  return text;
}

Result<std::string> show_step_json(const Step& step, const std::vector<PlanFile>& files) {
  nlohmann::ordered_json j = {{"format", "autopar-step-summary"},
                              {"version", 1},
                              {"world_size", step.world_size},
                              {"micro_batches", step.micro_batches},
                              {"copies", step.copies}};
  j["micro_inputs"] = nlohmann::ordered_json::object();
  for (const MicroInput& input : step.micro_inputs) j["micro_inputs"][input.name] = input.dimension;
  j["outputs"] = nlohmann::ordered_json::object();
  for (const StepOutput& output : step.outputs) j["outputs"][output.name] = to_text(output);
  j["reference"] = step.reference == StepReference::kPasses ? "passes" : "whole";
  j["lines"] = nlohmann::ordered_json::array();
  for (const StepLine& line : step.lines) {
    nlohmann::ordered_json actions = nlohmann::ordered_json::array();
    for (const StepAction& action : line) actions.push_back(to_text(action));
    j["lines"].push_back(std::move(actions));
  }
  j["programs"] = nlohmann::ordered_json::array();
  for (std::size_t p = 0; p < files.size(); ++p) {
    AUTOPAR_TRY(program, program_json(files[p]));
    nlohmann::ordered_json entry = {{"file", step.programs[p].file},
                                    {"chunk", step.programs[p].chunk},
                                    {"phase", name_of(step.programs[p].phase)}};
    entry.update(program);
    j["programs"].push_back(std::move(entry));
  }
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

RunRequest request_of_values(const Step& step, const std::vector<PlanFile>& files) {
  RunRequest request;
  for (const PlanFile& file : files) {
    RunProgram& program = request.programs.emplace_back();
    program.path = file.path;
    program.mesh = file.plan.mesh;
    program.inputs = file.plan.inputs;
    program.outputs = file.plan.outputs;
    program.ranks = file.ranks;
  }
  request.step = step;
  return request;
}

Status check_values(const Step& step, const std::vector<PlanFile>& files) {
  return verify_request(request_of_values(step, files));
}

}  // namespace autopar::cli
