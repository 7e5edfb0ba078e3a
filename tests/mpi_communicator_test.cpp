// What the communicator of MPI processes gives to MPI, here to a table of functions that never come
// to an end: as where another rank has failed.
#include "exec/mpi/mpi_communicator.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <vector>

namespace autopar::mpi_communicator_test {

namespace {

// What the peers of a request that has not ended may still read and write.
struct Given {
  const char* read = nullptr;
  char* written = nullptr;
  std::size_t bytes = 0;  // of what is written
};
Given given;

AutoparMpiRequest* a_request() { return reinterpret_cast<AutoparMpiRequest*>(&given); }

AutoparMpiTable endless() {
  AutoparMpiTable table{};
  table.make_group = [](const int*, int, int, char*) {
    return reinterpret_cast<AutoparMpiGroup*>(&given);
  };
  table.all_to_all = [](AutoparMpiGroup*, const void* send, void* receive, size_t part, char*) {
    given = {static_cast<const char*>(send), static_cast<char*>(receive), 2 * part};
    return a_request();
  };
  table.all_gather = table.all_to_all;
  table.broadcast = [](AutoparMpiGroup*, void* data, size_t size, int, char*) {
    given = {static_cast<const char*>(data), static_cast<char*>(data), size};
    return a_request();
  };
  table.send = [](int, const void* data, size_t, int, char*) {
    given = {static_cast<const char*>(data), nullptr, 0};
    return a_request();
  };
  table.receive = [](int, void* data, size_t size, int, char*) {
    given = {static_cast<const char*>(data), static_cast<char*>(data), size};
    return a_request();
  };
  table.test = [](AutoparMpiRequest*, char*) { return 0; };
  return table;
}

}  // namespace

TEST_CASE("what a failed call leaves under way does not touch memory that goes", "[mpi]") {
  for (const CollectiveKind kind :
       {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter, CollectiveKind::kAllGather,
        CollectiveKind::kAllToAll, CollectiveKind::kBroadcast, CollectiveKind::kPermute,
        CollectiveKind::kSend, CollectiveKind::kRecv}) {
    const AutoparMpiTable table = endless();
    CallLog calls;
    int looks = 0;
    Surroundings surroundings;
    surroundings.failed = [&] { return ++looks > 1; };  // not before the call
    surroundings.failure = [] { return Error{ErrorCode::kRuntime, "rank 1 failed"}; };
    surroundings.abort = [](const std::string&) {};
    surroundings.calls = &calls;
    std::vector<float> input(64, 1);
    std::vector<float> output(128, 2);
    {
      MpiCommunicator communicator(table, 0, 2, surroundings);
      CollectiveCall call;
      call.kind = kind;
      call.reduce_op = "sum";
      call.group = {0, 1};
      call.root = kind == CollectiveKind::kBroadcast ? 1 : 0;
      call.input_shape = {64};
      call.output_shape = {kind == CollectiveKind::kAllGather       ? 128
                           : kind == CollectiveKind::kReduceScatter ? 32
                                                                    : 64};
      const Status status = communicator.run(call, input.data(), output.data());
      REQUIRE(!status);
      CHECK(status.error().message == "rank 1 failed");
    }
    CAPTURE(static_cast<int>(kind));
    const auto lies_in = [](const void* at, const std::vector<float>& in) {
      return at >= in.data() && at < in.data() + in.size();
    };
    CHECK(!lies_in(given.read, input));
    CHECK(!lies_in(given.written, output));
    // The peers go on: under AddressSanitizer this shows whether it is still there.
    static_cast<void>(*static_cast<volatile const char*>(given.read));
    if (given.written != nullptr) std::memset(given.written, 5, given.bytes);
  }
}

}  // namespace autopar::mpi_communicator_test
