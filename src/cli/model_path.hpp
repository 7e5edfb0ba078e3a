// Where the model is that a plan was made of.
#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar::cli {

// `given`, or where report.json beside the plan says it is.
Result<std::string> model_path_of_plan(const std::string& given, const std::string& plan);
// Error where the model is not the one that the plan was made of; `expected` may be empty.
Status check_model_sha256(const std::string& path, const std::string& found,
                          const std::string& expected);
// Both.
Result<std::string> model_of_plan(const std::string& given, const std::string& plan,
                                  const std::string& sha256);

}  // namespace autopar::cli
