// A rank's end of a communicator of the stand-in for NCCL: it joins, splits, puts calls on their
// stream, and brings them to the referee when the stream comes to them. The entries of the library
// (nccl.cpp) check what they are given and ask this.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "exec/nccl/nccl_api.h"
#include "frames.hpp"

namespace stand_in {

// So often a non-blocking call is asked for before it is done.
inline constexpr int kPolls = 2;

// A call with its buffers: what it sends and receives, in bytes.
struct Call {
  Op op;
  const void* sent = nullptr;
  std::size_t sent_bytes = 0;
  void* received = nullptr;
  std::size_t received_bytes = 0;
  cudaStream_t stream = nullptr;
};

}  // namespace stand_in

struct ncclComm {
  int socket = -1;
  stand_in::Inbox inbox;
  std::string address;
  int rank = 0;
  int ranks = 0;
  int device = 0;
  bool blocking = true;
  std::atomic<ncclResult_t> error = ncclSuccess;
  std::mutex mutex;  // of `message`
  std::string message;
  std::atomic<bool> aborted = false;
  std::atomic<int> outstanding = 0;  // batches on a stream
  cudaStream_t stream = nullptr;     // of the last one
  bool finalized = false;
  std::size_t calls = 0;
  std::set<int> connected;  // the peers of Send and Recv

  enum class Doing { kNothing, kJoining, kSplitting, kConnecting, kLaunching, kFinalizing };
  Doing doing = Doing::kNothing;
  int polls = 0;
  std::vector<stand_in::Call> launch;
  ncclComm_t* split_target = nullptr;
  bool split_blocking = true;

  void set_error(ncclResult_t code, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (error != ncclSuccess) return;
    message = text;
    error = code;
  }
};

namespace stand_in {

// The number of the version that it stands in for.
int version();
// The text of the last error of the calling thread.
std::string& last_error();
ncclResult_t misuse(ncclResult_t result, const std::string& text);

// Null: there is none (any more).
std::shared_ptr<ncclComm> find(ncclComm_t comm);
std::shared_ptr<ncclComm> add_comm(const std::string& address, int device);
// The communicator, if it may be called now.
std::shared_ptr<ncclComm> usable(ncclComm_t of, const char* call, ncclResult_t& result);

Op op_of(OpKind kind, std::size_t count, ncclDataType_t type, int reduce = 0, int peer = 0);
ncclResult_t join(ncclComm& comm, std::uint64_t number);
void send_batch(ncclComm& comm, const std::vector<Op>& ops);
// One step of what the communicator is doing; whether it is done.
bool advance(const std::shared_ptr<ncclComm>& comm);
// Begins what the communicator is to do; all of it where it blocks.
ncclResult_t start(const std::shared_ptr<ncclComm>& comm);
// Puts the calls on their stream; on a non-blocking communicator every other time only once it has
// been asked for.
ncclResult_t launch(const std::shared_ptr<ncclComm>& comm, std::vector<Call> calls);
// Ends the connection; what is on a stream ends too.
void give_up(const std::shared_ptr<ncclComm>& comm, Request how);

}  // namespace stand_in
