// The communicator over NCCL, against a stand-in for CUDA and NCCL (tests/stand_in): what it gives
// is what the threads give, and what goes wrong is said and ends.
#include <catch2/catch.hpp>
#include <cstring>
#include <future>

#include "exec/collective_math.hpp"
#include "exec/nccl/splits.hpp"
#include "stand_in/ranks.hpp"

namespace autopar::nccl_test {
namespace {

using Catch::Matchers::Contains;
using stand_in::Body;
using stand_in::Libraries;
using stand_in::run_ranks;
using stand_in::Variable;
using stand_in::World;

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                             DType::kInt8,    DType::kUInt8,   DType::kInt16,    DType::kUInt16,
                             DType::kInt32,   DType::kUInt32,  DType::kInt64,    DType::kUInt64,
                             DType::kBool};
const char* const kReduceOps[] = {"sum", "max", "min", "prod", "avg"};

// Four ranks: the world in order and in another, and pairs of neighbours, of distant ones, and in
// another order.
const std::vector<GroupPartition> kPartitions = {
    {{0, 1, 2, 3}, 4}, {{2, 0, 3, 1}, 4}, {{0, 1, 2, 3}, 2}, {{0, 2, 1, 3}, 2}, {{3, 0, 2, 1}, 2}};

std::size_t bytes_in(const Shape& shape, DType dtype) { return buffer_bytes(shape, dtype); }

// A call as a rank gets it, of a partition.
CollectiveCall call_of(CollectiveKind kind, const GroupPartition& partition, int rank,
                       const Shape& input, int axis = 0, int concat_axis = 0) {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = "op";
  call.axis = axis;
  call.concat_axis = concat_axis;
  call.input_shape = input;
  call.output_shape = *output_shape_of(kind, input, partition.group_size, axis, concat_axis);
  for (std::size_t i = 0; i < partition.groups.size(); ++i) {
    if (partition.groups[i] != rank) continue;
    const auto size = static_cast<std::size_t>(partition.group_size);
    call.position = static_cast<int>(i % size);
    const auto first = partition.groups.begin() + static_cast<std::ptrdiff_t>(i - i % size);
    call.group.assign(first, first + partition.group_size);
  }
  return call;
}

// Any numbers, the same on all ranks that ask; of bools 0 and 1, of floats ordinary ones.
std::string data_of(std::int64_t rank, std::int64_t seq, DType dtype, std::size_t count) {
  std::uint64_t state = static_cast<std::uint64_t>(rank * 7919 + seq * 104729 + 17);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<std::uint32_t>(state >> 33);
    const float value = static_cast<float>(random % 2000) / 300.0f - 3.0f;
    const double wide = value;
    std::uint64_t bits = random * 2654435761u;
    switch (dtype) {
      case DType::kFloat32:
        std::memcpy(&bits, &value, sizeof value);
        break;
      case DType::kFloat64:
        std::memcpy(&bits, &wide, sizeof wide);
        break;
      case DType::kFloat16:
        bits = 0x3c00 + random % 512 + ((random & 1024) << 5);
        break;
      case DType::kBFloat16:
        bits = 0x3f80 + random % 64 + ((random & 1024) << 5);
        break;
      case DType::kBool:
        bits = random % 2;
        break;
      default:
        break;
    }
    bytes.append(reinterpret_cast<const char*>(&bits), static_cast<std::size_t>(size_of(dtype)));
  }
  return bytes;
}

std::string input_of(const CollectiveCall& call, std::int64_t rank) {
  return data_of(rank, call.seq, call.dtype,
                 static_cast<std::size_t>(element_count(call.input_shape)));
}

// What the threads would give this rank.
std::string expected_of(const CollectiveCall& call) {
  std::vector<std::string> inputs, outputs;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (std::int64_t rank : call.group) {
    inputs.push_back(input_of(call, rank));
    outputs.emplace_back(bytes_in(call.output_shape, call.dtype), '\0');
  }
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    from.push_back(inputs[p].data());
    to.push_back(outputs[p].data());
  }
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    CollectiveCall other = call;
    other.position = static_cast<int>(p);
    perform(other, from, to);
  }
  return outputs[static_cast<std::size_t>(call.position)];
}

Status run_and_compare(NcclCommunicator& communicator, const CollectiveCall& call) {
  const std::string input = input_of(call, communicator.rank());
  std::string output(bytes_in(call.output_shape, call.dtype), '\x5a');
  AUTOPAR_RETURN_IF_ERROR(communicator.run(call, input.data(), output.data()));
  if (output == expected_of(call)) return Ok{};
  return runtime_error("rank " + std::to_string(communicator.rank()) + " gets other data in " +
                       to_text(call) + " axis " + std::to_string(call.axis) + " " +
                       std::to_string(call.concat_axis) + " " + call.reduce_op);
}

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

void require_ok(const std::vector<Status>& results) {
  for (const Status& result : results) {
    INFO((result.ok() ? "" : result.error().message));
    REQUIRE(result.ok());
  }
}

// Nothing was misused, and everything was given back.
void require_clean(const Libraries& libraries) {
  CHECK(libraries.misuse() == "");
  CHECK(libraries.live() == 0);
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

// The error of a rank that makes no communicator.
std::string refusal() {
  NcclWorld world;
  world.exchange = [](const std::string& own) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{own};
  };
  const auto made = make_nccl_communicator(world);
  return made ? "" : made.error().message;
}

TEST_CASE("what is missing is said", "[nccl]") {
  const Libraries libraries;
  CHECK(refusal() == "");
  CHECK(*nccl_version() == "NCCL 2.28.9, CUDA runtime 13.0, 8 GPUs");
  {
    const Variable none("AUTOPAR_STAND_IN_GPUS", "0");
    CHECK_THAT(refusal(), Contains("there is no GPU for this rank: no CUDA-capable device"));
  }
  {
    const Variable old("AUTOPAR_STAND_IN_NCCL_VERSION", "21705");
    CHECK_THAT(refusal(), Contains("is NCCL 2.17.5; at least 2.18.1 is needed"));
  }
  {
    const Variable nowhere("AUTOPAR_NCCL", "/nowhere/libnccl.so.2");
    CHECK_THAT(refusal(),
               Contains("need NCCL, which could not be opened:\n  /nowhere/libnccl.so.2"));
  }
  {
    const Variable other("AUTOPAR_CUDART", "libm.so.6");
    CHECK_THAT(refusal(),
               Contains("is no CUDA runtime that can be used, it lacks cudaGetErrorString"));
  }
}

TEST_CASE("more ranks than GPUs", "[nccl]") {
  const Libraries libraries;
  {
    const Variable few("AUTOPAR_STAND_IN_GPUS", "2");
    const auto results = run_ranks({3, 0.5, {}}, [](NcclCommunicator&) -> Status { return Ok{}; });
    REQUIRE(!results[2].ok());
    CHECK_THAT(results[2].error().message,
               Contains("there is no GPU for local rank 2: the CUDA runtime finds 2"));
  }
  {
    const Variable one("AUTOPAR_STAND_IN_GPUS", "1");
    const auto results = run_ranks({2, 2, {}}, [](NcclCommunicator&) -> Status { return Ok{}; });
    REQUIRE(!results[1].ok());
    CHECK_THAT(results[1].error().message, Contains("Duplicate GPU detected"));
  }
  {
    const Variable one("AUTOPAR_STAND_IN_GPUS", "1");
    const Variable version("AUTOPAR_STAND_IN_NCCL_VERSION", "23003");
    const Variable shared("NCCL_MULTI_RANK_GPU_ENABLE", "1");
    require_ok(run_ranks({2, 2, {}}, [](NcclCommunicator&) -> Status { return Ok{}; }));
  }
}

CollectiveCall all_reduce_of(int rank, std::int64_t seq, const Shape& shape = {4}) {
  CollectiveCall call = call_of(CollectiveKind::kAllReduce, {{0, 1}, 2}, rank, shape);
  call.reduce_op = "sum";
  call.seq = seq;
  return call;
}

// What both ranks say of two calls that do not belong together.
std::vector<std::string> clash(const std::function<CollectiveCall(int rank)>& call) {
  std::vector<std::string> messages;
  for (const Status& result :
       run_ranks({2, 20, {{{1, 0}, 2}}}, [&](NcclCommunicator& communicator) {
         return run_and_compare(communicator, call(communicator.rank()));
       })) {
    messages.push_back(result.ok() ? "" : result.error().message);
  }
  return messages;
}

TEST_CASE("calls that do not match are an error on both ranks", "[nccl]") {
  const Libraries libraries;
  const std::string different = "ranks come with different calls";
  SECTION("other ops") {
    const auto told = clash([](int rank) {
      return rank == 0 ? all_reduce_of(0, 3)
                       : call_of(CollectiveKind::kAllGather, {{0, 1}, 2}, 1, {4});
    });
    CHECK_THAT(told[0], Contains("rank 0: AllReduce 'op' (seq 3, group [0,1], float32[4]): ") &&
                            Contains(different) && Contains("AllGather of 16 uint8"));
    CHECK_THAT(told[1], Contains("rank 1: AllGather") && Contains(different));
  }
  SECTION("other sizes") {
    const auto told = clash([](int rank) { return all_reduce_of(rank, 3, {4 + rank}); });
    CHECK_THAT(told[0], Contains("AllReduce of 4 float32") && Contains("of 5 float32"));
  }
  SECTION("other reductions") {
    const auto told = clash([](int rank) {
      CollectiveCall call = all_reduce_of(rank, 3);
      if (rank == 1) call.reduce_op = "max";
      return call;
    });
    CHECK_THAT(told[0], Contains("(sum)") && Contains("(max)"));
  }
  SECTION("other roots") {
    const auto told = clash([](int rank) {
      CollectiveCall call = call_of(CollectiveKind::kBroadcast, {{0, 1}, 2}, rank, {4});
      call.root = rank;
      return call;
    });
    CHECK_THAT(told[0], Contains("(root 0)") && Contains("(root 1)"));
  }
  SECTION("other groups: the ranks wait for each other") {
    const auto told = clash([](int rank) {
      if (rank == 0) return all_reduce_of(0, 3);
      CollectiveCall call = call_of(CollectiveKind::kAllReduce, {{1, 0}, 2}, 1, {4});
      call.reduce_op = "sum";
      return call;
    });
    CHECK_THAT(told[0], Contains("the ranks wait for each other: rank 0 in AllReduce") &&
                            Contains("rank 1 in AllReduce"));
    CHECK_THAT(told[1], Contains("of ranks [1,0]"));
  }
  CHECK(libraries.live() == 0);
}

TEST_CASE("a group that was not prepared is refused", "[nccl]") {
  const Libraries libraries;
  const auto results = run_ranks({2, 20, {}}, [](NcclCommunicator& communicator) {
    CollectiveCall call =
        call_of(CollectiveKind::kAllReduce, {{1, 0}, 2}, communicator.rank(), {4});
    call.reduce_op = "sum";
    return run_and_compare(communicator, call);
  });
  CHECK_THAT(results[0].error().message,
             Contains("no communicator was prepared for the group [1,0]"));
  require_clean(libraries);
}

TEST_CASE("a rank that never comes ends in a time-out", "[nccl]") {
  const Libraries libraries;
  std::promise<void> given_up;
  const std::shared_future<void> wait(given_up.get_future());
  Status again = Ok{};
  const auto results = run_ranks({2, 2, {}}, [&](NcclCommunicator& communicator) -> Status {
    if (communicator.rank() == 1) {
      wait.wait_for(std::chrono::seconds(30));
      return Ok{};
    }
    auto status = run_and_compare(communicator, all_reduce_of(0, 7));
    again = run_and_compare(communicator, all_reduce_of(0, 8));
    given_up.set_value();
    return status;
  });
  CHECK(!again.ok());
  REQUIRE(!results[0].ok());
  CHECK_THAT(results[0].error().message,
             Contains("rank 0: AllReduce 'op' (seq 7, group [0,1], float32[4]): not complete after "
                      "2 s"));
  require_clean(libraries);
}

TEST_CASE("a rank that does not join the world ends in a time-out", "[nccl]") {
  const Libraries libraries;
  NcclWorld world;
  world.size = 2;
  world.timeout = 0.3;
  world.exchange = [](const std::string& own) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{own, ""};
  };
  const auto made = make_nccl_communicator(world);
  REQUIRE(!made.ok());
  CHECK_THAT(made.error().message,
             Contains("rank 0: NCCL cannot make the world of 2 ranks: not all "
                      "its ranks came within 0.3 s"));
  require_clean(libraries);
}

TEST_CASE("a rank that leaves takes the others with it", "[nccl]") {
  const Libraries libraries;
  const auto results = run_ranks({2, 20, {}}, [](NcclCommunicator& communicator) -> Status {
    if (communicator.rank() == 1) return Ok{};
    return run_and_compare(communicator, all_reduce_of(0, 0));
  });
  CHECK_THAT(results[0].error().message, Contains("remote process exited") &&
                                             Contains("rank 1 has destroyed its communicator"));
  require_clean(libraries);
}

TEST_CASE("an abort from another thread ends a call", "[nccl]") {
  const Libraries libraries;
  const auto results = run_ranks({2, 20, {}}, [](NcclCommunicator& communicator) -> Status {
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return Ok{};
    }
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      communicator.abort("the disk is full");
    });
    auto status = run_and_compare(communicator, all_reduce_of(0, 0));
    other.join();
    return status;
  });
  CHECK_THAT(results[0].error().message, Contains("AllReduce") && Contains("the disk is full"));
  require_clean(libraries);
}

TEST_CASE("a failure known of elsewhere ends a call", "[nccl]") {
  const Libraries libraries;
  std::atomic<bool> failed = false;
  NcclWorld world;
  world.size = 2;
  world.timeout = 20;
  world.failure = [&]() -> std::optional<std::string> {
    if (failed) return "rank 1 has ended";
    return std::nullopt;
  };
  world.exchange = [](const std::string& own) -> Result<std::vector<std::string>> {
    return std::vector<std::string>{own, ""};
  };
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    failed = true;
  });
  const auto made = make_nccl_communicator(world);
  killer.join();
  REQUIRE(!made.ok());
  CHECK_THAT(made.error().message, Contains("rank 1 has ended"));
  require_clean(libraries);
}

}  // namespace
}  // namespace autopar::nccl_test
