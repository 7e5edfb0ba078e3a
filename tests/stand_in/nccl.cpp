// The stand-in for NCCL: the entries of the library. Calls are checked here as far as one rank can
// tell, and handed to their communicator.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "communicator.hpp"
#include "device.h"
#include "referee.hpp"

using namespace stand_in;

namespace {

thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Call>> group_calls;

std::string wrong_buffer(const ncclComm& comm, const void* pointer, std::size_t bytes,
                         const char* name) {
  int device = 0;
  if (bytes == 0) return "";
  if (stand_in_memory(pointer, 1, nullptr) == nullptr) {
    return std::string("the ") + name + " buffer is no device pointer (or one that was freed)";
  }
  if (stand_in_memory(pointer, bytes, &device) == nullptr) {
    return std::string("the ") + name + " buffer: " + std::to_string(bytes) +
           " bytes reach beyond the end of its allocation";
  }
  if (device != comm.device) return std::string("the ") + name + " buffer is on another GPU";
  return "";
}

// In place only as NCCL's manual allows it: the same address, or the rank's own part of the whole.
bool overlaps_badly(const ncclComm& comm, const Call& call) {
  const char* sent = static_cast<const char*>(call.sent);
  const char* received = static_cast<const char*>(call.received);
  if (call.sent_bytes == 0 || call.received_bytes == 0) return false;
  if (sent >= received + call.received_bytes || received >= sent + call.sent_bytes) return false;
  const auto rank = static_cast<std::size_t>(comm.rank);
  switch (call.op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
      return sent != received;
    case OpKind::kAllGather:
      return sent != received + rank * call.sent_bytes;
    case OpKind::kReduceScatter:
      return received != sent + rank * call.received_bytes;
    default:
      return true;
  }
}

std::string wrong_call(const ncclComm& comm, const Call& call) {
  if (stand_in_device_of(call.stream) < 0) return "the stream does not exist (any more)";
  if (stand_in_device_of(call.stream) != comm.device) return "the stream is of another GPU";
  if (comm.outstanding > 0 && comm.stream != call.stream) {
    return "the communicator has calls under way on another stream, which this stand-in cannot "
           "order";
  }
  const bool has_peer = call.op.kind == OpKind::kSend || call.op.kind == OpKind::kRecv ||
                        call.op.kind == OpKind::kBroadcast;
  if (has_peer && (call.op.peer < 0 || call.op.peer >= comm.ranks)) {
    return "rank " + std::to_string(call.op.peer) + " is none of the " +
           std::to_string(comm.ranks) + " ranks";
  }
  std::string wrong = wrong_buffer(comm, call.sent, call.sent_bytes, "send");
  if (wrong.empty()) wrong = wrong_buffer(comm, call.received, call.received_bytes, "receive");
  if (wrong.empty() && overlaps_badly(comm, call)) wrong = "the buffers overlap";
  return wrong;
}

ncclResult_t call(const char* name, ncclComm_t of, Call made) {
  ncclResult_t result = ncclSuccess;
  const auto comm = usable(of, name, result);
  if (!comm) return result;
  const std::string wrong = wrong_call(*comm, made);
  if (!wrong.empty()) return misuse(ncclInvalidArgument, std::string(name) + ": " + wrong);
  if (group_depth > 0) {
    group_calls.emplace_back(of, std::move(made));
    return ncclSuccess;
  }
  return launch(comm, {std::move(made)});
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  return 1;
}

int ranks_of(ncclComm_t comm) {
  const auto found = find(comm);
  return found ? found->ranks : 1;
}
int rank_of(ncclComm_t comm) {
  const auto found = find(comm);
  return found ? found->rank : 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* number) {
  *number = version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = stand_in::start_referee();
  if (name.empty() || name.size() >= sizeof id->internal) return ncclSystemError;
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  static constexpr const char* kTexts[] = {
      "no error",         "unhandled cuda error", "unhandled system error", "internal error",
      "invalid argument", "invalid usage",        "remote process exited",  "in progress"};
  return result >= 0 && result <= ncclInProgress ? kTexts[result] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t of) {
  const auto comm = find(of);
  if (!comm) return last_error().c_str();
  const std::lock_guard lock(comm->mutex);
  if (!comm->message.empty()) last_error() = comm->message;
  return last_error().c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (group_depth > 0) return misuse(ncclInvalidUsage, "init in a group is not in this stand-in");
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    return misuse(ncclInvalidArgument, "ncclCommInitRankConfig: the rank is none of the ranks");
  }
  if (config != nullptr && config->magic != NCCL_CONFIG_MAGIC) {
    return misuse(ncclInvalidArgument, "ncclCommInitRankConfig: the config is not initialised");
  }
  const std::string address(id.internal, strnlen(id.internal, sizeof id.internal));
  const auto comm = add_comm(address, stand_in_current_device());
  comm->rank = rank;
  comm->ranks = ranks;
  comm->blocking = config == nullptr || config->blocking != 0;
  *made = comm.get();
  const ncclResult_t joined = join(*comm, 0);
  return joined == ncclInProgress ? start(comm) : joined;
}

ncclResult_t ncclCommSplit(ncclComm_t of, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  if (group_depth > 0)
    return misuse(ncclInvalidUsage, "a split in a group is not in this stand-in");
  ncclResult_t result = ncclSuccess;
  const auto comm = usable(of, "ncclCommSplit", result);
  if (!comm) return result;
  if (comm->outstanding > 0) {
    return misuse(ncclInvalidUsage, "ncclCommSplit: calls on the parent are outstanding");
  }
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return misuse(ncclInvalidArgument, "ncclCommSplit: the color is negative");
  }
  Op op = op_of(OpKind::kSplit, static_cast<std::size_t>(static_cast<std::int64_t>(key)), ncclInt8,
                0, color);
  comm->split_target = made;
  comm->split_blocking = config == nullptr ? comm->blocking : config->blocking != 0;
  comm->doing = ncclComm::Doing::kSplitting;
  send_batch(*comm, {op});
  result = start(comm);
  // NCCL says success here where it has only begun (seen with 2.32.3).
  if (result == ncclInProgress) return ncclSuccess;
  if (result != ncclSuccess || *made == nullptr) return result;
  return start(find(*made));
}

ncclResult_t ncclCommFinalize(ncclComm_t of) {
  if (group_depth > 0) return misuse(ncclInvalidUsage, "ncclCommFinalize: a group is open");
  ncclResult_t result = ncclSuccess;
  const auto comm = usable(of, "ncclCommFinalize", result);
  if (!comm) return result;
  comm->finalized = true;
  comm->doing = ncclComm::Doing::kFinalizing;
  comm->polls = kPolls;
  return start(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t of) {
  const auto comm = find(of);
  if (!comm) return misuse(ncclInvalidUsage, "ncclCommDestroy: no communicator (any more)");
  if (group_depth > 0) return misuse(ncclInvalidUsage, "ncclCommDestroy: a group is open");
  if (comm->outstanding > 0 || comm->doing != ncclComm::Doing::kNothing) {
    return misuse(ncclInvalidUsage, "ncclCommDestroy: calls are outstanding");
  }
  give_up(comm, Request::kLeave);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t of) {
  const auto comm = find(of);
  if (!comm) return misuse(ncclInvalidUsage, "ncclCommAbort: no communicator (any more)");
  give_up(comm, Request::kAbort);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t of, ncclResult_t* state) {
  const auto comm = find(of);
  if (!comm) return misuse(ncclInvalidArgument, "ncclCommGetAsyncError: no communicator");
  if (group_depth > 0) {
    return misuse(ncclInvalidUsage, "a group of calls is open, so nothing of it will ever be done");
  }
  const bool done = advance(comm);
  *state = comm->error != ncclSuccess ? comm->error.load() : done ? ncclSuccess : ncclInProgress;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* sent, void* received, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return call("ncclAllReduce", comm,
              {op_of(OpKind::kAllReduce, count, type, op), sent, bytes, received, bytes, stream});
}

ncclResult_t ncclAllGather(const void* sent, void* received, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto ranks = static_cast<std::size_t>(ranks_of(comm));
  return call(
      "ncclAllGather", comm,
      {op_of(OpKind::kAllGather, count, type), sent, bytes, received, ranks * bytes, stream});
}

ncclResult_t ncclReduceScatter(const void* sent, void* received, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  const auto ranks = static_cast<std::size_t>(ranks_of(comm));
  return call("ncclReduceScatter", comm,
              {op_of(OpKind::kReduceScatter, count, type, op), sent, ranks * bytes, received, bytes,
               stream});
}

ncclResult_t ncclBroadcast(const void* sent, void* received, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type);
  return call("ncclBroadcast", comm,
              {op_of(OpKind::kBroadcast, count, type, 0, root), sent,
               rank_of(comm) == root ? bytes : 0, received, bytes, stream});
}

ncclResult_t ncclAlltoAll(const void* sent, void* received, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
  const std::size_t bytes = count * size_of(type) * static_cast<std::size_t>(ranks_of(comm));
  if (version() < 22803) {
    return misuse(ncclInvalidUsage, "ncclAlltoAll: this version does not have it");
  }
  return call("ncclAlltoAll", comm,
              {op_of(OpKind::kAllToAll, count, type), sent, bytes, received, bytes, stream});
}

ncclResult_t ncclSend(const void* sent, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return call("ncclSend", comm,
              {op_of(OpKind::kSend, count, type, 0, peer), sent, count * size_of(type), nullptr, 0,
               stream});
}

ncclResult_t ncclRecv(void* received, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call("ncclRecv", comm,
              {op_of(OpKind::kRecv, count, type, 0, peer), nullptr, 0, received,
               count * size_of(type), stream});
}

ncclResult_t ncclGroupStart(void) {
  if (group_depth++ == 0) {
    stand_in_hold_thread("a group of NCCL calls is open, so that none of them is on the stream");
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (group_depth == 0) return misuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  stand_in_hold_thread(nullptr);
  // The calls of each communicator are one batch, in the order of their first calls.
  std::vector<std::pair<ncclComm_t, std::vector<Call>>> batches;
  for (auto& [comm, made] : group_calls) {
    std::vector<Call>* batch = nullptr;
    for (auto& [known, calls] : batches) {
      if (known == comm) batch = &calls;
    }
    if (batch == nullptr) batch = &batches.emplace_back(comm, std::vector<Call>{}).second;
    batch->push_back(std::move(made));
  }
  group_calls.clear();
  ncclResult_t result = ncclSuccess;
  for (auto& [of, calls] : batches) {
    const auto comm = usable(of, "ncclGroupEnd", result);
    if (!comm) return result;
    for (const Call& each : calls) {
      if (each.stream != calls.front().stream) {
        return misuse(ncclInvalidUsage, "a group on several streams is not in this stand-in");
      }
    }
    const ncclResult_t launched = launch(comm, std::move(calls));
    if (launched != ncclSuccess) result = launched;
  }
  return result;
}

}  // extern "C"
