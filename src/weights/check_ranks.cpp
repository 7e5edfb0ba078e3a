// Whether the folders of the ranks hold the program that was proven, and weights that fit it.
#include <sys/stat.h>

#include <filesystem>
#include <set>
#include <utility>

#include "autopar/program_bytes.hpp"
#include "autopar/rank_plans.hpp"
#include "weights/safetensors.hpp"
#include "weights/tensors.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChangedFolder =
    "; the folder was changed after the plan was written, or is of another plan: write the plan "
    "anew (search, apply), or its folders (reshard-weights)";

// Every external initializer stands in the file where the program reads it.
Status check_weights(const PlanFile& plan, const std::string& path) {
  AUTOPAR_TRY(file, read_safetensors(path));
  std::map<std::string, const SafetensorsEntry*> entries;
  for (const SafetensorsEntry& entry : file.entries) entries[entry.name] = &entry;
  for (const Value& value : plan.plan.program.values) {
    const auto* external = std::get_if<ExternalData>(&value.data);
    if (external == nullptr) continue;
    const auto found = entries.find(value.name);
    if (found == entries.end()) {
      return input_error(path + ": has no weight '" + value.name + "', which the plan reads" +
                         kChangedFolder);
    }
    const SafetensorsEntry& entry = *found->second;
    const bool fits = entry.dtype == value.dtype && entry.shape == value.shape &&
                      entry.offset == external->offset;
    if (fits) continue;
    return input_error(path + ": weight '" + value.name + "': expected " + name_of(value.dtype) +
                       to_text(value.shape) + " at byte " + std::to_string(external->offset) +
                       ", found " + name_of(entry.dtype) + to_text(entry.shape) + " at byte " +
                       std::to_string(entry.offset) + kChangedFolder);
  }
  return Ok{};
}

}  // namespace

Status check_rank_plans(const PlanFile& plan, const std::string& plan_path,
                        const std::vector<std::int64_t>& ranks) {
  std::set<std::pair<dev_t, ino_t>> known;  // hard links are one file
  for (const std::int64_t rank : ranks) {
    const std::string path = rank_plan_path(plan, plan_path, rank);
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      return input_error(path + ": is not there, but rank " + std::to_string(rank) + " runs it" +
                         kChangedFolder);
    }
    if (known.insert({status.st_dev, status.st_ino}).second) {
      AUTOPAR_TRY(difference, difference_of_programs(path, plan_path));
      if (!difference.empty()) {
        return input_error(path + ": is not the program of " + plan_path + ": " + difference +
                           kChangedFolder);
      }
    }
    const std::string weights = (fs::path(path).parent_path() / kWeightsFile).string();
    AUTOPAR_RETURN_IF_ERROR(check_weights(plan, weights));
  }
  return Ok{};
}

}  // namespace autopar
