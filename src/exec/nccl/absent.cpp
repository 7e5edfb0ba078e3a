// A build without the headers of CUDA and NCCL.
#include "exec/nccl/candidates.hpp"
#include "exec/nccl/nccl.hpp"

namespace autopar {

namespace {

Error absent() {
  return input_error(
      "this build has no NCCL: it was compiled where the headers cuda_runtime.h and nccl.h (2.28 "
      "or "
      "newer) were not found. Install the CUDA toolkit and NCCL's development files (package "
      "libnccl-dev) and configure again with -Dnccl=enabled, or run the ranks as threads or under "
      "MPI");
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl_communicator(const NcclWorld&) { return absent(); }

Result<int> nccl_gpu(int) { return absent(); }

Result<std::string> nccl_version() { return absent(); }

std::string nccl_headers() { return ""; }

std::vector<std::string> cuda_runtime_candidates() {
  return library_paths("AUTOPAR_CUDART", {"libcudart.so.13", "libcudart.so.12"}, "");
}

std::vector<std::string> nccl_candidates() {
  return library_paths("AUTOPAR_NCCL", {"libnccl.so.2"}, "");
}

}  // namespace autopar
