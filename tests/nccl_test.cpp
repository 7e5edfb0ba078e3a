// The communicator over NCCL, against a stand-in for CUDA and NCCL (tests/stand_in): what it gives
// is what the threads give.
#include <catch2/catch.hpp>
#include <cstring>

#include "exec/nccl/splits.hpp"
#include "nccl_calls.hpp"

namespace autopar::nccl_test {

using Catch::Matchers::Contains;
using stand_in::Libraries;
using stand_in::run_ranks;
using stand_in::Variable;
using namespace testing::nccl_calls;

namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                             DType::kInt8,    DType::kUInt8,   DType::kInt16,    DType::kUInt16,
                             DType::kInt32,   DType::kUInt32,  DType::kInt64,    DType::kUInt64,
                             DType::kBool};
const char* const kReduceOps[] = {"sum", "max", "min", "prod", "avg"};

// Four ranks: the world in order and in another, and pairs of neighbours, of distant ones, and in
// another order.
const std::vector<GroupPartition> kPartitions = {
    {{0, 1, 2, 3}, 4}, {{2, 0, 3, 1}, 4}, {{0, 1, 2, 3}, 2}, {{0, 2, 1, 3}, 2}, {{3, 0, 2, 1}, 2}};

// All calls of one partition, numbered.
std::vector<CollectiveCall> all_calls(const GroupPartition& partition, int rank) {
  std::vector<CollectiveCall> calls;
  const Shape shape = {4, 8, 12};
  int turn = 0;
  for (DType dtype : kDTypes) {
    const std::size_t first = calls.size();
    for (const char* reduce_op : kReduceOps) {
      calls.push_back(call_of(CollectiveKind::kAllReduce, partition, rank, {3, 5}));
      calls.back().reduce_op = reduce_op;
      calls.push_back(call_of(CollectiveKind::kReduceScatter, partition, rank, shape, turn++ % 3));
      calls.back().reduce_op = reduce_op;
    }
    calls.push_back(call_of(CollectiveKind::kBroadcast, partition, rank, {7}));
    calls.back().root = static_cast<int>(partition.group_size) - 1;
    calls.push_back(call_of(CollectiveKind::kPermute, partition, rank, {7}));
    calls.back().shift = 1 + turn % 3;
    calls.push_back(call_of(CollectiveKind::kAllGather, partition, rank, {2, 3, 5}, turn % 3));
    calls.push_back(
        call_of(CollectiveKind::kAllToAll, partition, rank, shape, turn % 3, turn / 3 % 3));
    for (std::size_t i = first; i < calls.size(); ++i) calls[i].dtype = dtype;
  }
  for (int axis = 0; axis < 3; ++axis) {
    calls.push_back(call_of(CollectiveKind::kAllGather, partition, rank, {2, 1, 3}, axis));
    for (int concat = 0; concat < 3; ++concat) {
      calls.push_back(call_of(CollectiveKind::kAllToAll, partition, rank, shape, axis, concat));
    }
  }
  for (std::size_t i = 0; i < calls.size(); ++i) calls[i].seq = static_cast<std::int64_t>(i);
  return calls;
}

TEST_CASE("splits of the world share disjoint groups", "[nccl]") {
  const auto splits =
      plan_splits({{0, 1}, {2, 3}, {0, 1, 2, 3}, {0, 2}, {1, 3}, {0, 1}, {1, 0}, {2}}, 4);
  REQUIRE(splits.ok());
  REQUIRE(splits->size() == 3);
  CHECK((*splits)[0].groups == std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}});
  CHECK((*splits)[1].groups == std::vector<std::vector<std::int64_t>>{{0, 2}, {1, 3}});
  CHECK((*splits)[2].groups == std::vector<std::vector<std::int64_t>>{{1, 0}});
  CHECK((*splits)[2].color_of(2) == -1);
  CHECK((*splits)[2].key_of(0) == 1);
  CHECK((*splits)[1].color_of(3) == 1);

  const auto without_world = plan_splits({{0, 1}, {1, 0}}, 2, false);
  REQUIRE(without_world.ok());
  CHECK(without_world->size() == 2);
  CHECK(plan_splits({{0, 1}, {1, 0}}, 2)->size() == 1);

  CHECK_THAT(plan_splits({{0, 4}}, 4).error().message, Contains("names rank 4"));
  CHECK_THAT(plan_splits({{1, 1}}, 4).error().message, Contains("names rank 1 twice"));
}

TEST_CASE("every collective over NCCL gives what threads give", "[nccl]") {
  const Libraries libraries;
  const std::string version = GENERATE("22809", "22705");
  const Variable chosen("AUTOPAR_STAND_IN_NCCL_VERSION", version);
  require_ok(run_ranks({4, 20, kPartitions}, [](NcclCommunicator& communicator) -> Status {
    for (const GroupPartition& partition : kPartitions) {
      for (const CollectiveCall& call : all_calls(partition, communicator.rank())) {
        AUTOPAR_RETURN_IF_ERROR(run_and_compare(communicator, call));
      }
    }
    return Ok{};
  }));
  require_clean(libraries);
}

// Device memory of a test.
class OnGpu {
 public:
  OnGpu(const CudaEntries& cuda, std::size_t bytes) : cuda_(cuda), bytes_(bytes) {
    cuda_.allocate(&memory_, bytes);
  }
  ~OnGpu() { cuda_.free(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  void* memory() const { return memory_; }
  void put(const std::string& bytes, cudaStream_t stream) const {
    cuda_.copy(memory_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream);
  }
  std::string take(cudaStream_t stream) const {
    std::string bytes(bytes_, '\0');
    cuda_.copy(bytes.data(), memory_, bytes_, cudaMemcpyDeviceToHost, stream);
    return bytes;
  }

 private:
  const CudaEntries& cuda_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

TEST_CASE("tensors on the GPU stay there", "[nccl]") {
  const Libraries libraries;
  const auto entries = open_gpu_libraries();
  REQUIRE(entries.ok());
  const CudaEntries& cuda = entries->cuda;
  require_ok(run_ranks({4, 20, kPartitions}, [&](NcclCommunicator& communicator) -> Status {
    cuda.set_device(communicator.rank());
    cudaStream_t stream = nullptr;
    cuda.create_stream(&stream, cudaStreamNonBlocking);
    for (const GroupPartition& partition : kPartitions) {
      for (CollectiveCall call : all_calls(partition, communicator.rank())) {
        if (call.seq % 3 != 0) continue;
        const OnGpu input(cuda, bytes_in(call.input_shape, call.dtype));
        const OnGpu output(cuda, bytes_in(call.output_shape, call.dtype));
        input.put(input_of(call, communicator.rank()), stream);
        call.stream = stream;
        AUTOPAR_RETURN_IF_ERROR(communicator.run(call, input.memory(), output.memory()));
        if (output.take(stream) != expected_of(call)) return runtime_error(to_text(call));
      }
    }
    cuda.destroy_stream(stream);
    return Ok{};
  }));
  require_clean(libraries);
}

TEST_CASE("bools are true by any number but 0", "[nccl]") {
  const Libraries libraries;
  const std::string op = GENERATE("sum", "min");
  require_ok(run_ranks({2, 20, {}}, [&](NcclCommunicator& communicator) -> Status {
    CollectiveCall call =
        call_of(CollectiveKind::kAllReduce, {{0, 1}, 2}, communicator.rank(), {4});
    call.dtype = DType::kBool;
    call.reduce_op = op;
    const unsigned char inputs[2][4] = {{0, 2, 0, 4}, {0, 0, 3, 5}};
    unsigned char output[4];
    AUTOPAR_RETURN_IF_ERROR(communicator.run(call, inputs[communicator.rank()], output));
    const unsigned char any[4] = {0, 1, 1, 1};
    const unsigned char all[4] = {0, 0, 0, 1};
    if (std::memcmp(output, op == "sum" ? any : all, 4) == 0) return Ok{};
    return runtime_error("other bools");
  }));
  require_clean(libraries);
}

TEST_CASE("empty tensors and groups of one rank need no other rank", "[nccl]") {
  const Libraries libraries;
  require_ok(run_ranks({2, 20, {{{0, 1}, 1}}}, [](NcclCommunicator& communicator) -> Status {
    if (communicator.rank() == 1) return Ok{};
    CollectiveCall alone = call_of(CollectiveKind::kAllReduce, {{0, 1}, 1}, 0, {3});
    alone.reduce_op = "avg";
    AUTOPAR_RETURN_IF_ERROR(run_and_compare(communicator, alone));
    CollectiveCall empty = call_of(CollectiveKind::kAllGather, {{0, 1}, 2}, 0, {0, 3});
    return run_and_compare(communicator, empty);
  }));
  require_clean(libraries);
}

CollectiveCall message(CollectiveKind kind, std::vector<std::int64_t> pair, int position,
                       std::int64_t seq) {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = "message";
  call.seq = seq;
  call.group = std::move(pair);
  call.position = position;
  call.input_shape = call.output_shape = {1000};
  return call;
}

TEST_CASE("two ranks send to each other before they receive", "[nccl]") {
  const Libraries libraries;
  require_ok(run_ranks({2, 20, {{{0, 1}, 2}}}, [](NcclCommunicator& communicator) -> Status {
    const int rank = communicator.rank();
    const int other = 1 - rank;
    AUTOPAR_RETURN_IF_ERROR(communicator.prepare_messages({{0, 1}, {1, 0}}));
    for (int round = 0; round < 3; ++round) {
      const CollectiveCall send = message(CollectiveKind::kSend, {rank, other}, 0, round);
      const CollectiveCall recv = message(CollectiveKind::kRecv, {other, rank}, 1, round);
      const std::string input = input_of(send, rank);
      std::string kept(input.size(), ' '), output(input.size(), ' ');
      AUTOPAR_RETURN_IF_ERROR(communicator.run(send, input.data(), kept.data()));
      AUTOPAR_RETURN_IF_ERROR(communicator.run(recv, nullptr, output.data()));
      if (kept != input) return runtime_error("Send does not give its input back");
      if (output != input_of(send, other)) return runtime_error("Recv gives other data");
    }
    // A message may be received behind what its sender has called since.
    const CollectiveCall late = rank == 0 ? message(CollectiveKind::kSend, {0, 1}, 0, 7)
                                          : message(CollectiveKind::kRecv, {0, 1}, 1, 7);
    CollectiveCall sum = call_of(CollectiveKind::kAllReduce, {{0, 1}, 2}, rank, {5});
    sum.reduce_op = "sum";
    std::string sent = input_of(late, 0), got(sent.size(), ' ');
    if (rank == 0) AUTOPAR_RETURN_IF_ERROR(communicator.run(late, sent.data(), got.data()));
    AUTOPAR_RETURN_IF_ERROR(run_and_compare(communicator, sum));
    if (rank == 1) AUTOPAR_RETURN_IF_ERROR(communicator.run(late, nullptr, got.data()));
    if (got != sent) return runtime_error("a late Recv gives other data");
    // Who is not the receiver gets zeros.
    const CollectiveCall recv = message(CollectiveKind::kRecv, {rank, other}, 0, 9);
    std::string output(4000, ' ');
    AUTOPAR_RETURN_IF_ERROR(communicator.run(recv, nullptr, output.data()));
    if (output == std::string(4000, '\0')) return Ok{};
    return runtime_error("no zeros");
  }));
  require_clean(libraries);
}

TEST_CASE("programs of stages have different groups", "[nccl]") {
  const Libraries libraries;
  require_ok(run_ranks({4, 20, {}}, [](NcclCommunicator& communicator) -> Status {
    const int rank = communicator.rank();
    const GroupPartition own = rank < 2 ? GroupPartition{{0, 1}, 2} : GroupPartition{{2, 3}, 2};
    AUTOPAR_RETURN_IF_ERROR(communicator.prepare({own}));
    AUTOPAR_RETURN_IF_ERROR(communicator.prepare_messages({{0, 2}, {1, 3}}));
    CollectiveCall call = call_of(CollectiveKind::kAllReduce, own, rank, {5});
    call.reduce_op = "sum";
    AUTOPAR_RETURN_IF_ERROR(run_and_compare(communicator, call));
    const bool sends = rank < 2;
    const std::int64_t first = rank % 2;
    const CollectiveCall go = message(sends ? CollectiveKind::kSend : CollectiveKind::kRecv,
                                      {first, first + 2}, sends ? 0 : 1, 1);
    const std::string input = input_of(go, first);
    std::string output(input.size(), ' ');
    AUTOPAR_RETURN_IF_ERROR(communicator.run(go, input.data(), output.data()));
    if (output == input) return Ok{};
    return runtime_error("other data");
  }));
  require_clean(libraries);
}

TEST_CASE("groups may also be made after something has run, each once", "[nccl]") {
  const Libraries libraries;
  const GroupPartition near{{0, 1, 2, 3}, 2};
  const GroupPartition far{{0, 2, 1, 3}, 2};
  require_ok(run_ranks({4, 20, {near}}, [&](NcclCommunicator& communicator) -> Status {
    for (const GroupPartition& partition : {near, far, near}) {
      AUTOPAR_RETURN_IF_ERROR(communicator.prepare({near, partition}));
      CollectiveCall call =
          call_of(CollectiveKind::kAllReduce, partition, communicator.rank(), {5});
      call.reduce_op = "sum";
      AUTOPAR_RETURN_IF_ERROR(run_and_compare(communicator, call));
    }
    return Ok{};
  }));
  require_clean(libraries);
}

}  // namespace
}  // namespace autopar::nccl_test
