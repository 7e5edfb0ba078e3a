// A build without the headers of CUDA and NCCL.
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

}  // namespace autopar
