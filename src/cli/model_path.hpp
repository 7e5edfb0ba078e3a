// Where the model is that a plan was made of.
#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar::cli {

// `given`, or where report.json beside the plan says it is; checked against `sha256` unless that is
// empty.
Result<std::string> model_of_plan(const std::string& given, const std::string& plan,
                                  const std::string& sha256);

}  // namespace autopar::cli
