// What launchers and users say by environment variables.
#pragma once

#include <cstdlib>

namespace autopar {

// Null where it is not set, is empty, or `name` is null.
inline const char* variable(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

}  // namespace autopar
