// A rank's Communicator over NCCL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/nccl/comms.hpp"
#include "exec/nccl/gpu.hpp"
#include "exec/nccl/issue.hpp"
#include "exec/nccl/messages.hpp"

namespace autopar {

// Every call waits for its end, so that a failure names its rank and op; only a Send goes on alone.
class NcclCommunicator : public GpuCommunicator {
 public:
  static Result<std::unique_ptr<NcclCommunicator>> create(const NcclWorld& world);
  ~NcclCommunicator() override;

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  Status prepare(const std::vector<GroupPartition>& partitions) override;
  Status prepare_messages(const std::vector<std::vector<std::int64_t>>& pairs) override;
  Status run(const CollectiveCall& call, const void* input, void* output) override;
  void abort(const std::string& reason) override;
  int gpu() const override { return gpu_.index(); }
  Result<Bytes> gpu_memory() const override { return gpu_.memory(); }
  Result<GpuRoom> gpu_room(std::size_t input_bytes, std::size_t output_bytes) override;

 private:
  NcclCommunicator(const NcclWorld& world, const GpuLibraries& libraries, const Gpu& gpu);
  Status open();
  Status open_groups(CommUse use, const std::vector<std::vector<std::int64_t>>& groups);

  Status run_in_host_memory(const CollectiveCall& call, const void* input, void* output);
  Status run_widened(const CollectiveCall& call, const void* input, void* output);
  Status run_widened_from_device(const CollectiveCall& call, const void* input, void* output);
  Status run_on_device(const CollectiveCall& call, const void* input, void* output,
                       cudaStream_t stream);
  Result<ncclComm_t> comm_of_pair(const CollectiveCall& call, int place) const;
  Status run_message(const CollectiveCall& call, const void* input, void* output);
  Status finish(ncclComm_t comm, cudaStream_t stream);
  Status ended_well(Waited waited) const;
  Status give_up(const CollectiveCall& call, const Error& error);

  NcclWorld world_;
  GpuLibraries libraries_;
  Gpu gpu_;
  Stop stop_;
  std::unique_ptr<NcclComms> comms_;
  cudaStream_t stream_ = nullptr;  // of calls in host memory
  GpuMark end_;
  GpuScratch input_;
  GpuScratch output_;
  BlockRoom blocks_;
  std::unique_ptr<GpuMessages> messages_;
};

}  // namespace autopar
