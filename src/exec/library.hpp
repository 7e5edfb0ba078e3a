// Finding and opening the ONNX Runtime library.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"

struct OrtApiBase;

namespace autopar {

// Where to look, in order: AUTOPAR_ORT alone where it is set (a file or its folder), else the
// places known when this program was built, then where the dynamic linker looks.
std::vector<std::string> library_candidates();

// Opens the first that can be opened. Errors (kInput) name all places and say what to install.
Result<const OrtApiBase*> open_first(const std::vector<std::string>& candidates);

}  // namespace autopar
