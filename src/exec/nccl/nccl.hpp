// Ranks on GPUs that communicate by NCCL. CUDA and NCCL are opened when they are asked for; where
// they are not installed, these functions say what is missing.
//
//   NcclWorld world;
//   world.rank = 3, world.size = 8, world.local_rank = 3;
//   world.exchange = [&](const std::string& own) { return texts_of_all_ranks(own); };
//   Result<std::unique_ptr<GpuCommunicator>> communicator = make_nccl_communicator(world);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

// Room in a GPU's memory, and a stream (a CollectiveCall's) on which calls may use it.
struct GpuRoom {
  void* input = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
};

// A communicator whose run() also takes tensors in the memory of a GPU (CollectiveCall::stream).
class GpuCommunicator : public Communicator {
 public:
  virtual int gpu() const = 0;  // its number in the CUDA runtime
  // All of the GPU's memory, in bytes, which ranks that share it share.
  virtual Result<Bytes> gpu_memory() const = 0;
  // For measurements: calls in host memory write to it, too. It stays until a larger one is asked
  // for.
  virtual Result<GpuRoom> gpu_room(std::size_t input_bytes, std::size_t output_bytes) = 0;
};

struct NcclWorld {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // on its host; chooses the GPU
  // Gives every rank the texts of all ranks, by rank. Collective.
  std::function<Result<std::vector<std::string>>(const std::string& own)> exchange;
  // A collective fails that takes longer, the wait for the other ranks included.
  Seconds timeout = 60;
  // The failure of another rank, as soon as it is known ("rank 2 has ended"); may be left out.
  std::function<std::optional<std::string>()> failure = {};
  // Tells the others why this rank gives up; may be left out.
  std::function<void(const std::string& reason)> tell = {};
};

// Every rank must call it, and then prepare() with the groups of its program: from those of all
// ranks come all communicators, up front and in one order. The communicator takes tensors in host
// memory (through the device, by copies) and in the memory of its GPU. A call returns when the
// collective is complete; Send when its data is copied. Errors: kInput where there is no GPU for
// the rank, or where a library is missing or too old (each says which and what to do); kRuntime
// where ranks do not come together in time. As NCCL has it, float16 and bfloat16 are rounded after
// every addition, the order of reduction is NCCL's, and a NaN may be lost by max and min.
Result<std::unique_ptr<GpuCommunicator>> make_nccl_communicator(const NcclWorld& world);

// The GPU of a rank, by its number on its host. Errors as make_nccl_communicator.
Result<int> nccl_gpu(int local_rank);

// What would be used: "NCCL 2.28.9, CUDA runtime 13.0, 8 GPUs", or why nothing.
Result<std::string> nccl_version();
// Where their libraries are looked for, in this order.
std::vector<std::string> cuda_runtime_candidates();
std::vector<std::string> nccl_candidates();

}  // namespace autopar
