#include "communicator.hpp"

#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "device.h"

namespace stand_in {
namespace {

constexpr int kSharedGpus = 23003;

struct Comms {
  std::mutex mutex;
  std::map<ncclComm_t, std::shared_ptr<ncclComm>> all;
};
Comms& comms() {
  static auto* all = new Comms;
  return *all;
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

constexpr const char* kInProgress =
    "a call of NCCL that belongs on the stream is in progress; ask ncclCommGetAsyncError until it "
    "is "
    "not";

bool may_share_gpus() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return version() >= kSharedGpus && enabled != nullptr && std::string(enabled) == "1";
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

}  // namespace

int version() {
  const char* text = std::getenv("AUTOPAR_STAND_IN_NCCL_VERSION");
  return text != nullptr ? std::atoi(text) : NCCL_VERSION_CODE;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t misuse(ncclResult_t result, const std::string& text) {
  last_error() = "stand-in: " + text;
  stand_in_note_misuse(text.c_str());
  return result;
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

std::shared_ptr<ncclComm> usable(ncclComm_t of, const char* call, ncclResult_t& result) {
  auto comm = find(of);
  std::string why;
  if (!comm) {
    why = "the communicator does not exist (any more)";
  } else if (comm->error != ncclSuccess) {
    last_error() = comm->message;
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

Op op_of(OpKind kind, std::size_t count, ncclDataType_t type, int reduce, int peer) {
  return {kind, static_cast<std::uint8_t>(type), static_cast<std::uint8_t>(reduce), peer, count,
          ""};
}

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

}  // namespace stand_in
