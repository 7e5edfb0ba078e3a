#include "io/export/programs.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "autopar/file_facts.hpp"
#include "autopar/step_file.hpp"
#include "io/dialects/dialects.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

std::string stage_name(std::size_t stage) { return "plan.stage" + std::to_string(stage) + ".onnx"; }

// plan.onnx, or all stages, or the only list of ranks' files.
Result<std::vector<std::string>> files_of(const std::string& path) {
  const fs::path folder(path);
  if (!fs::is_directory(folder)) return std::vector<std::string>{path};
  if (fs::exists(folder / "plan.onnx")) {
    if (!fs::exists(folder / stage_name(0))) return std::vector<std::string>{folder / "plan.onnx"};
    return input_error(path + ": holds plan.onnx and " + stage_name(0) +
                       "; which of them is meant is not known: name the file, or remove one");
  }
  std::vector<std::string> files;
  while (fs::exists(folder / stage_name(files.size()))) {
    files.push_back(folder / stage_name(files.size()));
  }
  if (!files.empty()) return files;
  for (const char* dialect : {"trt", "ort"}) {
    const fs::path list = folder / (std::string("plan.") + dialect + ".json");
    if (fs::exists(list)) files.push_back(list);
  }
  if (files.size() == 1) return files;
  if (is_step_folder(path)) {
    return input_error(path +
                       ": holds a step of several programs (step.json), which run, show and "
                       "verify read; name one of its files to read that alone");
  }
  return input_error(path + ": holds " +
                     (files.empty()
                          ? "no plan: none of plan.onnx, step.json, " + stage_name(0) +
                                ", plan.trt.json and plan.ort.json"
                          : "plan.trt.json and plan.ort.json; name the one that is meant"));
}

Result<PlanFile> read_program(const std::string& path,
                              const std::map<std::string, std::int64_t>& dims,
                              const GivenRanks* given = nullptr) {
  if (is_json(path)) {
    if (given == nullptr) return read_rank_files(path, dims);
    return input_error(path + ": expected an ONNX file, the program of a step");
  }
  AUTOPAR_TRY(lean, read_model(path));
  const Properties properties = properties_of(lean.proto);
  const bool in_dialect = properties.count("autopar.dialect") > 0;
  if (properties.count("autopar.version") > 0 && !in_dialect) {
    return plan_of_model(lean, path, given);
  }
  if (in_dialect) AUTOPAR_RETURN_IF_ERROR(check_is_for_all_ranks(path, properties));
  lean = {};  // the import reads the file for itself
  return read_by_hand(path, dims, given);
}

Status check_worlds(const std::vector<PlanFile>& files) {
  for (const PlanFile& file : files) {
    if (file.world_size == files[0].world_size) continue;
    return input_error(file.path + ": is for a world of " + std::to_string(file.world_size) +
                       " ranks, " + files[0].path + " for one of " +
                       std::to_string(files[0].world_size));
  }
  const PlanFile& first = files[0];
  if (files.size() == 1 && static_cast<std::int64_t>(first.ranks.size()) < first.world_size) {
    return input_error(first.path + ": is the program of " + std::to_string(first.ranks.size()) +
                       " of " + std::to_string(first.world_size) +
                       " ranks; give the folder that holds all programs, " + stage_name(0) +
                       " and on");
  }
  return Ok{};
}

}  // namespace

bool speaks_dialect(const std::string& path) {
  auto lean = read_model(path);
  if (!lean) return false;
  return properties_of(lean->proto).count("autopar.dialect") > 0 ||
         foreign_collective(lean->proto).has_value();
}

std::vector<ProgramOnRanks> programs_of(const std::vector<PlanFile>& files) {
  std::vector<ProgramOnRanks> programs;
  for (const PlanFile& file : files) {
    programs.push_back({&file.plan.program, file.ranks, file.path});
  }
  return programs;
}

Result<std::vector<PlanFile>> read_programs(const std::string& path,
                                            const std::map<std::string, std::int64_t>& dims) {
  AUTOPAR_TRY(paths, files_of(path));
  std::vector<PlanFile> files;
  for (const std::string& file_path : paths) {
    AUTOPAR_TRY(file, read_program(file_path, dims));
    files.push_back(std::move(file));
  }
  AUTOPAR_RETURN_IF_ERROR(check_worlds(files));
  AUTOPAR_RETURN_IF_ERROR(prove_order(programs_of(files), files[0].world_size));
  return files;
}

namespace {

// Each program by itself: its ranks do nothing else meanwhile, and all of them run the same actions
// in the same order.
Status prove_program(const PlanFile& file) {
  for (const Op& op : file.plan.program.ops) {
    if (is_collective(op) && (op.type == "Send" || op.type == "Recv")) {
      return input_error(file.path + ": op '" + op.name + "' is a " + op.type +
                         "; programs of a step pass values by name");
    }
  }
  std::set<std::int64_t> own(file.ranks.begin(), file.ranks.end());
  std::vector<std::int64_t> others;
  for (std::int64_t rank = 0; rank < file.world_size; ++rank) {
    if (own.count(rank) == 0) others.push_back(rank);
  }
  const Graph idle;
  std::vector<ProgramOnRanks> programs = {{&file.plan.program, file.ranks, file.path}};
  if (!others.empty()) programs.push_back({&idle, others, "the other ranks"});
  if (auto proven = prove_order(programs, file.world_size); !proven) {
    return input_error(file.path + ": " + proven.error().message);
  }
  return Ok{};
}

}  // namespace

Result<std::vector<PlanFile>> read_step_programs(const std::string& folder, const Step& step,
                                                 const std::map<std::string, std::int64_t>& dims) {
  std::vector<PlanFile> files;
  for (const StepProgram& program : step.programs) {
    const std::string path = (fs::path(folder) / program.file).string();
    const GivenRanks given{program.ranks, step.world_size};
    AUTOPAR_TRY(file, read_program(path, dims, &given));
    AUTOPAR_RETURN_IF_ERROR(prove_program(file));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace autopar
