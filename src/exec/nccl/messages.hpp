// Messages from one rank to another. A Send must not wait for its receiver: two ranks may send
// to each other before either receives.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "exec/nccl/comms.hpp"
#include "exec/nccl/gpu.hpp"

namespace autopar {

// A sent message lies in memory of its own until it has arrived. Each communicator sends on a
// stream of its own, so that a receiver that is late holds up no one else.
class GpuMessages {
 public:
  GpuMessages(const GpuLibraries& libraries, const Gpu& gpu, const NcclComms& comms)
      : libraries_(libraries), gpu_(gpu), comms_(comms) {}
  ~GpuMessages();
  GpuMessages(const GpuMessages&) = delete;
  GpuMessages& operator=(const GpuMessages&) = delete;

  // Room for the next message, and its sending once it is there.
  Result<void*> room(std::size_t bytes);
  Result<Waited> send(ncclComm_t comm, int receiver, std::size_t bytes);
  Result<Waited> receive(ncclComm_t comm, int sender, void* output, std::size_t bytes,
                         cudaStream_t stream);
  // Whether all have arrived; an error where one cannot.
  Result<bool> all_arrived();

 private:
  struct Message {
    explicit Message(const Gpu& gpu) : memory(gpu), arrived(gpu) {}
    GpuScratch memory;
    GpuMark arrived;
    ncclComm_t comm = nullptr;
  };
  Result<cudaStream_t> stream_of(ncclComm_t comm);

  const GpuLibraries& libraries_;
  const Gpu& gpu_;
  const NcclComms& comms_;
  std::map<ncclComm_t, cudaStream_t> streams_;  // only looked up, never in order
  std::vector<std::unique_ptr<Message>> under_way_;
  std::vector<std::unique_ptr<Message>> idle_;
  std::unique_ptr<Message> next_;
};

}  // namespace autopar
