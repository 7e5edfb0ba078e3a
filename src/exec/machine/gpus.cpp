// The driver and its GPUs, the CUDA runtime, NCCL. All without their headers: a build that was made
// without them has the same to say.
#include <cstdio>

#include "exec/machine/look.hpp"
#include "exec/nccl/nccl.hpp"

namespace autopar {

namespace {

constexpr Seconds kGpuLimit = 60;  // a driver that has to wake up its GPUs

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Entries of libcuda.so.1, whose names carry the version of their signatures.
struct Driver {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  int (*device)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*memory)(std::size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
};

bool read_driver(void* library, Driver& driver, Facts& facts) {
  const auto read = [&](auto& entry, const char* name) {
    entry = entry_of<std::remove_reference_t<decltype(entry)>>(library, name, facts);
    return entry != nullptr;
  };
  return read(driver.init, "cuInit") && read(driver.version, "cuDriverGetVersion") &&
         read(driver.count, "cuDeviceGetCount") && read(driver.device, "cuDeviceGet") &&
         read(driver.name, "cuDeviceGetName") && read(driver.memory, "cuDeviceTotalMem_v2") &&
         read(driver.attribute, "cuDeviceGetAttribute");
}

std::string gpu_text(const Driver& driver, int number) {
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  int device = 0, major = 0, minor = 0;
  char name[256] = "";
  std::size_t memory = 0;
  if (driver.device(&device, number) != 0 || driver.name(name, sizeof name, device) != 0 ||
      driver.memory(&memory, device) != 0 || driver.attribute(&major, kMajor, device) != 0 ||
      driver.attribute(&minor, kMinor, device) != 0) {
    return "does not say what it is";
  }
  char text[384];
  std::snprintf(text, sizeof text, "%s, %.1f GiB, compute capability %d.%d", name,
                static_cast<double>(memory) / 0x1p30, major, minor);
  return text;
}

Facts look_at_driver() {
  Facts facts;
  Driver driver;
  void* library = open_library({"libcuda.so.1"}, facts);
  if (library == nullptr || !read_driver(library, driver, facts)) return facts;
  int version = 0;
  if (driver.version(&version) == 0) facts.emplace_back("version", cuda_version(version));
  if (const int error = driver.init(0); error != 0) {
    facts.emplace_back("broken", fact(facts, "path") + ": the driver does not start (CUDA error " +
                                     std::to_string(error) +
                                     "): no GPU, or its kernel module is not loaded");
    return facts;
  }
  int count = 0;
  if (driver.count(&count) != 0) count = 0;
  facts.emplace_back("gpus", std::to_string(count));
  for (int g = 0; g < count; ++g) {
    facts.emplace_back("gpu_" + std::to_string(g), gpu_text(driver, g));
  }
  return facts;
}

Facts look_at_runtime() {
  Facts facts;
  void* library = open_library(cuda_runtime_candidates(), facts);
  if (library == nullptr) return facts;
  const auto version = entry_of<int (*)(int*)>(library, "cudaRuntimeGetVersion", facts);
  const auto count = entry_of<int (*)(int*)>(library, "cudaGetDeviceCount", facts);
  if (version == nullptr || count == nullptr) return facts;
  int number = 0;
  if (version(&number) == 0) facts.emplace_back("version", cuda_version(number));
  int gpus = 0;
  if (const int error = count(&gpus); error != 0) {
    facts.emplace_back("problem", "finds no GPU, CUDA error " + std::to_string(error));
    gpus = 0;
  }
  facts.emplace_back("gpus", std::to_string(gpus));
  return facts;
}

Facts look_at_nccl() {
  Facts facts;
  void* library = open_library(nccl_candidates(), facts);
  if (library == nullptr) return facts;
  const auto version = entry_of<int (*)(int*)>(library, "ncclGetVersion", facts);
  if (version == nullptr) return facts;
  int number = 0;
  if (version(&number) == 0) {
    const int unit = number < 10000 ? 1000 : 10000;  // since 2.9 two digits more
    facts.emplace_back("version", std::to_string(number / unit) + "." +
                                      std::to_string(number % unit / 100) + "." +
                                      std::to_string(number % 100));
  }
  return facts;
}

// All together, by what `run --ranks-by nccl` itself does.
Facts look_at_nccl_ranks() {
  const auto version = nccl_version();
  if (!version) return {{"broken", version.error().message}};
  const auto gpu = nccl_gpu(0);
  if (!gpu) return {{"absent", gpu.error().message}, {"version", *version}};
  return {{"version", *version}};
}

Finding driver() {
  Finding finding = finding_of("GPUs", "cuda_driver", "CUDA driver and GPUs",
                               look_apart(look_at_driver, kGpuLimit));
  if (finding.state == Found::kOk && fact(finding.facts, "gpus") == "0") {
    finding.state = Found::kAbsent;
    finding.what = "the driver finds no GPU";
  }
  if (finding.state != Found::kOk) {
    finding.without = "--ranks-by nccl does not work here; threads and mpi need no GPU";
    return finding;
  }
  finding.what = "CUDA " + fact(finding.facts, "version") + ", " + fact(finding.facts, "path");
  for (const auto& [name, value] : finding.facts) {
    if (name.rfind("gpu_", 0) == 0) finding.what += "\nGPU " + name.substr(4) + ": " + value;
  }
  return finding;
}

Finding runtime() {
  Finding finding =
      finding_of("GPUs", "cuda_runtime", "CUDA runtime", look_apart(look_at_runtime, kGpuLimit));
  if (finding.state != Found::kOk) {
    finding.without =
        "--ranks-by nccl does not work: install the CUDA toolkit or the Python package "
        "nvidia-cuda-runtime, and set AUTOPAR_CUDART to its libcudart.so where it is not found";
    return finding;
  }
  const std::string problem = fact(finding.facts, "problem");
  finding.what = fact(finding.facts, "version") + ", " + fact(finding.facts, "path") +
                 (problem.empty() ? "" : " (" + problem + ")");
  return finding;
}

Finding nccl() {
  Finding finding = finding_of("GPUs", "nccl", "NCCL", look_apart(look_at_nccl, kGpuLimit));
  if (finding.state != Found::kOk) {
    finding.without =
        "--ranks-by nccl does not work: install the package libnccl2 or the Python package "
        "nvidia-nccl-cu13, and set AUTOPAR_NCCL to its libnccl.so.2 where it is not found";
    return finding;
  }
  finding.what = fact(finding.facts, "version") + ", " + fact(finding.facts, "path");
  return finding;
}

Finding nccl_ranks() {
  Finding finding =
      finding_of("GPUs", "nccl_ranks", "ranks by NCCL", look_apart(look_at_nccl_ranks, kGpuLimit));
  if (finding.state == Found::kOk) {
    finding.what = fact(finding.facts, "version");
  } else {
    finding.without = "--ranks-by nccl does not work here";
  }
  return finding;
}

}  // namespace

void examine_gpus(std::vector<Finding>& findings) {
  for (const auto& examine : {driver, runtime, nccl, nccl_ranks}) findings.push_back(examine());
}

}  // namespace autopar
