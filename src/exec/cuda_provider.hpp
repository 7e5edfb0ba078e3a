// Local ops on a GPU, by ONNX Runtime's CUDA provider where this ONNX Runtime has one.
#pragma once

#include <string>

#include "exec/runtime.hpp"

namespace autopar {

// Lets sessions with these options run on the GPU. Empty, or why they run on the CPU. `gpu`: -1
// where there is none.
std::string add_cuda_provider(Ort::SessionOptions& options, int gpu);

}  // namespace autopar
