#include "cli/model_path.hpp"

#include <filesystem>

#include "autopar/file_facts.hpp"
#include "autopar/files.hpp"
#include "autopar/sha256.hpp"
#include "json/parse.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

Result<std::string> model_path_of_plan(const std::string& given, const std::string& plan) {
  std::string path = given;
  if (path.empty()) {
    const fs::path folder = fs::path(plan).parent_path();
    const std::string report = (folder / "report.json").string();
    if (!fs::exists(report)) {
      return input_error(plan + ": which model it was made of is not known since " + report +
                         " is missing; say --model FILE");
    }
    AUTOPAR_TRY(text, read_file(report));
    AUTOPAR_TRY(document, parse_json(text, report));
    if (!document.is_object() || document["format"] != "autopar-report" ||
        document["version"] != 1) {
      return input_error(report +
                         ": is no report of version 1, so which model the plan was made of is not "
                         "known; say --model FILE");
    }
    const auto pointer = nlohmann::json::json_pointer("/model/path");
    if (!document.contains(pointer) || !document[pointer].is_string()) {
      return input_error(report + ": no model.path; say --model FILE");
    }
    path = (folder / document[pointer].get<std::string>()).lexically_normal().string();
  }
  return path;
}

Status check_model_sha256(const std::string& path, const std::string& found,
                          const std::string& expected) {
  if (expected.empty() || found == expected) return Ok{};
  return input_error(path +
                     ": not the model that the plan was made of (SHA-256 differs); make the plan "
                     "again, or give the file as it was then (--model FILE)");
}

Result<std::string> model_of_plan(const std::string& given, const std::string& plan,
                                  const std::string& sha256) {
  AUTOPAR_TRY(path, model_path_of_plan(given, plan));
  AUTOPAR_TRY(found, sha256_of_file(path));
  AUTOPAR_RETURN_IF_ERROR(check_model_sha256(path, found, sha256));
  return std::move(path);
}

}  // namespace autopar::cli
