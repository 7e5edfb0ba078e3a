// The ONNX Runtime library behind Ort::, opened at run time: its exports are versioned, so a linked
// program would run with one release only.
#pragma once

#include <onnxruntime_cxx_api.h>

#include <string>

#include "autopar/exec.hpp"

namespace autopar {

// Opens the library once per process and makes Ort:: usable; gives the library's version.
Result<std::string> open_onnx_runtime();

}  // namespace autopar
