#include "exec/nccl/messages.hpp"

namespace autopar {

GpuMessages::~GpuMessages() {
  for (const auto& [comm, stream] : streams_) gpu_.cuda().destroy_stream(stream);
}

Result<void*> GpuMessages::room(std::size_t bytes) {
  AUTOPAR_TRY(arrived, all_arrived());
  static_cast<void>(arrived);
  if (idle_.empty()) {
    next_ = std::make_unique<Message>(gpu_);
  } else {
    next_ = std::move(idle_.back());
    idle_.pop_back();
  }
  return next_->memory.reserve(bytes);
}

Result<Waited> GpuMessages::send(ncclComm_t comm, int receiver, std::size_t bytes) {
  AUTOPAR_CHECK(next_ != nullptr, "a message is sent that has no room");
  AUTOPAR_TRY(stream, stream_of(comm));
  AUTOPAR_TRY(memory, next_->memory.reserve(bytes));
  next_->comm = comm;
  AUTOPAR_TRY(waited, comms_.settle(comm, libraries_.nccl.send(memory, bytes, ncclUint8, receiver,
                                                               comm, stream)));
  if (waited != Waited::kDone) return waited;
  AUTOPAR_RETURN_IF_ERROR(next_->arrived.record(stream));
  under_way_.push_back(std::move(next_));
  return waited;
}

Result<Waited> GpuMessages::receive(ncclComm_t comm, int sender, void* output, std::size_t bytes,
                                    cudaStream_t stream) {
  return comms_.settle(comm, libraries_.nccl.recv(output, bytes, ncclUint8, sender, comm, stream));
}

Result<bool> GpuMessages::all_arrived() {
  for (std::size_t i = 0; i < under_way_.size();) {
    AUTOPAR_RETURN_IF_ERROR(comms_.state_of(under_way_[i]->comm));
    AUTOPAR_TRY(arrived, under_way_[i]->arrived.passed());
    if (!arrived) {
      ++i;
      continue;
    }
    idle_.push_back(std::move(under_way_[i]));
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return under_way_.empty();
}

Result<cudaStream_t> GpuMessages::stream_of(ncclComm_t comm) {
  const auto known = streams_.find(comm);
  if (known != streams_.end()) return known->second;
  AUTOPAR_TRY(stream, gpu_.make_stream());
  streams_[comm] = stream;
  return stream;
}

}  // namespace autopar
