// ONNX Runtime and the MPI libraries.
#include <algorithm>
#include <filesystem>

#include "exec/library.hpp"
#include "exec/machine/look.hpp"
#include "exec/mpi/mpi_library.hpp"
#include "exec/own_files.hpp"
#include "exec/runtime.hpp"

namespace autopar {

namespace {

constexpr Seconds kLibraryLimit = 30;  // a file system of a cluster may be slow

struct KnownMpi {
  const char* name;
  const char* text;
  const char* package;
};
constexpr KnownMpi kMpis[] = {
    {"openmpi", "Open MPI", "libopenmpi-dev"},
    {"mpich", "MPICH", "libmpich-dev"},
};

Facts look_at_onnx_runtime() {
  Facts facts;
  provide_cxx_library();
  if (open_library(library_candidates(), facts) == nullptr) return facts;
  const auto version = open_onnx_runtime();  // the same candidates
  if (!version) return {{"broken", version.error().message}};
  facts.emplace_back("version", *version);
  std::string providers;
  for (const std::string& name : Ort::GetAvailableProviders()) {
    providers += (providers.empty() ? "" : ", ") + name;
  }
  facts.emplace_back("providers", providers);
  return facts;
}

Facts look_at_mpi(const std::string& name) {
  Facts facts;
  const auto opened = open_mpi({name}, own_folders());
  if (!opened) return {{"absent", opened.error().message}};
  facts.emplace_back("path", opened->path);
  const std::string library = opened->table->library();
  facts.emplace_back("version", library.substr(0, library.find('\n')));
  return facts;
}

Finding onnx_runtime() {
  Finding finding = finding_of("libraries", "onnx_runtime", "ONNX Runtime",
                               look_apart(look_at_onnx_runtime, kLibraryLimit));
  if (finding.state == Found::kOk) {
    finding.what = fact(finding.facts, "version") + ", " + fact(finding.facts, "path");
    return finding;
  }
  finding.without =
      "run and calibrate cannot work, all else can: install the Python package onnxruntime and set "
      "AUTOPAR_ORT to its libonnxruntime.so file";
  return finding;
}

Finding cuda_provider(const Finding& runtime) {
  Finding finding{"libraries", "cuda_provider", "CUDA provider of ONNX Runtime"};
  const std::string providers = fact(runtime.facts, "providers");
  if (providers.find("CUDAExecutionProvider") != std::string::npos) {
    finding.what = "ONNX Runtime has one";
    return finding;
  }
  finding.state = Found::kAbsent;
  finding.what = runtime.state == Found::kOk ? "this ONNX Runtime has none, only " + providers
                                             : "there is no ONNX Runtime";
  finding.without =
      "local ops run on the CPU, under --ranks-by nccl too: set AUTOPAR_ORT to the library of the "
      "Python package onnxruntime-gpu";
  return finding;
}

Finding mpi(const KnownMpi& known) {
  const std::vector<std::string> built = built_mpi_names();
  const bool is_built = std::find(built.begin(), built.end(), known.name) != built.end();
  const Facts facts = is_built ? look_apart([&] { return look_at_mpi(known.name); }, kLibraryLimit)
                               : Facts{{"absent", "this program was built without it"}};
  Finding finding = finding_of("libraries", std::string("mpi_") + known.name, known.text, facts);
  if (finding.state == Found::kOk) {
    finding.what = fact(finding.facts, "version") + ", " + fact(finding.facts, "path");
    return finding;
  }
  finding.without = std::string("--ranks-by mpi does not work under ") + known.text +
                    (is_built ? ": install it with its development files and run scripts/build"
                              : ": install " + std::string(known.package) + " and build again");
  return finding;
}

}  // namespace

void examine_libraries(std::vector<Finding>& findings) {
  const Finding runtime = onnx_runtime();
  findings.push_back(runtime);
  for (const KnownMpi& known : kMpis) findings.push_back(mpi(known));
  findings.push_back(cuda_provider(runtime));
}

}  // namespace autopar
