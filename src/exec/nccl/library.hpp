// The entries of the CUDA runtime and of NCCL that are used, from libraries opened at run time: a
// program is built and starts where they are not installed.
#pragma once

#include <string>

#include "autopar/support.hpp"
#include "exec/nccl/nccl_api.h"

namespace autopar {

struct CudaEntries {
  const char* (*error_string)(cudaError_t);
  decltype(&cudaRuntimeGetVersion) runtime_version;
  decltype(&cudaGetDeviceCount) device_count;
  decltype(&cudaSetDevice) set_device;
  cudaError_t (*allocate)(void**, std::size_t);
  decltype(&cudaFree) free;
  decltype(&cudaMemcpyAsync) copy;
  decltype(&cudaMemcpy2DAsync) copy_rows;
  decltype(&cudaMemGetInfo) memory;
  decltype(&cudaMemsetAsync) fill;
  decltype(&cudaStreamCreateWithFlags) create_stream;
  decltype(&cudaStreamDestroy) destroy_stream;
  cudaError_t (*create_event)(cudaEvent_t*, unsigned int);
  decltype(&cudaEventDestroy) destroy_event;
  cudaError_t (*record_event)(cudaEvent_t, cudaStream_t);
  decltype(&cudaEventQuery) query_event;
};

struct NcclEntries {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommSplit) split;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) recv;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAlltoAll) all_to_all;  // null before 2.28.3
};

struct GpuLibraries {
  CudaEntries cuda;
  NcclEntries nccl;
  int cuda_version = 0;  // 13000 for 13.0
  int nccl_version = 0;  // 22809 for 2.28.9
};

// Opens libcudart.so.13 or .12 and libnccl.so.2, where the dynamic linker looks, then in the
// toolkit (CUDA_HOME, else /usr/local/cuda), or the files that the environment variables
// AUTOPAR_CUDART and AUTOPAR_NCCL name. They stay open. Errors (kInput): a library that cannot be
// opened, lacks an entry or is older than NCCL 2.18.1, which brought ncclCommSplit.
Result<GpuLibraries> open_gpu_libraries();

// "2.28.9"
std::string nccl_version_text(int version);

}  // namespace autopar
