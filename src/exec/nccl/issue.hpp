// Puts one collective on a stream: what NCCL calls it consists of, and the copies before and after
// them, since NCCL moves contiguous blocks and knows no axis.
#pragma once

#include "autopar/exec.hpp"
#include "exec/nccl/comms.hpp"
#include "exec/nccl/gpu.hpp"

namespace autopar {

// Where blocks of several ranks lie one after the other.
struct BlockRoom {
  explicit BlockRoom(const Gpu& gpu) : sent(gpu), received(gpu) {}
  GpuScratch sent;
  GpuScratch received;
};

struct Issuer {
  const GpuLibraries& libraries;
  const Gpu& gpu;
  const NcclComms& comms;
  BlockRoom& blocks;
};

// AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast; all but those of one rank. `input` and
// `output` are on the device and do not overlap. The result is whether all was put on the stream,
// not whether it is done. Errors: kInput where NCCL cannot reduce the type, kRuntime as of NCCL and
// CUDA.
Result<Waited> issue(const Issuer& issuer, const CollectiveCall& call, ncclComm_t comm,
                     const void* input, void* output, cudaStream_t stream);

// Whether NCCL reduces the type, bool as bytes. It does not reduce 16-bit integers.
bool reduces(DType dtype);

std::size_t buffer_bytes(const Shape& shape, DType dtype);

}  // namespace autopar
