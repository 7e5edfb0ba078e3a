// What a file is, without reading it into memory.
//
//   Result<std::string> hash = sha256_of_file("model.onnx");   // "9f86d081884c7d65..."
//   if (is_json("plan.trt.json")) ...                          // no ONNX file
#pragma once

#include <string>

#include "autopar/support.hpp"

namespace autopar {

// Of a regular file's bytes, which are mapped.
Result<std::string> sha256_of_file(const std::string& path);
// Whether a file begins as a JSON object does; false for what cannot be read.
bool is_json(const std::string& path);

}  // namespace autopar
