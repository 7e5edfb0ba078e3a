#include "exec/machine.hpp"

#include <unistd.h>

namespace autopar {

std::string machine_name() {
  char name[256] = "";  // more than Linux allows
  if (gethostname(name, sizeof name - 1) != 0) return "?";
  return name;
}

}  // namespace autopar
