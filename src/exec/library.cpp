#include "exec/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "autopar/errors.hpp"
#include "exec/own_files.hpp"

namespace autopar {

namespace {

constexpr const char* kLibrary = "libonnxruntime.so.1";

}  // namespace

void provide_cxx_library() {
  if (dlopen("libstdc++.so.6", RTLD_NOW | RTLD_LOCAL) != nullptr) return;
  for (const char* name : {"cxx/libgcc_s.so.1", "cxx/libstdc++.so.6"}) {
    for (const std::string& file : own_files(name)) {
      if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) break;  // stays open
    }
  }
}

std::vector<std::string> library_candidates() {
  if (const char* chosen = std::getenv("AUTOPAR_ORT"); chosen != nullptr && *chosen != '\0') {
    std::error_code ignored;
    const std::filesystem::path path(chosen);
    return {std::filesystem::is_directory(path, ignored) ? (path / kLibrary).string() : chosen};
  }
  std::vector<std::string> paths = own_files(kLibrary);
  paths.push_back(kLibrary);
  return paths;
}

Result<const OrtApiBase*> open_first(const std::vector<std::string>& candidates) {
  provide_cxx_library();
  std::string tried;
  for (const std::string& path : candidates) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays open
    if (library == nullptr) {
      const char* why = dlerror();
      tried += "\n  " + path + ": " + (why != nullptr ? why : "unknown reason");
      continue;
    }
    const auto api_base =
        reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
    if (api_base == nullptr) {
      return input_error(path +
                         ": is no ONNX Runtime library (it has no symbol OrtGetApiBase); "
                         "set AUTOPAR_ORT to libonnxruntime.so");
    }
    return api_base();
  }
  const std::string what =
      "running a plan needs the ONNX Runtime library, which could not be opened:" + tried;
  // What the loader says where the file is there, but no room for it in memory.
  for (const char* words : {"failed to map segment", "annot allocate memory"}) {
    if (tried.find(words) != std::string::npos) return resource_error(what);
  }
  return input_error(
      what +
      "\nrun scripts/setup in the source tree, or install the Python package onnxruntime and set "
      "AUTOPAR_ORT to its libonnxruntime.so file");
}

}  // namespace autopar
