// Finding and opening the ONNX Runtime library.
#pragma once

#include <string>
#include <vector>

#include "autopar/support.hpp"

struct OrtApiBase;

namespace autopar {

// Where to look, in order: AUTOPAR_ORT alone where it is set (a file or its folder), else beside
// the program and in the folder of its libraries, then where the dynamic linker looks.
std::vector<std::string> library_candidates();

// ONNX Runtime is linked to the shared C++ library. The machine's is taken before the one that an
// archive of this program brings: other libraries of that machine may need what a newer one has.
void provide_cxx_library();

// Opens the first that can be opened. Errors (kInput) name all places and say what to install.
Result<const OrtApiBase*> open_first(const std::vector<std::string>& candidates);

}  // namespace autopar
