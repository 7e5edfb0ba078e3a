#include <onnxruntime_c_api.h>

#include "autopar/machine.hpp"
#include "exec/machine/look.hpp"
#include "exec/mpi/mpi_library.hpp"

namespace autopar {

namespace {

#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace

std::vector<Finding> examine_machine() {
  std::vector<Finding> findings;
  examine_libraries(findings);
  examine_gpus(findings);
  examine_launcher(findings);
  examine_resources(findings);
  return findings;
}

std::vector<std::pair<std::string, std::string>> build_options() {
  std::string mpi;
  for (const std::string& name : built_mpi_names()) mpi += (mpi.empty() ? "" : ", ") + name;
  std::vector<std::pair<std::string, std::string>> options = {
      {"compiler", kCompiler},
      {"ONNX Runtime", "1." + std::to_string(ORT_API_VERSION) + " or newer, opened at run time"},
      {"MPI", mpi.empty() ? "none" : mpi},
      {"NCCL", "2.18.1 or newer, opened at run time"},
  };
#if defined(__SANITIZE_ADDRESS__)
  options.emplace_back("sanitizer", "address");
#elif defined(__SANITIZE_THREAD__)
  options.emplace_back("sanitizer", "thread");
#endif
#ifndef __OPTIMIZE__
  options.emplace_back("optimization", "none");
#endif
  return options;
}

}  // namespace autopar
