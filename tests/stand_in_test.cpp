// The stand-in for CUDA and NCCL catches what the real ones would answer with garbage or a hang.
#include <catch2/catch.hpp>

#include "stand_in/ranks.hpp"

namespace autopar::stand_in_test {
namespace {

using Catch::Matchers::Contains;
using stand_in::Libraries;

// One rank's things, used as a program would.
struct Rank {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  void* sent = nullptr;      // of 64 bytes
  void* received = nullptr;  // of 64 bytes
};

// Two ranks in this thread, on non-blocking communicators.
class Pair {
 public:
  explicit Pair(const GpuLibraries& entries) : cuda(entries.cuda), nccl(entries.nccl) {
    ncclUniqueId id;
    REQUIRE(nccl.unique_id(&id) == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      cuda.set_device(rank);
      REQUIRE(nccl.init(&ranks[rank].comm, 2, id, rank, &config) == ncclInProgress);
      cuda.create_stream(&ranks[rank].stream, cudaStreamNonBlocking);
      cuda.allocate(&ranks[rank].sent, 64);
      cuda.allocate(&ranks[rank].received, 64);
    }
    for (Rank& rank : ranks) REQUIRE(settled(rank.comm) == ncclSuccess);
  }
  ~Pair() {
    for (int r = 0; r < 2; ++r) {
      cuda.set_device(r);
      if (ranks[r].comm != nullptr) nccl.abort(ranks[r].comm);
      if (ranks[r].stream != nullptr) cuda.destroy_stream(ranks[r].stream);
      cuda.free(ranks[r].sent);
      cuda.free(ranks[r].received);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // The state once it is no longer ncclInProgress, at most two seconds later.
  ncclResult_t settled(ncclComm_t comm) const {
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 2000 && state == ncclInProgress; ++i) {
      REQUIRE(nccl.async_error(comm, &state) == ncclSuccess);
      if (state == ncclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return state;
  }
  // The first error of the communicator, which may come after a while.
  ncclResult_t failure(ncclComm_t comm) const {
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 2000 && (state == ncclSuccess || state == ncclInProgress); ++i) {
      REQUIRE(nccl.async_error(comm, &state) == ncclSuccess);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return state;
  }
  std::string last_error(ncclComm_t comm) const { return nccl.last_error(comm); }
  // Until all is done that is on the stream of a rank.
  void drain(int rank) const {
    cuda.set_device(rank);
    cudaEvent_t event = nullptr;
    REQUIRE(cuda.create_event(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cuda.record_event(event, ranks[rank].stream) == cudaSuccess);
    for (int i = 0; i < 2000 && cuda.query_event(event) != cudaSuccess; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    REQUIRE(cuda.query_event(event) == cudaSuccess);
    cuda.destroy_event(event);
  }

  ncclResult_t all_reduce(int rank, std::size_t count = 4) const {
    const Rank& r = ranks[rank];
    return nccl.all_reduce(r.sent, r.received, count, ncclFloat32, ncclSum, r.comm, r.stream);
  }

  const CudaEntries& cuda;
  const NcclEntries& nccl;
  Rank ranks[2];
};

const GpuLibraries& entries() {
  static const GpuLibraries opened = [] {
    const Libraries libraries;
    auto result = open_gpu_libraries();
    AUTOPAR_CHECK(result.ok(), "the stand-in cannot be opened");
    return *result;
  }();
  return opened;
}

TEST_CASE("stand-in: buffers", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  const Rank& rank = pair.ranks[0];
  char host[64] = {};
  const auto all_reduce = [&](const void* sent, void* received, std::size_t count) {
    return pair.nccl.all_reduce(sent, received, count, ncclFloat32, ncclSum, rank.comm,
                                rank.stream);
  };
  SECTION("host memory") {
    CHECK(all_reduce(host, rank.received, 4) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("the send buffer is no device pointer"));
    CHECK(all_reduce(rank.sent, host, 4) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("the receive buffer is no device pointer"));
  }
  SECTION("beyond the end") {
    CHECK(all_reduce(rank.sent, rank.received, 17) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("68 bytes reach beyond the end of its allocation"));
    CHECK(pair.nccl.all_gather(rank.sent, rank.received, 9, ncclFloat32, rank.comm, rank.stream) ==
          ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("72 bytes reach beyond"));
  }
  SECTION("of another GPU") {
    CHECK(all_reduce(pair.ranks[1].sent, rank.received, 4) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("the send buffer is on another GPU"));
  }
  SECTION("that overlap") {
    CHECK(all_reduce(rank.sent, static_cast<char*>(rank.sent) + 4, 4) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("the buffers overlap"));
  }
  SECTION("copies") {
    const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
      return pair.cuda.copy(to, from, bytes, kind, rank.stream);
    };
    CHECK(copy(rank.sent, rank.received, 8, cudaMemcpyHostToDevice) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("the source is a device pointer where a host pointer"));
    CHECK(copy(host, rank.sent, 8, cudaMemcpyDeviceToDevice) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("the target is no device pointer"));
    CHECK(copy(rank.sent, host, 65, cudaMemcpyHostToDevice) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("65 bytes reach beyond"));
    CHECK(pair.cuda.copy_rows(rank.sent, 16, rank.received, 32, 8, 3, cudaMemcpyDeviceToDevice,
                              rank.stream) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("72 bytes reach beyond"));
    CHECK(pair.cuda.copy_rows(rank.sent, 4, rank.received, 8, 8, 2, cudaMemcpyDeviceToDevice,
                              rank.stream) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("a pitch is too small"));
  }
  SECTION("freed twice, and used after") {
    void* memory = nullptr;
    pair.cuda.set_device(0);
    pair.cuda.allocate(&memory, 64);
    CHECK(pair.cuda.free(memory) == cudaSuccess);
    CHECK(all_reduce(memory, rank.received, 4) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("or one that was freed"));
    CHECK(pair.cuda.free(memory) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("freed already"));
  }
}

TEST_CASE("stand-in: streams and events", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  Rank& rank = pair.ranks[0];
  cudaEvent_t event = nullptr;
  pair.cuda.set_device(0);
  pair.cuda.create_event(&event, cudaEventDisableTiming);
  SECTION("a stream that was destroyed") {
    const cudaStream_t gone = rank.stream;
    CHECK(pair.cuda.destroy_stream(gone) == cudaSuccess);
    CHECK(pair.all_reduce(0) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("ncclAllReduce: the stream does not exist (any more)"));
    CHECK(pair.cuda.record_event(event, gone) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("cudaEventRecord: the stream does not exist"));
    rank.stream = nullptr;
  }
  SECTION("a stream of another GPU") {
    CHECK(pair.nccl.all_reduce(rank.sent, rank.received, 4, ncclFloat32, ncclSum, rank.comm,
                               pair.ranks[1].stream) == ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("the stream is of another GPU"));
  }
  SECTION("an event that was destroyed") {
    CHECK(pair.cuda.destroy_event(event) == cudaSuccess);
    CHECK(pair.cuda.query_event(event) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("no such event (any more)"));
    event = nullptr;
  }
  if (event != nullptr) pair.cuda.destroy_event(event);
}

TEST_CASE("stand-in: calls in progress", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  const Rank& rank = pair.ranks[0];
  REQUIRE(pair.all_reduce(0) == ncclInProgress);
  SECTION("another call") {
    CHECK(pair.all_reduce(0) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("the call before is in progress"));
  }
  SECTION("the stream") {
    char host[4];
    CHECK(pair.cuda.copy(host, rank.received, 4, cudaMemcpyDeviceToHost, rank.stream) !=
          cudaSuccess);
    CHECK_THAT(libraries.misuse(),
               Contains("a call of NCCL that belongs on the stream is in progress"));
  }
  SECTION("a split while something is outstanding") {
    CHECK(pair.settled(rank.comm) == ncclSuccess);  // on the stream, but rank 1 does not come
    ncclComm_t made = nullptr;
    CHECK(pair.nccl.split(rank.comm, 0, 0, &made, nullptr) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("ncclCommSplit: calls on the parent are outstanding"));
  }
  SECTION("its end") {
    CHECK(pair.settled(rank.comm) == ncclSuccess);
    CHECK(pair.nccl.destroy(rank.comm) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("ncclCommDestroy: calls are outstanding"));
  }
}

TEST_CASE("stand-in: groups of calls", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  const Rank& rank = pair.ranks[0];
  SECTION("that are not closed") {
    cudaEvent_t event = nullptr;
    pair.cuda.set_device(0);
    pair.cuda.create_event(&event, cudaEventDisableTiming);
    CHECK(pair.nccl.group_start() == ncclSuccess);
    CHECK(pair.all_reduce(0) == ncclSuccess);
    CHECK(pair.cuda.record_event(event, rank.stream) != cudaSuccess);
    CHECK_THAT(libraries.misuse(), Contains("a group of NCCL calls is open, so that none"));
    ncclResult_t state = ncclSuccess;
    CHECK(pair.nccl.async_error(rank.comm, &state) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("nothing of it will ever be done"));
    CHECK(pair.nccl.destroy(rank.comm) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("ncclCommDestroy: a group is open"));
    static_cast<void>(pair.nccl.group_end());
    pair.cuda.destroy_event(event);
  }
  SECTION("that were never opened") {
    CHECK(pair.nccl.group_end() == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("ncclGroupEnd without ncclGroupStart"));
  }
}

TEST_CASE("stand-in: communicators", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  Rank& first = pair.ranks[0];
  Rank& second = pair.ranks[1];
  ncclComm_t made[2] = {};
  SECTION("used after their end") {
    const ncclComm_t gone = first.comm;
    CHECK(pair.nccl.destroy(gone) == ncclSuccess);
    CHECK(pair.all_reduce(0) == ncclInvalidUsage);
    CHECK_THAT(libraries.misuse(), Contains("the communicator does not exist (any more)"));
    first.comm = nullptr;
  }
  SECTION("a config that is not initialised") {
    ncclConfig_t config{};
    ncclUniqueId id;
    REQUIRE(pair.nccl.unique_id(&id) == ncclSuccess);
    CHECK(pair.nccl.init(&made[0], 1, id, 0, &config) == ncclInvalidArgument);
  }
  SECTION("a split that one rank does not come to") {
    CHECK(pair.nccl.split(first.comm, 0, 0, &made[0], nullptr) == ncclSuccess);
    static_cast<void>(pair.all_reduce(1));
    CHECK(pair.failure(second.comm) == ncclInvalidUsage);
    CHECK(pair.failure(first.comm) == ncclInvalidUsage);
    CHECK_THAT(pair.last_error(first.comm),
               Contains("different calls") && Contains("with AllReduce") && Contains("with Split"));
  }
  SECTION("a split whose other rank has left") {
    CHECK(pair.nccl.split(first.comm, 0, 0, &made[0], nullptr) == ncclSuccess);
    CHECK(pair.nccl.destroy(second.comm) == ncclSuccess);
    second.comm = nullptr;
    CHECK(pair.failure(first.comm) == ncclRemoteError);
    CHECK_THAT(pair.last_error(first.comm),
               Contains("Split but rank 1 has destroyed its communicator"));
  }
  SECTION("a split into one group and nothing") {
    CHECK(pair.nccl.split(first.comm, 7, 0, &made[0], nullptr) == ncclSuccess);
    CHECK(pair.nccl.split(second.comm, NCCL_SPLIT_NOCOLOR, 0, &made[1], nullptr) == ncclSuccess);
    CHECK(made[0] == nullptr);  // assigned later
    CHECK(pair.settled(first.comm) == ncclSuccess);
    CHECK(pair.settled(second.comm) == ncclSuccess);
    REQUIRE(made[0] != nullptr);
    CHECK(made[1] == nullptr);
    CHECK(pair.settled(made[0]) == ncclSuccess);
    CHECK(pair.nccl.destroy(made[0]) == ncclSuccess);
    CHECK(libraries.misuse() == "");
  }
}

TEST_CASE("stand-in: messages", "[stand_in]") {
  const Libraries libraries;
  Pair pair(entries());
  Rank& first = pair.ranks[0];
  Rank& second = pair.ranks[1];
  const auto send = [&] {
    static_cast<void>(pair.nccl.send(first.sent, 4, ncclFloat32, 1, first.comm, first.stream));
  };
  // The first one waits for its receiver, the others do not.
  send();
  ncclResult_t state = ncclSuccess;
  for (int poll = 0; poll < 20; ++poll) {
    REQUIRE(pair.nccl.async_error(first.comm, &state) == ncclSuccess);
    REQUIRE(state == ncclInProgress);
  }
  static_cast<void>(pair.nccl.recv(second.received, 4, ncclFloat32, 0, second.comm, second.stream));
  REQUIRE(pair.settled(first.comm) == ncclSuccess);
  REQUIRE(pair.settled(second.comm) == ncclSuccess);
  send();
  REQUIRE(pair.settled(first.comm) == ncclSuccess);
  SECTION("to a rank that has left") {
    pair.drain(1);
    CHECK(pair.nccl.destroy(second.comm) == ncclSuccess);
    second.comm = nullptr;
    CHECK(pair.failure(first.comm) == ncclRemoteError);
    CHECK_THAT(pair.last_error(first.comm),
               Contains("Send of 4 float32 to 1 but rank 1 has destroyed"));
  }
  SECTION("of another size than is received") {
    static_cast<void>(
        pair.nccl.recv(second.received, 5, ncclFloat32, 0, second.comm, second.stream));
    CHECK(pair.failure(second.comm) == ncclInvalidUsage);
    CHECK_THAT(pair.last_error(second.comm), Contains("a Recv takes something else than was sent"));
  }
  SECTION("to no rank") {
    CHECK(pair.nccl.send(second.sent, 4, ncclFloat32, 2, second.comm, second.stream) ==
          ncclInvalidArgument);
    CHECK_THAT(libraries.misuse(), Contains("rank 2 is none of the 2 ranks"));
  }
}

}  // namespace
}  // namespace autopar::stand_in_test
