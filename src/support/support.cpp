#include "autopar/support.hpp"

#include <cstdio>

namespace autopar {

void fail_bug(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "autopar: internal error at %s:%d: %s\n", file, line, what.c_str());
  std::abort();
}

}  // namespace autopar
