// The environment variables of this program, for its manual and for doctor.
#pragma once

#include <vector>

namespace autopar::cli {

struct EnvironmentVariable {
  const char* name;
  const char* what;     // in the manual's words
  bool secret = false;  // not to be shown
};
const std::vector<EnvironmentVariable>& environment_variables();

}  // namespace autopar::cli
