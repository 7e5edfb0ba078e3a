// Errors that are the machine's, or this program's own: beside those of support.hpp, which are of
// what the user gave.
//
//   if (::fsync(file) != 0) return system_error(path + ": cannot be written", errno);
//   // "out/plan.onnx: cannot be written: No space left on device", kResource
//   try { ... } catch (const std::exception& exception) { return error_of(exception); }
#pragma once

#include <exception>
#include <string>

#include "autopar/support.hpp"

namespace autopar {

inline Error resource_error(std::string message) {
  return {ErrorCode::kResource, std::move(message)};
}
// "what: the system's reason" of a call that failed with this errno: kResource where memory, disk
// or handles are used up, kInput else.
Error system_error(const std::string& what, int number);
// What an exception means that nobody nearer has caught: no memory, a refusal of the system, or a
// bug.
Error error_of(const std::exception& exception);

}  // namespace autopar
