// Numbers of things, in words.
#pragma once

#include <string>

namespace autopar {

// "1 pass", "4 passes".
template <class Count>
std::string counted(Count count, const std::string& one, const std::string& many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}
// Where the many have an "s" more: "1 rank", "2 ranks".
template <class Count>
std::string counted(Count count, const std::string& one) {
  return counted(count, one, one + "s");
}

}  // namespace autopar
