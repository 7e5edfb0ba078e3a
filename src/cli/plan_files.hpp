// The files of a plan's folder: programs, and what lies beside them.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "autopar/export.hpp"
#include "autopar/partition.hpp"
#include "autopar/step_file.hpp"
#include "autopar/unfinished.hpp"
#include "autopar/weights.hpp"
#include "planning/inputs.hpp"

namespace autopar::cli {

// The folder and its files stay together: where one of them cannot be written, none is, an earlier
// plan stays as it was, and the folder goes if it was made for them.
class OutputFolder {
 public:
  explicit OutputFolder(std::string path) : path_(std::move(path)) {}

  Status make() {
    const Status made = files_.make_folder(path_);
    std::error_code ignored;
    if (made && std::filesystem::is_directory(path_, ignored)) return Ok{};
    Error error =
        made ? input_error(path_ + ": cannot make this folder: it is a file") : made.error();
    error.message += "; try -o with another one";
    return error;
  }
  // Where the file is to be, and is once it is kept; `files` has it until then.
  std::string add(const std::string& name) {
    written_.push_back((std::filesystem::path(path_) / name).string());
    return written_.back();
  }
  void add(const std::vector<std::string>& names) {
    for (const std::string& name : names) add(name);
  }
  void add(const RankFolders& ranks) {
    written_.insert(written_.end(), ranks.files.begin(), ranks.files.end());
  }
  Status write(const char* name, const std::string& text) {
    return write_file(files_, add(name), text);
  }
  UnfinishedFiles& files() { return files_; }
  const std::vector<std::string>& written() const { return written_; }
  Status keep() { return files_.keep(); }

 private:
  std::string path_;
  UnfinishedFiles files_;
  std::vector<std::string> written_;
};

// What becomes of a model's plan: one program, or those of a step of several passes.
struct Programs {
  std::vector<Plan> plans;
  Step step;  // of several passes
  // What its results are compared with, where that is its passes.
  std::vector<std::pair<StepPhase, Plan>> unsharded;
};

// A graph as the program of one rank.
Plan unsharded(const Graph& graph);

// Writes train.onnx, where it is of the whole batch, and puts what it refers to beside it. Returns
// warnings.
Result<std::vector<std::string>> write_training_file(const Inputs& inputs, const Graph& step,
                                                     OutputFolder& files);

// Writes them, and step.json and schedule.csv where there are several, with --weights sharded the
// files of the ranks too. Returns warnings.
Result<std::vector<std::string>> write_programs(const Programs& programs, PlanMetadata metadata,
                                                const PlanOptions& options, const Inputs& inputs,
                                                int threads, OutputFolder& files);
// "plan.onnx", or "step.json, schedule.csv, plan.c0.FB.onnx, ..."
std::string names_of(const Programs& programs);

PlanMetadata metadata_of(const SearchRequest& request, const Inputs& inputs,
                         const std::string& strategy);

// Why results of several passes are not those of one. Precondition: Inputs::mixing_op is not empty.
std::string told_of_mixing(const Inputs& inputs);

// What was in the folder before, on stderr: a plan that is replaced, and what stays of it.
void tell_of_earlier(const std::string& folder, const std::string& earlier,
                     const std::vector<std::string>& written, const std::string& model);

}  // namespace autopar::cli
