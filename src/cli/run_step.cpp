#include "cli/run_step.hpp"

#include <filesystem>

#include "cli/run_program.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

std::string step_folder_of(const std::string& path) {
  if (is_step_folder(path)) return path;
  const fs::path file = path;
  if (file.filename() != "step.json") return "";
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  return is_step_folder(folder) ? folder : "";
}

std::string whole_step_in(const std::string& folder, const PlanFile& program) {
  if (program.metadata.data) return "";
  const fs::path path = fs::path(folder) / "train.onnx";
  std::error_code ignored;
  return fs::exists(path, ignored) ? path.string() : "";
}

Result<StepPasses> passes_of(const std::string& folder, const Step& step,
                             const std::map<std::string, std::int64_t>& dims) {
  Step alone = step;
  alone.world_size = 1;
  alone.programs.clear();
  bool any_pass = false;
  for (const StepPhase phase :
       {StepPhase::kForward, StepPhase::kBackward, StepPhase::kForwardBackward, StepPhase::kReduce,
        StepPhase::kUpdate}) {
    const std::string name = std::string("train.") + name_of(phase) + ".onnx";
    std::error_code ignored;
    if (!fs::exists(fs::path(folder) / name, ignored)) continue;
    alone.programs.push_back({name, 0, phase, {0}});
    any_pass = any_pass || is_pass(phase);
  }
  if (!any_pass) {
    return input_error(folder +
                       "/step.json: its reference are the unsharded passes, but there is neither "
                       "train.FB.onnx nor train.F.onnx beside it; say --model FILE");
  }
  alone.lines = plain_schedule(alone.programs, alone.micro_batches);
  StepPasses passes;
  AUTOPAR_TRY(files, read_step_programs(folder, alone, dims));
  passes.files = std::move(files);
  RunRequest request;
  for (PlanFile& file : passes.files) {
    AUTOPAR_TRY(program, run_program(file, std::nullopt));
    request.programs.push_back(std::move(program));
  }
  request.step = std::move(alone);
  passes.request = std::make_shared<const RunRequest>(std::move(request));
  return passes;
}

std::vector<GraphOfStep> graphs_of(const std::vector<PlanFile>& files, const Step& step) {
  std::vector<GraphOfStep> graphs;
  for (std::size_t p = 0; p < files.size(); ++p) {
    graphs.push_back({&files[p].plan.program, is_pass(step.programs[p].phase)});
  }
  return graphs;
}

}  // namespace autopar::cli
