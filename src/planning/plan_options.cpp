#include "planning/plan_options.hpp"

#include <filesystem>

namespace autopar {

namespace fs = std::filesystem;

std::string output_folder(const PlanOptions& options) {
  if (!options.output_folder.empty()) return options.output_folder;
  return fs::path(options.model).stem().string() + ".autopar";
}

void name_training_step(PlanOptions& options) {
  options.output_folder = output_folder(options);
  options.model = (fs::path(options.output_folder) / kTrainingFile).string();
}

}  // namespace autopar
