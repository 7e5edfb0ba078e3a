// Where the libraries of CUDA and NCCL are looked for.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

namespace autopar {

// The file that the environment variable names, alone; else each name as the dynamic linker finds
// it, then each in `folder`, where that is not empty.
inline std::vector<std::string> library_paths(const char* variable,
                                              const std::vector<std::string>& names,
                                              const std::string& folder) {
  const char* chosen = std::getenv(variable);
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> paths = names;
  for (const std::string& name : names) {
    if (!folder.empty()) paths.push_back(folder + "/" + name);
  }
  return paths;
}

}  // namespace autopar
