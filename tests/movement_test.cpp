// Values of a step that are read on other ranks or in another layout, and messages that nobody
// waits for.
#include "exec/movement.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <numeric>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/thread_world.hpp"

namespace autopar::movement_test {

namespace {

RunProgram program_on(Mesh mesh, std::vector<std::int64_t> ranks) {
  RunProgram program;
  program.mesh = std::move(mesh);
  program.ranks = std::move(ranks);
  return program;
}

// All ways to split the dimensions of a [4,6] tensor over the axes of a mesh.
std::vector<Spec> all_specs(const Mesh& mesh) {
  std::vector<Spec> specs = {replicated(2)};
  for (int axis = 0; axis < mesh.rank(); ++axis) {
    const std::size_t so_far = specs.size();
    for (std::size_t s = 0; s < so_far; ++s) {
      for (std::size_t d = 0; d < 2; ++d) {
        Spec spec = specs[s];
        spec.dims[d].push_back(axis);
        if (verify(spec, {4, 6}, mesh).ok()) specs.push_back(spec);
      }
    }
  }
  return specs;
}

std::string slice_of(const Tensor& whole, const Spec& spec, const RunProgram& program,
                     std::int64_t position) {
  const Slice slice(whole, spec, program.mesh, position);
  return {static_cast<const char*>(slice.data()), slice.size()};
}

// The reader's slice put together of what its pieces name.
std::string moved(const Movement& movement, const Tensor& whole, const BoundaryValue& made,
                  const RunProgram& maker, const BoundaryValue& read, const RunProgram& reader,
                  std::int64_t position) {
  const auto position_of_rank = [&](std::int64_t rank) {
    const auto at = std::find(maker.ranks.begin(), maker.ranks.end(), rank);
    REQUIRE(at != maker.ranks.end());
    return std::int64_t{at - maker.ranks.begin()};
  };
  const std::int64_t rank = rank_at(reader, position);
  const auto& pieces = movement.pieces[static_cast<std::size_t>(position)];
  if (pieces.empty()) return slice_of(whole, made.spec, maker, position_of_rank(rank));
  const Block slice = block_of(read, reader, position);
  std::string result(static_cast<std::size_t>(element_count(slice.extent)) * 4, '\xff');
  for (const MovedPiece& piece : pieces) {
    const std::int64_t from = position_of_rank(piece.from);
    const std::string held = slice_of(whole, made.spec, maker, from);
    std::string packed(static_cast<std::size_t>(element_count(piece.block.extent)) * 4, '\0');
    pack_piece(piece.block, 4, block_of(made, maker, from), held.data(), packed.data());
    unpack_piece(piece.block, 4, packed.data(), slice, result.data());
  }
  return result;
}

CollectiveCall message(CollectiveKind kind, std::int64_t from, std::int64_t to, std::int64_t size) {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = "h";
  call.group = {from, to};
  call.position = kind == CollectiveKind::kSend ? 0 : 1;
  call.dtype = DType::kUInt8;
  call.input_shape = call.output_shape = {size};
  return call;
}

}  // namespace

TEST_CASE("movement: any layout on any ranks becomes any other", "[step]") {
  Tensor whole{DType::kInt32, {4, 6}, std::string(24 * 4, '\0')};
  std::iota(reinterpret_cast<std::int32_t*>(whole.bytes.data()),
            reinterpret_cast<std::int32_t*>(whole.bytes.data()) + 24, 100);
  const Mesh square{{{"a", 2, 0, 2}, {"b", 2, 0, 1}}};
  const Mesh row{{{"c", 2, 0, 1}}};
  const Mesh alone{{{"d", 1, 0, 1}}};
  const RunProgram programs[] = {program_on(square, {0, 1, 2, 3}), program_on(square, {3, 1, 0, 2}),
                                 program_on(row, {5, 4}), program_on(row, {1, 2}),
                                 program_on(alone, {0})};
  int needed = 0;
  for (const RunProgram& maker : programs) {
    for (const RunProgram& reader : programs) {
      for (const Spec& from : all_specs(maker.mesh)) {
        for (const Spec& to : all_specs(reader.mesh)) {
          const BoundaryValue made{"h", DType::kInt32, whole.shape, from};
          const BoundaryValue read{"h", DType::kInt32, whole.shape, to};
          const Movement movement = movement_of(made, maker, read, reader);
          needed += movement.is_needed();
          for (std::int64_t p = 0; p < reader.mesh.size(); ++p) {
            CHECK((moved(movement, whole, made, maker, read, reader, p) ==
                   slice_of(whole, to, reader, p)));
          }
          const bool alike = maker.ranks == reader.ranks && from == to;
          if (alike) CHECK_FALSE(movement.is_needed());
        }
      }
    }
  }
  CHECK(needed > 300);
}

TEST_CASE("movement: a rank takes from itself what it has", "[step]") {
  const Mesh row{{{"c", 2, 0, 1}}};
  const RunProgram both = program_on(row, {0, 1});
  Spec rows = replicated(2);
  rows.dims[0].push_back(0);
  const BoundaryValue made{"h", DType::kFloat32, {4, 6}, rows};
  const BoundaryValue read{"h", DType::kFloat32, {4, 6}, replicated(2)};
  const Movement movement = movement_of(made, both, read, both);
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    const auto& pieces = movement.pieces[static_cast<std::size_t>(rank)];
    REQUIRE(pieces.size() == 2);
    CHECK(pieces[0].from == 0);
    CHECK(pieces[1].from == 1);
  }
  // Replicas share the work of sending.
  const Movement spread = movement_of(read, both, read, program_on(row, {2, 3}));
  CHECK(spread.pieces[0][0].from == 0);
  CHECK(spread.pieces[1][0].from == 1);
}

TEST_CASE("messages: sending waits for nobody, and their order stays", "[step]") {
  ThreadWorld world(2, 20);
  ThreadCommunicator first(world, 0), second(world, 1);
  for (char c : {'x', 'y', 'z'}) {
    REQUIRE(first.post(message(CollectiveKind::kSend, 0, 1, 1), &c).ok());
  }
  world.finish(0);
  for (char c : {'x', 'y', 'z'}) {
    char taken = 0;
    REQUIRE(second.take(message(CollectiveKind::kRecv, 0, 1, 1), &taken).ok());
    CHECK(taken == c);
  }
  // Nobody is left who could send one more.
  char taken = 0;
  const Status last = second.take(message(CollectiveKind::kRecv, 0, 1, 1), &taken);
  REQUIRE_FALSE(last.ok());
  CHECK_THAT(last.error().message, Catch::Matchers::Contains("rank 1 waits for rank 0") &&
                                       Catch::Matchers::Contains("rank 0 has finished"));
}

TEST_CASE("messages: who takes waits until it is sent, and no longer than the limit", "[step]") {
  SECTION("it comes") {
    ThreadWorld world(2, 20);
    ThreadCommunicator first(world, 0), second(world, 1);
    std::atomic<bool> sent = false;
    Status posted = Ok{};
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      sent = true;
      posted = first.post(message(CollectiveKind::kSend, 0, 1, 1), "x");
    });
    char taken = 0;
    const Status status = second.take(message(CollectiveKind::kRecv, 0, 1, 1), &taken);
    CHECK(sent);
    sender.join();
    REQUIRE(posted.ok());
    REQUIRE(status.ok());
    CHECK(taken == 'x');
  }
  SECTION("it does not come") {
    ThreadWorld world(2, 0.05);
    ThreadCommunicator second(world, 1);
    char taken = 0;
    const Status status = second.take(message(CollectiveKind::kRecv, 0, 1, 1), &taken);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message,
               Catch::Matchers::Contains("nothing has happened for 0.05 s") &&
                   Catch::Matchers::Contains("rank 1 waits for rank 0"));
  }
  SECTION("both wait for each other") {
    ThreadWorld world(2, 20);
    Status statuses[2] = {Ok{}, Ok{}};
    std::thread threads[2];
    for (int r = 0; r < 2; ++r) {
      threads[r] = std::thread([&, r] {
        ThreadCommunicator self(world, r);
        char taken = 0;
        statuses[r] = self.take(message(CollectiveKind::kRecv, 1 - r, r, 1), &taken);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) {
      REQUIRE_FALSE(status.ok());
      CHECK_THAT(status.error().message, Catch::Matchers::Contains("wait for each other"));
    }
  }
}

}  // namespace autopar::movement_test
