#include "exec/nccl/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "exec/nccl/nccl.hpp"

namespace autopar {

namespace {

constexpr int kOldestNccl = 21801;
constexpr int kNativeAllToAll = 22803;

// The file that the variable names, alone; else each name as the dynamic linker finds it, then in
// the toolkit's folder, which the linker often does not know.
std::vector<std::string> candidates_of(const char* variable,
                                       const std::vector<std::string>& names) {
  const auto value_of = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text != nullptr ? text : "");
  };
  if (const std::string chosen = value_of(variable); !chosen.empty()) return {chosen};
  std::vector<std::string> candidates = names;
  const std::string home = value_of("CUDA_HOME");
  const std::string folder = (home.empty() ? "/usr/local/cuda" : home) + "/lib64/";
  for (const std::string& name : names) candidates.push_back(folder + name);
  return candidates;
}

class Library {
 public:
  static Result<Library> open(const char* variable, const std::vector<std::string>& candidates,
                              const std::string& what, const std::string& remedy) {
    std::string tried;
    for (const std::string& path : candidates) {
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return Library(handle, path);
      const char* why = dlerror();
      tried += "\n  " + path + ": " + (why != nullptr ? why : "unknown reason");
    }
    return input_error("ranks on GPUs need " + what + ", which could not be opened:" + tried +
                       "\n" + remedy + ", and set " + variable + " to the file if it is not found");
  }

  template <class Entry>
  void read(Entry& entry, const char* name) {
    entry = reinterpret_cast<Entry>(dlsym(handle_, name));
    if (entry == nullptr) missing_ += (missing_.empty() ? "" : ", ") + std::string(name);
  }
  void* find(const char* name) const { return dlsym(handle_, name); }
  const std::string& path() const { return path_; }
  const std::string& missing() const { return missing_; }

 private:
  Library(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
  std::string missing_;
};

Status read_cuda(Library& library, GpuLibraries& to) {
  CudaEntries& cuda = to.cuda;
  library.read(cuda.error_string, "cudaGetErrorString");
  library.read(cuda.runtime_version, "cudaRuntimeGetVersion");
  library.read(cuda.device_count, "cudaGetDeviceCount");
  library.read(cuda.set_device, "cudaSetDevice");
  library.read(cuda.allocate, "cudaMalloc");
  library.read(cuda.free, "cudaFree");
  library.read(cuda.copy, "cudaMemcpyAsync");
  library.read(cuda.copy_rows, "cudaMemcpy2DAsync");
  library.read(cuda.memory, "cudaMemGetInfo");
  library.read(cuda.fill, "cudaMemsetAsync");
  library.read(cuda.create_stream, "cudaStreamCreateWithFlags");
  library.read(cuda.destroy_stream, "cudaStreamDestroy");
  library.read(cuda.create_event, "cudaEventCreateWithFlags");
  library.read(cuda.destroy_event, "cudaEventDestroy");
  library.read(cuda.record_event, "cudaEventRecord");
  library.read(cuda.query_event, "cudaEventQuery");
  if (!library.missing().empty()) {
    return input_error(library.path() + ": is no CUDA runtime that can be used, it lacks " +
                       library.missing() + "; set AUTOPAR_CUDART to libcudart.so.13 or .12");
  }
  const cudaError_t error = cuda.runtime_version(&to.cuda_version);
  if (error != cudaSuccess) {
    return input_error(library.path() +
                       ": the CUDA runtime does not say its version: " + cuda.error_string(error));
  }
  return Ok{};
}

Status read_nccl(Library& library, GpuLibraries& to) {
  NcclEntries& nccl = to.nccl;
  library.read(nccl.version, "ncclGetVersion");
  if (nccl.version == nullptr || nccl.version(&to.nccl_version) != ncclSuccess) {
    return input_error(library.path() +
                       ": is no NCCL library, it does not say its version; set AUTOPAR_NCCL to "
                       "libnccl.so.2");
  }
  if (to.nccl_version < kOldestNccl) {
    return input_error(library.path() + ": is NCCL " + nccl_version_text(to.nccl_version) +
                       "; at least " + nccl_version_text(kOldestNccl) +
                       " is needed. Install a newer one and set AUTOPAR_NCCL to its libnccl.so.2");
  }
  library.read(nccl.unique_id, "ncclGetUniqueId");
  library.read(nccl.error_string, "ncclGetErrorString");
  library.read(nccl.last_error, "ncclGetLastError");
  library.read(nccl.init, "ncclCommInitRankConfig");
  library.read(nccl.split, "ncclCommSplit");
  library.read(nccl.finalize, "ncclCommFinalize");
  library.read(nccl.destroy, "ncclCommDestroy");
  library.read(nccl.abort, "ncclCommAbort");
  library.read(nccl.async_error, "ncclCommGetAsyncError");
  library.read(nccl.all_reduce, "ncclAllReduce");
  library.read(nccl.all_gather, "ncclAllGather");
  library.read(nccl.reduce_scatter, "ncclReduceScatter");
  library.read(nccl.broadcast, "ncclBroadcast");
  library.read(nccl.send, "ncclSend");
  library.read(nccl.recv, "ncclRecv");
  library.read(nccl.group_start, "ncclGroupStart");
  library.read(nccl.group_end, "ncclGroupEnd");
  nccl.all_to_all = nullptr;
  if (to.nccl_version >= kNativeAllToAll) {
    nccl.all_to_all = reinterpret_cast<decltype(nccl.all_to_all)>(library.find("ncclAlltoAll"));
  }
  if (!library.missing().empty()) {
    return input_error(library.path() + ": NCCL " + nccl_version_text(to.nccl_version) + " lacks " +
                       library.missing() + "; set AUTOPAR_NCCL to another libnccl.so.2");
  }
  return Ok{};
}

}  // namespace

std::string nccl_version_text(int version) {
  // Since 2.9 the minor version has two digits more.
  const int unit = version < 10000 ? 1000 : 10000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> cuda_runtime_candidates() {
  return candidates_of("AUTOPAR_CUDART", {"libcudart.so.13", "libcudart.so.12"});
}

std::vector<std::string> nccl_candidates() {
  return candidates_of("AUTOPAR_NCCL", {"libnccl.so.2"});
}

Result<GpuLibraries> open_gpu_libraries() {
  GpuLibraries libraries{};
  AUTOPAR_TRY(cudart, Library::open("AUTOPAR_CUDART", cuda_runtime_candidates(), "the CUDA runtime",
                                    "install the CUDA toolkit or the Python package "
                                    "nvidia-cuda-runtime"));
  AUTOPAR_RETURN_IF_ERROR(read_cuda(cudart, libraries));
  AUTOPAR_TRY(nccl, Library::open("AUTOPAR_NCCL", nccl_candidates(), "NCCL",
                                  "install the package libnccl2 or the Python package "
                                  "nvidia-nccl-cu13"));
  AUTOPAR_RETURN_IF_ERROR(read_nccl(nccl, libraries));
  return libraries;
}

}  // namespace autopar
