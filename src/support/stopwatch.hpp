// Wall time, for time limits and for what is said of phases.
#pragma once

#include <chrono>

#include "autopar/support.hpp"

namespace autopar {

inline Seconds seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Stopwatch {
 public:
  // Since the lap before; the first: since it was made.
  Seconds lap() {
    const auto now = std::chrono::steady_clock::now();
    const Seconds seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    return seconds;
  }
  Seconds total() const { return seconds_since(start_); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_ = start_;
};

}  // namespace autopar
