// The communicator over NCCL, against a stand-in for CUDA and NCCL (tests/stand_in): what goes
// wrong is said and ends.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>

#include "nccl_calls.hpp"

namespace autopar::nccl_errors_test {

using Catch::Matchers::Contains;
using stand_in::Libraries;
using stand_in::run_ranks;
using stand_in::Variable;
using namespace testing::nccl_calls;

namespace {

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
}  // namespace autopar::nccl_errors_test
