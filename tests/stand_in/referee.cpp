#include "referee.hpp"

#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "exec/nccl/nccl_api.h"
#include "exec/reduce.hpp"
#include "frames.hpp"

namespace stand_in {

namespace {

constexpr int kPatience = 500;  // milliseconds

using autopar::DType;
using autopar::ReduceOp;

const char* name_of(OpKind kind) {
  static constexpr const char* kNames[] = {"AllReduce", "AllGather", "ReduceScatter", "Broadcast",
                                           "AlltoAll",  "Split",     "Send",          "Recv"};
  return kNames[static_cast<int>(kind)];
}

struct Type {
  const char* name;
  std::size_t size;
  DType dtype;
};
const Type& type_of(std::uint8_t type) {
  static constexpr Type kTypes[] = {
      {"int8", 1, DType::kInt8},       {"uint8", 1, DType::kUInt8},
      {"int32", 4, DType::kInt32},     {"uint32", 4, DType::kUInt32},
      {"int64", 8, DType::kInt64},     {"uint64", 8, DType::kUInt64},
      {"float16", 2, DType::kFloat16}, {"float32", 4, DType::kFloat32},
      {"float64", 8, DType::kFloat64}, {"bfloat16", 2, DType::kBFloat16}};
  return kTypes[type < std::size(kTypes) ? type : 0];
}

ReduceOp reduce_op_of(std::uint8_t op) {
  static constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax,
                                      ReduceOp::kMin, ReduceOp::kAvg};
  return kOps[op < std::size(kOps) ? op : 0];
}
const char* reduce_name(std::uint8_t op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return kNames[op < std::size(kNames) ? op : 0];
}

bool reduces(OpKind kind) { return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter; }
bool is_message(OpKind kind) { return kind == OpKind::kSend || kind == OpKind::kRecv; }

std::string text_of(const Op& op) {
  std::string text = name_of(op.kind);
  if (op.kind == OpKind::kSplit) return text;
  text += " of " + std::to_string(op.count) + " " + type_of(op.type).name;
  if (reduces(op.kind)) text += std::string(" (") + reduce_name(op.reduce) + ")";
  if (op.kind == OpKind::kBroadcast) text += " (root " + std::to_string(op.peer) + ")";
  if (op.kind == OpKind::kSend) text += " to " + std::to_string(op.peer);
  if (op.kind == OpKind::kRecv) text += " from " + std::to_string(op.peer);
  return text;
}

bool match(const Op& a, const Op& b) {
  if (a.kind != b.kind) return false;
  if (a.kind == OpKind::kSplit) return true;
  return a.type == b.type && a.count == b.count && (!reduces(a.kind) || a.reduce == b.reduce) &&
         (a.kind != OpKind::kBroadcast || a.peer == b.peer);
}

struct Pending {
  Op op;
  std::string result;
  bool done = false;
};

struct Connection {
  int socket = -1;
  Inbox inbox;
  std::uint64_t comm = 0;
  int rank = -1;   // in the communicator; -1: has not joined
  int world = -1;  // rank in the world
  int device = -1;
  std::vector<std::unique_ptr<Pending>> batch;  // under way

  // What it waits for, messages that it sends apart.
  const Pending* waits_for() const {
    for (const auto& pending : batch) {
      if (!pending->done && pending->op.kind != OpKind::kSend) return pending.get();
    }
    return nullptr;
  }
};

struct Comm {
  std::vector<int> world;            // rank in the world, by rank
  std::vector<Connection*> members;  // null: has not joined, or has left
  std::vector<std::string> left;     // by rank: how it left
  std::vector<std::deque<Pending*>> collectives;
  std::map<std::pair<int, int>, std::deque<Pending*>> sends, recvs;  // by (from, to)
  std::size_t joined = 0;
  std::string failure;

  explicit Comm(std::vector<int> ranks) : world(std::move(ranks)) {
    members.resize(world.size());
    left.resize(world.size());
    collectives.resize(world.size());
  }
  std::string name() const {
    std::string text;
    for (int rank : world) text += (text.empty() ? "[" : ",") + std::to_string(rank);
    return text + "]";
  }
  std::string rank_name(std::size_t rank) const { return "rank " + std::to_string(world[rank]); }
};

class Referee {
 public:
  explicit Referee(int listener) : listener_(listener) {}
  void accept();
  void run();

 private:
  void handle(Connection& from, const std::string& body);
  void join(Connection& from, Reader reader);
  void take_batch(Connection& from, Reader reader);
  void leave(Connection& from, const std::string& how);
  bool add(Comm& comm, Connection& from, Pending& pending);
  void progress(Comm& comm);
  void perform(Comm& comm, const std::vector<Pending*>& heads);
  void split(Comm& comm, const std::vector<Pending*>& heads);
  void pass_on(Comm& comm, std::pair<int, int> pair);
  void complete(Connection& of);
  void fail(Comm& comm, ncclResult_t code, const std::string& why);
  bool ranks_wait_for_each_other(std::string& text, std::set<std::uint64_t>& where);

  int listener_;
  std::map<int, std::unique_ptr<Connection>> connections_;
  std::map<std::uint64_t, std::unique_ptr<Comm>> comms_;  // 0: the world
  std::uint64_t next_comm_ = 1;
};

void Referee::accept() {
  const int socket = ::accept(listener_, nullptr, nullptr);
  if (socket < 0) return;
  connections_[socket] = std::make_unique<Connection>();
  connections_[socket]->socket = socket;
}

// Until all that have come are gone. That all wait for each other counts only when for a while
// nothing more arrives: what a rank has put on another stream may still be on its way.
void Referee::run() {
  while (!connections_.empty()) {
    std::vector<pollfd> sockets;
    sockets.push_back({listener_, POLLIN, 0});
    for (const auto& [socket, connection] : connections_) sockets.push_back({socket, POLLIN, 0});
    std::string text;
    std::set<std::uint64_t> where;
    const bool stuck = ranks_wait_for_each_other(text, where);
    const int ready = ::poll(sockets.data(), sockets.size(), stuck ? kPatience : -1);
    if (ready < 0) continue;
    if (ready == 0) {
      for (std::uint64_t comm : where) {
        fail(*comms_[comm], ncclInvalidUsage, "the ranks wait for each other: " + text);
      }
    }
    if (sockets[0].revents != 0) accept();
    for (std::size_t i = 1; i < sockets.size(); ++i) {
      const auto found = connections_.find(sockets[i].fd);
      if (sockets[i].revents == 0 || found == connections_.end()) continue;
      Connection& from = *found->second;
      const bool open = from.inbox.read(from.socket);
      std::string body;
      while (from.inbox.take(body)) handle(from, body);
      if (!open) {
        leave(from, "has ended without leaving");
        ::close(from.socket);
        connections_.erase(sockets[i].fd);
      }
    }
  }
  ::close(listener_);
}

void Referee::handle(Connection& from, const std::string& body) {
  Reader reader(body);
  switch (reader.take<Request>()) {
    case Request::kJoin:
      return join(from, reader);
    case Request::kBatch:
      return take_batch(from, reader);
    case Request::kLeave:
      return leave(from, "has destroyed its communicator");
    case Request::kAbort:
      return leave(from, "has aborted its communicator");
  }
}

void Referee::join(Connection& from, Reader reader) {
  from.comm = reader.take<std::uint64_t>();
  const auto ranks = static_cast<std::size_t>(reader.take<std::int32_t>());
  from.rank = reader.take<std::int32_t>();
  from.device = reader.take<std::int32_t>();
  const bool may_share = reader.take<bool>();
  auto& comm = comms_[from.comm];
  if (!comm) {
    std::vector<int> world(ranks);
    for (std::size_t i = 0; i < ranks; ++i) world[i] = static_cast<int>(i);
    comm = std::make_unique<Comm>(std::move(world));
  }
  const auto rank = static_cast<std::size_t>(from.rank);
  if (ranks != comm->world.size() || rank >= ranks || comm->members[rank] != nullptr) {
    from.rank = -1;
    return fail(*comm, ncclInvalidUsage,
                "a rank joins twice, or ranks differ in the number of ranks");
  }
  comm->members[rank] = &from;
  from.world = comm->world[rank];
  if (!comm->failure.empty()) return fail(*comm, ncclRemoteError, comm->failure);
  for (const Connection* other : comm->members) {
    if (other != nullptr && other != &from && other->device == from.device && !may_share) {
      return fail(*comm, ncclInvalidUsage,
                  "Duplicate GPU detected: rank " + std::to_string(other->world) + " and rank " +
                      std::to_string(from.world) + " both on GPU " + std::to_string(from.device));
    }
  }
  if (++comm->joined < ranks) return;
  for (const Connection* member : comm->members) {
    send_frame(member->socket, Writer().put(Answer::kDone).bytes());
  }
}

void Referee::take_batch(Connection& from, Reader reader) {
  if (from.rank < 0) return;
  Comm& comm = *comms_[from.comm];
  const auto count = reader.take<std::uint32_t>();
  from.batch.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    auto pending = std::make_unique<Pending>();
    Op& op = pending->op;
    op.kind = reader.take<OpKind>();
    op.type = reader.take<std::uint8_t>();
    op.reduce = reader.take<std::uint8_t>();
    op.peer = reader.take<std::int32_t>();
    op.count = reader.take<std::uint64_t>();
    op.payload = reader.text();
    from.batch.push_back(std::move(pending));
  }
  if (!comm.failure.empty()) return fail(comm, ncclRemoteError, comm.failure);
  for (const auto& pending : from.batch) {
    if (!add(comm, from, *pending)) return;
  }
  progress(comm);
}

// False: the communicator has failed.
bool Referee::add(Comm& comm, Connection& from, Pending& pending) {
  const auto rank = static_cast<std::size_t>(from.rank);
  const Op& op = pending.op;
  if (is_message(op.kind)) {
    const auto peer = static_cast<std::size_t>(op.peer);
    if (!comm.left[peer].empty()) {
      fail(comm, ncclRemoteError,
           comm.rank_name(rank) + " calls " + text_of(op) + " but " + comm.rank_name(peer) + " " +
               comm.left[peer]);
      return false;
    }
    if (op.kind == OpKind::kSend) comm.sends[{from.rank, op.peer}].push_back(&pending);
    if (op.kind == OpKind::kRecv) comm.recvs[{op.peer, from.rank}].push_back(&pending);
    return true;
  }
  comm.collectives[rank].push_back(&pending);
  for (std::size_t p = 0; p < comm.world.size(); ++p) {
    if (!comm.left[p].empty()) {
      fail(comm, ncclRemoteError,
           comm.rank_name(rank) + " calls " + text_of(op) + " but " + comm.rank_name(p) + " " +
               comm.left[p]);
      return false;
    }
    const auto& queue = comm.collectives[p];
    if (p == rank || queue.empty() || comm.collectives[rank].size() > 1) continue;
    if (match(queue.front()->op, op)) continue;
    fail(comm, ncclInvalidUsage,
         "ranks come with different calls to the communicator of ranks " + comm.name() + ": " +
             comm.rank_name(rank) + " with " + text_of(op) + ", " + comm.rank_name(p) + " with " +
             text_of(queue.front()->op));
    return false;
  }
  return true;
}

void Referee::progress(Comm& comm) {
  std::vector<std::pair<int, int>> pairs;
  for (const auto& [pair, queue] : comm.sends) {
    if (!queue.empty()) pairs.push_back(pair);
  }
  for (const auto& pair : pairs) {
    pass_on(comm, pair);
    if (!comm.failure.empty()) return;
  }
  while (true) {
    std::vector<Pending*> heads;
    for (const auto& queue : comm.collectives) {
      if (!queue.empty()) heads.push_back(queue.front());
    }
    if (heads.size() < comm.world.size()) break;
    for (std::size_t p = 1; p < heads.size(); ++p) {
      if (match(heads[0]->op, heads[p]->op)) continue;
      return fail(comm, ncclInvalidUsage,
                  "ranks come with different calls to the communicator of ranks " + comm.name());
    }
    for (auto& queue : comm.collectives) queue.pop_front();
    perform(comm, heads);
    for (Pending* head : heads) head->done = true;
  }
  for (Connection* member : comm.members) {
    if (member != nullptr) complete(*member);
  }
}

void Referee::pass_on(Comm& comm, std::pair<int, int> pair) {
  auto& sends = comm.sends[pair];
  auto& recvs = comm.recvs[pair];
  while (!sends.empty() && !recvs.empty()) {
    Pending& send = *sends.front();
    Pending& recv = *recvs.front();
    if (send.op.count != recv.op.count || send.op.type != recv.op.type) {
      return fail(comm, ncclInvalidUsage,
                  "a Recv takes something else than was sent: " + text_of(send.op) + ", " +
                      text_of(recv.op));
    }
    recv.result = send.op.payload;
    send.done = recv.done = true;
    sends.pop_front();
    recvs.pop_front();
  }
}

void Referee::perform(Comm& comm, const std::vector<Pending*>& heads) {
  const Op& op = heads[0]->op;
  const Type& type = type_of(op.type);
  const std::size_t bytes = op.count * type.size;
  switch (op.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduceScatter: {
      const bool scatter = op.kind == OpKind::kReduceScatter;
      for (std::size_t p = 0; p < heads.size(); ++p) {
        std::vector<const void*> inputs;
        for (const Pending* head : heads) {
          inputs.push_back(head->op.payload.data() + (scatter ? p * bytes : 0));
        }
        heads[p]->result.resize(bytes);
        autopar::reduce(reduce_op_of(op.reduce), type.dtype, inputs, op.count,
                        heads[p]->result.data());
      }
      return;
    }
    case OpKind::kAllGather: {
      std::string all;
      for (const Pending* head : heads) all += head->op.payload;
      for (Pending* head : heads) head->result = all;
      return;
    }
    case OpKind::kBroadcast:
      for (Pending* head : heads) {
        head->result = heads[static_cast<std::size_t>(op.peer)]->op.payload;
      }
      return;
    case OpKind::kAllToAll:
      for (std::size_t p = 0; p < heads.size(); ++p) {
        for (const Pending* head : heads) {
          heads[p]->result += head->op.payload.substr(p * bytes, bytes);
        }
      }
      return;
    case OpKind::kSplit:
      return split(comm, heads);
    case OpKind::kSend:
    case OpKind::kRecv:
      return;
  }
}

// The result: number of the new communicator (0: none), its ranks, the rank in it.
void Referee::split(Comm& comm, const std::vector<Pending*>& heads) {
  std::map<int, std::vector<std::size_t>> colors;
  for (std::size_t p = 0; p < heads.size(); ++p) {
    if (heads[p]->op.peer >= 0) colors[heads[p]->op.peer].push_back(p);
  }
  for (Pending* head : heads) head->result = Writer().put<std::uint64_t>(0).bytes();
  for (auto& [color, ranks] : colors) {
    std::stable_sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) {
      return static_cast<std::int64_t>(heads[a]->op.count) <
             static_cast<std::int64_t>(heads[b]->op.count);
    });
    std::vector<int> world;
    for (std::size_t p : ranks) world.push_back(comm.world[p]);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      heads[ranks[i]]->result = Writer()
                                    .put<std::uint64_t>(next_comm_)
                                    .put<std::int32_t>(static_cast<std::int32_t>(ranks.size()))
                                    .put<std::int32_t>(static_cast<std::int32_t>(i))
                                    .bytes();
    }
    comms_[next_comm_++] = std::make_unique<Comm>(std::move(world));
  }
}

void Referee::complete(Connection& of) {
  if (of.batch.empty()) return;
  for (const auto& pending : of.batch) {
    if (!pending->done) return;
  }
  Writer answer;
  answer.put(Answer::kDone);
  for (const auto& pending : of.batch) answer.put_text(pending->result);
  of.batch.clear();
  send_frame(of.socket, answer.bytes());
}

void Referee::fail(Comm& comm, ncclResult_t code, const std::string& why) {
  comm.failure = why;
  for (auto& queue : comm.collectives) queue.clear();
  comm.sends.clear();
  comm.recvs.clear();
  for (Connection* member : comm.members) {
    if (member == nullptr) continue;
    member->batch.clear();
    send_frame(member->socket, Writer().put(Answer::kError).put(code).put_text(why).bytes());
  }
}

void Referee::leave(Connection& from, const std::string& how) {
  if (from.rank < 0) return;
  Comm& comm = *comms_[from.comm];
  const auto rank = static_cast<std::size_t>(from.rank);
  from.rank = -1;
  from.batch.clear();
  comm.members[rank] = nullptr;
  comm.left[rank] = how;
  comm.collectives[rank].clear();
  for (std::size_t p = 0; p < comm.world.size(); ++p) {
    if (comm.members[p] == nullptr) continue;
    for (const auto& pending : comm.members[p]->batch) {
      const bool waits =
          !is_message(pending->op.kind) || pending->op.peer == static_cast<std::int32_t>(rank);
      if (pending->done || !waits) continue;
      return fail(comm, ncclRemoteError,
                  comm.rank_name(p) + " waits in " + text_of(pending->op) + " but " +
                      comm.rank_name(rank) + " " + how);
    }
  }
  // Those that have joined wait for all others.
  if (comm.joined < comm.world.size() && comm.failure.empty()) {
    fail(comm, ncclRemoteError, comm.rank_name(rank) + " " + how);
  }
}

bool Referee::ranks_wait_for_each_other(std::string& text, std::set<std::uint64_t>& where) {
  const auto found = comms_.find(0);
  if (found == comms_.end() || found->second->joined < found->second->world.size()) return false;
  std::map<int, std::string> waiting;  // by rank of the world
  for (const auto& [socket, connection] : connections_) {
    const Pending* pending = connection->rank < 0 ? nullptr : connection->waits_for();
    if (pending == nullptr) continue;
    where.insert(connection->comm);
    waiting[connection->world] = "rank " + std::to_string(connection->world) + " in " +
                                 text_of(pending->op) + " of ranks " +
                                 comms_[connection->comm]->name();
  }
  std::size_t present = 0;
  for (const Connection* member : found->second->members) present += member != nullptr ? 1 : 0;
  for (const auto& [rank, state] : waiting) text += (text.empty() ? "" : ", ") + state;
  return !waiting.empty() && waiting.size() >= present;
}

// The referees of this process that have ranks.
struct Running {
  std::mutex mutex;
  std::condition_variable ended;
  int count = 0;
};
Running& running() {
  static auto* all = new Running;  // their threads may outlive static objects
  return *all;
}

// Other processes have to read what they were sent before this one ends.
void wait_for_referees() {
  std::unique_lock lock(running().mutex);
  running().ended.wait_for(lock, std::chrono::seconds(5), [] { return running().count == 0; });
}

void serve(int listener) {
  Referee referee(listener);
  referee.accept();
  {
    const std::lock_guard lock(running().mutex);
    ++running().count;
  }
  referee.run();
  const std::lock_guard lock(running().mutex);
  --running().count;
  running().ended.notify_all();
}

}  // namespace

std::string start_referee() {
  static int number = 0;
  std::random_device random;
  const std::string name = "autopar-stand-in-" + std::to_string(::getpid()) + "-" +
                           std::to_string(number++) + "-" + std::to_string(random());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // 0 first: not in the file system
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener, 128) != 0) {
    return "";
  }
  if (number == 1) std::atexit(wait_for_referees);
  std::thread(serve, listener).detach();
  return name;
}

}  // namespace stand_in
