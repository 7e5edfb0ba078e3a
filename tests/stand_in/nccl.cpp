// The stand-in for NCCL: a rank's end. Calls are checked here as far as one rank can tell, put on
// the stream, and brought to the referee when the stream comes to them.
// One file, since it is one entry of the library after the other.
#include <sys/un.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device.h"
#include "exec/nccl/nccl_api.h"
#include "frames.hpp"
#include "referee.hpp"

using stand_in::Answer;
using stand_in::Inbox;
using stand_in::Op;
using stand_in::OpKind;
using stand_in::Reader;
using stand_in::Request;
using stand_in::Writer;

namespace {

// So often a non-blocking call is asked for before it is done.
constexpr int kPolls = 2;
constexpr int kSharedGpus = 23003;

// A call with its buffers: what it sends and receives, in bytes.
struct Call {
  Op op;
  const void* sent = nullptr;
  std::size_t sent_bytes = 0;
  void* received = nullptr;
  std::size_t received_bytes = 0;
  cudaStream_t stream = nullptr;
};

int version() {
  const char* text = std::getenv("AUTOPAR_STAND_IN_NCCL_VERSION");
  return text != nullptr ? std::atoi(text) : NCCL_VERSION_CODE;
}

thread_local std::string thread_error;
thread_local int group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Call>> group_calls;

ncclResult_t misuse(ncclResult_t result, const std::string& text) {
  thread_error = "stand-in: " + text;
  stand_in_note_misuse(text.c_str());
  return result;
}

}  // namespace

struct ncclComm {
  int socket = -1;
  Inbox inbox;
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
  std::vector<Call> launch;
  ncclComm_t* split_target = nullptr;
  bool split_blocking = true;

  void set_error(ncclResult_t code, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (error != ncclSuccess) return;
    message = text;
    error = code;
  }
};

namespace {

struct Comms {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> all;
};
Comms& comms() {
  static auto* all = new Comms;
  return *all;
}
std::shared_ptr<ncclComm> find(ncclComm_t comm) {
  const std::lock_guard lock(comms().mutex);
  const auto found = comms().all.find(comm);
  return found == comms().all.end() ? nullptr : found->second;
}
std::shared_ptr<ncclComm> add_comm(const std::string& address, int device) {
  auto comm = std::make_shared<ncclComm>();
  comm->address = address;
  comm->device = device;
  const std::lock_guard lock(comms().mutex);
  comms().all[comm.get()] = comm;
  return comm;
}
void forget(ncclComm_t comm) {
  const std::lock_guard lock(comms().mutex);
  comms().all.erase(comm);
}

int connect_to(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket < 0 || name.size() + 1 > sizeof address.sun_path) return -1;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), size) == 0) return socket;
  ::close(socket);
  return -1;
}

bool may_share_gpus() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version() >= kSharedGpus && enabled != nullptr && std::string(enabled) == "1";
}

ncclResult_t join(ncclComm& comm, std::uint64_t number) {
  comm.socket = connect_to(comm.address);
  if (comm.socket < 0) return misuse(ncclSystemError, "the unique id leads nowhere");
  stand_in::send_frame(comm.socket, Writer()
                                        .put(Request::kJoin)
                                        .put(number)
                                        .put<std::int32_t>(comm.ranks)
                                        .put<std::int32_t>(comm.rank)
                                        .put<std::int32_t>(comm.device)
                                        .put(may_share_gpus())
                                        .bytes());
  comm.doing = ncclComm::Doing::kJoining;
  return ncclInProgress;
}

void send_batch(ncclComm& comm, const std::vector<Op>& ops) {
  Writer writer;
  writer.put(Request::kBatch).put<std::uint32_t>(static_cast<std::uint32_t>(ops.size()));
  for (const Op& op : ops) {
    writer.put(op.kind).put(op.type).put(op.reduce).put(op.peer).put(op.count);
    writer.put_text(op.payload);
  }
  stand_in::send_frame(comm.socket, writer.bytes());
}

// The answer to the last request, if it is there: the error is set where it is one.
enum class Arrived { kNo, kDone, kFailed };
Arrived take_answer(ncclComm& comm, std::string& body) {
  const bool open = comm.inbox.read(comm.socket);
  if (!comm.inbox.take(body)) {
    if (open) return Arrived::kNo;
    comm.set_error(ncclRemoteError, "the connection to the referee (the process of rank 0) ended");
    return Arrived::kFailed;
  }
  Reader reader(body);
  if (reader.take<Answer>() == Answer::kDone) return Arrived::kDone;
  const auto code = reader.take<ncclResult_t>();
  comm.set_error(code, "stand-in: " + reader.text());
  return Arrived::kFailed;
}

// What a stream does when it comes to a batch.
struct OnStream {
  std::shared_ptr<ncclComm> comm;
  std::vector<Call> calls;
};

void run_on_stream(OnStream& batch) {
  ncclComm& comm = *batch.comm;
  std::vector<Op> ops;
  for (Call& call : batch.calls) {
    ops.push_back(call.op);
    if (call.sent_bytes == 0) continue;
    const void* memory = stand_in_memory(call.sent, call.sent_bytes, nullptr);
    if (memory == nullptr) return stand_in_note_misuse("a buffer was freed before NCCL read it");
    ops.back().payload.assign(static_cast<const char*>(memory), call.sent_bytes);
  }
  send_batch(comm, ops);
  std::string body;
  Arrived arrived = Arrived::kNo;
  // After an error what is on the stream does not end before the communicator is aborted.
  while (arrived != Arrived::kDone) {
    if (comm.aborted) return;
    if (arrived == Arrived::kFailed) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    pollfd socket{comm.socket, POLLIN, 0};
    ::poll(&socket, 1, 2);
    arrived = take_answer(comm, body);
  }
  Reader reader(body);
  reader.take<Answer>();
  for (const Call& call : batch.calls) {
    const std::string result = reader.text();
    if (call.received_bytes == 0) continue;
    void* memory = stand_in_memory(call.received, call.received_bytes, nullptr);
    if (memory == nullptr) return stand_in_note_misuse("a buffer was freed before NCCL wrote it");
    if (result.size() != call.received_bytes) {
      return stand_in_note_misuse("a buffer has not the size of what arrives");
    }
    std::memcpy(memory, result.data(), result.size());
  }
}

void enqueue(const std::shared_ptr<ncclComm>& comm) {
  auto* batch = new OnStream{comm, std::move(comm->launch)};
  comm->launch.clear();
  ++comm->outstanding;
  const cudaStream_t stream = batch->calls.front().stream;
  stand_in_hold_stream(stream, nullptr);
  stand_in_enqueue(
      stream,
      [](void* argument) {
        const std::unique_ptr<OnStream> owned(static_cast<OnStream*>(argument));
        run_on_stream(*owned);
        --owned->comm->outstanding;
      },
      batch);
}

void finish_split(ncclComm& parent, const std::string& body) {
  Reader reader(body);
  reader.take<Answer>();
  const std::string result = reader.text();
  Reader made(result);
  const auto number = made.take<std::uint64_t>();
  ncclComm_t child = nullptr;
  if (number != 0) {
    const auto comm = add_comm(parent.address, parent.device);
    comm->blocking = parent.split_blocking;
    comm->ranks = made.take<std::int32_t>();
    comm->rank = made.take<std::int32_t>();
    join(*comm, number);
    child = comm.get();
  }
  *parent.split_target = child;
}

// One step of what the communicator is doing; whether it is done.
bool advance(const std::shared_ptr<ncclComm>& comm) {
  if (comm->error != ncclSuccess) return true;
  std::string body;
  switch (comm->doing) {
    case ncclComm::Doing::kNothing:
      return true;
    case ncclComm::Doing::kJoining:
    case ncclComm::Doing::kSplitting: {
      const Arrived arrived = take_answer(*comm, body);
      if (arrived == Arrived::kNo) return false;
      const bool split = comm->doing == ncclComm::Doing::kSplitting;
      if (arrived == Arrived::kDone && split) finish_split(*comm, body);
      break;
    }
    case ncclComm::Doing::kConnecting: {
      if (take_answer(*comm, body) == Arrived::kNo) return false;
      comm->doing = ncclComm::Doing::kLaunching;
      return false;
    }
    case ncclComm::Doing::kLaunching:
      if (--comm->polls > 0) return false;
      enqueue(comm);
      break;
    case ncclComm::Doing::kFinalizing:
      if (--comm->polls > 0 || comm->outstanding > 0) return false;
      break;
  }
  comm->doing = ncclComm::Doing::kNothing;
  return true;
}

ncclResult_t start(const std::shared_ptr<ncclComm>& comm) {
  if (!comm->blocking) return ncclInProgress;
  while (!advance(comm)) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return comm->error;
}

// The communicator, if it may be called now.
std::shared_ptr<ncclComm> usable(ncclComm_t of, const char* call, ncclResult_t& result) {
  auto comm = find(of);
  std::string why;
  if (!comm) {
    why = "the communicator does not exist (any more)";
  } else if (comm->error != ncclSuccess) {
    thread_error = comm->message;
    result = comm->error;
    return nullptr;
  } else if (comm->finalized) {
    why = "the communicator is finalized";
  } else if (comm->doing != ncclComm::Doing::kNothing) {
    why = "the call before is in progress; ask ncclCommGetAsyncError until it is not";
  } else {
    return comm;
  }
  result = misuse(ncclInvalidUsage, std::string(call) + ": " + why);
  return nullptr;
}

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

constexpr const char* kInProgress =
    "a call of NCCL that belongs on the stream is in progress; ask ncclCommGetAsyncError until it "
    "is "
    "not";

Op op_of(OpKind kind, std::size_t count, ncclDataType_t type, int reduce = 0, int peer = 0) {
  return {kind, static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(reduce), peer, count,
          ""};
}

// Puts the calls on their stream; on a non-blocking communicator every other time only once it has
// been asked for.
ncclResult_t launch(const std::shared_ptr<ncclComm>& comm, std::vector<Call> calls) {
  comm->launch = std::move(calls);
  const cudaStream_t stream = comm->launch.front().stream;
  comm->stream = stream;
  const Op op = comm->launch.front().op;
  const bool sends = op.kind == OpKind::kSend;
  if (comm->launch.size() == 1 && (sends || op.kind == OpKind::kRecv) &&
      comm->connected.insert(op.peer).second) {
    // The first message of two ranks: both are there before either goes on.
    send_batch(*comm, {op_of(sends ? OpKind::kRecv : OpKind::kSend, 0, ncclInt8, 0, op.peer)});
    comm->doing = ncclComm::Doing::kConnecting;
    comm->polls = 1;
    stand_in_hold_stream(stream, kInProgress);
    return start(comm);
  }
  if (comm->blocking || comm->calls++ % 2 != 0) {
    enqueue(comm);
    return ncclSuccess;
  }
  comm->doing = ncclComm::Doing::kLaunching;
  comm->polls = kPolls;
  stand_in_hold_stream(stream, kInProgress);
  return ncclInProgress;
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

// Ends the connection; what is on a stream ends too.
void give_up(const std::shared_ptr<ncclComm>& comm, Request how) {
  comm->aborted = true;
  if (comm->doing == ncclComm::Doing::kLaunching) {
    stand_in_hold_stream(comm->launch.front().stream, nullptr);
  }
  if (comm->socket >= 0) stand_in::send_frame(comm->socket, Writer().put(how).bytes());
  while (comm->outstanding > 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (comm->socket >= 0) ::close(comm->socket);
  forget(comm.get());
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
  if (!comm) return thread_error.c_str();
  const std::lock_guard lock(comm->mutex);
  if (!comm->message.empty()) thread_error = comm->message;
  return thread_error.c_str();
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
