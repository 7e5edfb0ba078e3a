// The parts of exec that need no ONNX Runtime: what collectives compute, held to one plain
// implementation of them, how threads meet, what a trace says.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

#include "encode.hpp"
#include "exec/blocks.hpp"
#include "exec/collective_math.hpp"
#include "exec/generate.hpp"
#include "exec/profile.hpp"
#include "exec/reduce.hpp"
#include "exec/thread_world.hpp"
#include "meshes.hpp"

namespace autopar::exec_test {

using testing::encode;
using testing::mesh_of;

namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                             DType::kInt8,    DType::kUInt8,   DType::kInt16,    DType::kUInt16,
                             DType::kInt32,   DType::kUInt32,  DType::kInt64,    DType::kUInt64,
                             DType::kBool};

// A tensor of plain numbers, for slow but obvious definitions of the collectives.
struct Plain {
  Shape shape;
  std::vector<double> values;
};

Plain make_plain(const Shape& shape, const std::function<double(const Shape&)>& value) {
  Plain result{shape, {}};
  const std::int64_t count = element_count(shape);
  for (std::int64_t flat = 0; flat < count; ++flat) {
    Shape index(shape.size());
    std::int64_t rest = flat;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    result.values.push_back(value(index));
  }
  return result;
}

double at(const Plain& tensor, const Shape& index) {
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < index.size(); ++d) flat = flat * tensor.shape[d] + index[d];
  return tensor.values[static_cast<std::size_t>(flat)];
}

double reduced(const std::string& op, DType dtype, const std::vector<double>& values) {
  double result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (op == "sum" || op == "avg") result += values[i];
    if (op == "prod") result *= values[i];
    if (op == "max") result = std::max(result, values[i]);
    if (op == "min") result = std::min(result, values[i]);
  }
  if (dtype == DType::kBool) return result != 0;
  if (op != "avg") return result;
  result /= static_cast<double>(values.size());
  return is_floating(dtype) ? result : std::trunc(result);
}

// The output of the rank at `call.position`, by the definition of FORMATS: element by element.
Plain oracle(const CollectiveCall& call, const std::vector<Plain>& inputs) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  const auto axis = static_cast<std::size_t>(call.axis);
  const auto concat = static_cast<std::size_t>(call.concat_axis);
  return make_plain(call.output_shape, [&](Shape index) {
    const auto all = [&] {
      std::vector<double> values;
      for (const Plain& input : inputs) values.push_back(at(input, index));
      return reduced(call.reduce_op, call.dtype, values);
    };
    switch (call.kind) {
      case CollectiveKind::kAllReduce:
        return all();
      case CollectiveKind::kReduceScatter:
        index[axis] += call.position * call.output_shape[axis];
        return all();
      case CollectiveKind::kAllGather: {
        const std::int64_t part = index[axis] / call.input_shape[axis];
        index[axis] %= call.input_shape[axis];
        return at(inputs[static_cast<std::size_t>(part)], index);
      }
      case CollectiveKind::kAllToAll: {
        // The parts are put together along `concat`: each as wide there as it was cut.
        const std::int64_t width = call.output_shape[concat] / n;
        const std::int64_t part = index[concat] / width;
        index[concat] %= width;
        index[axis] += call.position * (call.input_shape[axis] / n);
        return at(inputs[static_cast<std::size_t>(part)], index);
      }
      case CollectiveKind::kBroadcast:
        return at(inputs[static_cast<std::size_t>(call.root)], index);
      case CollectiveKind::kPermute:
        return at(inputs[static_cast<std::size_t>((call.position + n - call.shift) % n)], index);
      case CollectiveKind::kShardSlice:
        index[axis] += call.position * call.output_shape[axis];
        return at(inputs[static_cast<std::size_t>(call.position)], index);
      case CollectiveKind::kMakePartial:
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        break;
    }
    return 0.0;
  });
}

CollectiveCall make_call(CollectiveKind kind, DType dtype, const Shape& shape,
                         const std::vector<std::int64_t>& group, int position, int axis = 0,
                         int concat_axis = 0) {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = "c";
  call.seq = 0;
  call.group = group;
  call.position = position;
  call.axis = axis;
  call.concat_axis = concat_axis;
  call.reduce_op = "sum";
  call.dtype = dtype;
  call.input_shape = shape;
  const auto output =
      output_shape_of(kind, shape, static_cast<std::int64_t>(group.size()), axis, concat_axis);
  AUTOPAR_CHECK(output.ok(), "shapes that fit");  // also called in threads, where Catch may not be
  call.output_shape = *output;
  return call;
}

// Runs body(rank) on one thread per rank.
void on_ranks(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r) threads.emplace_back([&body, r] { body(r); });
  for (std::thread& thread : threads) thread.join();
}

// Runs the call on the ranks of one group as threads, and checks each output against the oracle.
void check_call(CollectiveCall call) {
  const auto n = static_cast<int>(call.group.size());
  std::vector<Plain> inputs;
  std::vector<std::string> buffers;
  for (int p = 0; p < n; ++p) {
    int k = 0;
    inputs.push_back(make_plain(call.input_shape, [&](const Shape&) {
      return call.dtype == DType::kBool ? (k++ + p) % 3 == 0 : (k++ * 5 + p * 7) % 4;
    }));
    buffers.push_back(encode(call.dtype, inputs.back().values));
  }
  ThreadWorld world(n, 20);
  std::vector<std::string> outputs(inputs.size());
  std::vector<std::string> errors(inputs.size());
  on_ranks(n, [&](int rank) {
    CollectiveCall mine = call;
    mine.position = static_cast<int>(std::find(call.group.begin(), call.group.end(), rank) -
                                     call.group.begin());
    const auto p = static_cast<std::size_t>(mine.position);
    outputs[p].resize(
        static_cast<std::size_t>(element_count(mine.output_shape) * size_of(mine.dtype)));
    const auto status = world.run(rank, mine, buffers[p].data(), outputs[p].data());
    if (!status) errors[p] = status.error().message;
    world.finish(rank);
  });
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    call.position = static_cast<int>(p);
    CAPTURE(to_text(call), call.axis, call.concat_axis, call.reduce_op, p);
    CHECK(errors[p].empty());
    CHECK((outputs[p] == encode(call.dtype, oracle(call, inputs).values)));
  }
}

TEST_CASE("collectives: every dtype and reduction against the definition", "[exec]") {
  for (DType dtype : kDTypes) {
    for (const char* op : {"sum", "max", "min", "prod", "avg"}) {
      auto reduce = make_call(CollectiveKind::kAllReduce, dtype, {5, 2}, {0, 1, 2}, 0);
      reduce.reduce_op = op;
      check_call(reduce);
      auto scatter = make_call(CollectiveKind::kReduceScatter, dtype, {2, 6, 3}, {2, 0, 1}, 0, 1);
      scatter.reduce_op = op;
      check_call(scatter);
    }
    check_call(make_call(CollectiveKind::kAllGather, dtype, {2, 3}, {1, 0}, 0, 1));
    check_call(make_call(CollectiveKind::kAllToAll, dtype, {4, 3, 2}, {0, 1}, 0, 0, 2));
    check_call(make_call(CollectiveKind::kBroadcast, dtype, {3}, {1, 0}, 0));
    for (const std::int64_t shift : {1, 2, 3}) {
      CollectiveCall call = make_call(CollectiveKind::kPermute, dtype, {3, 2}, {1, 0, 2}, 0);
      call.shift = shift;
      check_call(call);
    }
    check_call(make_call(CollectiveKind::kShardSlice, dtype, {2, 6}, {1, 0, 2}, 0, 1));
  }
}

TEST_CASE("collectives: every axis and pair of axes", "[exec]") {
  const Shape shape = {6, 3, 12, 9};
  const std::vector<std::int64_t> group = {2, 0, 1};
  for (int axis = 0; axis < 4; ++axis) {
    check_call(make_call(CollectiveKind::kAllGather, DType::kInt16, shape, group, 0, axis));
    check_call(make_call(CollectiveKind::kReduceScatter, DType::kInt16, shape, group, 0, axis));
    check_call(make_call(CollectiveKind::kShardSlice, DType::kInt16, shape, group, 0, axis));
    for (int concat = 0; concat < 4; ++concat) {
      check_call(
          make_call(CollectiveKind::kAllToAll, DType::kInt16, shape, group, 0, axis, concat));
    }
  }
  check_call(make_call(CollectiveKind::kAllReduce, DType::kFloat32, {}, group, 0));
  check_call(make_call(CollectiveKind::kAllReduce, DType::kFloat32, {0, 3}, group, 0));
  check_call(make_call(CollectiveKind::kAllGather, DType::kFloat32, {0, 3}, group, 0, 1));
  check_call(make_call(CollectiveKind::kAllReduce, DType::kFloat32, {1}, {0}, 0));
  check_call(make_call(CollectiveKind::kAllReduce, DType::kFloat32, {5000}, group, 0));
}

TEST_CASE("collectives: shapes that do not fit are refused", "[exec]") {
  using Kind = CollectiveKind;
  CHECK(*output_shape_of(Kind::kAllGather, {2, 3}, 4, -1, 0) == Shape{2, 12});
  CHECK(*output_shape_of(Kind::kAllToAll, {8, 3}, 4, -2, -1) == Shape{2, 12});
  CHECK(*output_shape_of(Kind::kShardSlice, {-1, 8}, 4, 0, 0) == Shape{-1, 8});
  for (const auto& bad : {output_shape_of(Kind::kAllGather, {2, 3}, 2, 2, 0),
                          output_shape_of(Kind::kReduceScatter, {2, 3}, 2, 1, 0),
                          output_shape_of(Kind::kAllToAll, {2, 3}, 2, 0, 5),
                          output_shape_of(Kind::kShardSlice, {}, 2, 0, 0),
                          output_shape_of(Kind::kMakePartial, {2}, 2, 0, 0)}) {
    REQUIRE(!bad);
    CHECK(bad.error().code == ErrorCode::kInput);
  }
  CHECK(output_shape_of(Kind::kReduceScatter, {2, 3}, 2, 1, 0)
            .error()
            .message.find("not divisible by the group size 2") != std::string::npos);
}

TEST_CASE("collectives: extents and axes of more bits than there are are refused", "[exec]") {
  using Kind = CollectiveKind;
  const auto power = [](int bits) { return std::int64_t{1} << bits; };
  struct Row {
    Result<Shape> found;
    std::string why;
  };
  const std::vector<Row> rows = {
      {output_shape_of(Kind::kAllGather, {power(40), 3}, power(40), 0, 0),
       "dimension 0 of 1099511"},
      {output_shape_of(Kind::kAllGather, {3, power(62)}, 2, -1, 0), "dimension 1 of 4611686"},
      {output_shape_of(Kind::kAllGather, {3}, power(62), 0, 0),
       "dimension 0 of 3, in each of 4611"},
      {output_shape_of(Kind::kAllToAll, {2, power(62)}, 2, 0, 1), "dimension 1 of 4611686"},
      {output_shape_of(Kind::kAllGather, {2, 3}, 2, power(32), 0), "axis 4294967296"},
      {output_shape_of(Kind::kReduceScatter, {2, 4}, 2, -power(32), 0), "axis -4294967296"},
      {output_shape_of(Kind::kAllToAll, {2, 4}, 2, power(32), 1), "split_axis 4294967296"},
      {output_shape_of(Kind::kAllToAll, {2, 4}, 2, 0, power(32) + 1), "concat_axis 4294967297"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    if (row.found) FAIL_CHECK("gives " + to_text(*row.found));
    if (row.found) continue;
    CHECK(row.found.error().code == ErrorCode::kInput);
    CHECK(row.found.error().message.find(row.why) != std::string::npos);
  }
  // The largest that there is, and extents that are only known when the graph runs.
  CHECK(*output_shape_of(Kind::kAllGather, {3, power(61)}, 2, 1, 0) == Shape{3, power(62)});
  CHECK(*output_shape_of(Kind::kAllGather, {-1, 3}, 4, 0, 0) == Shape{-1, 3});
  CHECK(*output_shape_of(Kind::kAllToAll, {8, -1}, 4, 0, 1) == Shape{2, -1});
}

TEST_CASE("reduce: 16-bit sums are rounded once, NaN wins, integers wrap", "[exec]") {
  const auto reduce_all = [](DType dtype, ReduceOp op, const std::vector<double>& values) {
    std::vector<std::string> buffers;
    for (double v : values) buffers.push_back(encode(dtype, {v}));
    std::vector<const void*> inputs;
    for (const auto& buffer : buffers) inputs.push_back(buffer.data());
    std::string out(static_cast<std::size_t>(size_of(dtype)), '\0');
    reduce(op, dtype, inputs, 1, out.data());
    return out;
  };
  // Rounded at every step, 2048 + 1 + 1 + ... would stay 2048 in float16 and 256 in bfloat16.
  CHECK(reduce_all(DType::kFloat16, ReduceOp::kSum, {2048, 1, 1, 1, 1}) ==
        encode(DType::kFloat16, {2052}));
  CHECK(reduce_all(DType::kBFloat16, ReduceOp::kSum, {256, 1, 1, 1, 1}) ==
        encode(DType::kBFloat16, {260}));
  const double nan = std::nan("");
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum}) {
    for (const auto& values : {std::vector<double>{nan, 1}, std::vector<double>{1, nan}}) {
      float result = 0;
      std::memcpy(&result, reduce_all(DType::kFloat32, op, values).data(), 4);
      CHECK(std::isnan(result));
    }
  }
  CHECK(reduce_all(DType::kInt8, ReduceOp::kSum, {100, 100}) == encode(DType::kInt8, {-56}));
  CHECK(reduce_all(DType::kInt32, ReduceOp::kAvg, {-3, -4}) == encode(DType::kInt32, {-3}));
  // Group order: (1e30 + -1e30) + 1 = 1, but 1e30 + (-1e30 + 1) = 0.
  CHECK(reduce_all(DType::kFloat64, ReduceOp::kSum, {1e30, -1e30, 1}) ==
        encode(DType::kFloat64, {1}));
}

TEST_CASE("half: all float16 and bfloat16 values survive, rounding is to nearest even", "[exec]") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    if (!std::isnan(float_of_float16(b)) && float16_of_float(float_of_float16(b)) != b) {
      FAIL("float16 " << bits);
    }
    if (!std::isnan(float_of_bfloat16(b)) && bfloat16_of_float(float_of_bfloat16(b)) != b) {
      FAIL("bfloat16 " << bits);
    }
    // The middle of two neighbours goes to the even one, a little more or less to the nearer.
    if ((b & 0x7fffu) >= 0x7bffu) continue;
    const float low = float_of_float16(b);
    const float high = float_of_float16(static_cast<std::uint16_t>(b + 1));
    const float middle = low + (high - low) / 2;
    const auto even = static_cast<std::uint16_t>(b % 2 == 0 ? b : b + 1);
    if (float16_of_float(middle) != even || float16_of_float(std::nextafter(middle, low)) != b ||
        float16_of_float(std::nextafter(middle, high)) != b + 1) {
      FAIL("float16 between " << low << " and " << high);
    }
  }
  CHECK(float_of_float16(0x3c00) == 1.0f);
  CHECK(float_of_float16(0x0001) == 0x1p-24f);
  CHECK(float16_of_float(65519.9f) == 0x7bff);
  CHECK(float16_of_float(65520.0f) == 0x7c00);
  CHECK(std::isnan(float_of_float16(float16_of_float(std::nanf("")))));
  CHECK(std::isnan(float_of_bfloat16(bfloat16_of_float(std::bit_cast<float>(0x7f800001u)))));
  CHECK(bfloat16_of_float(std::bit_cast<float>(0x3f808000u)) == 0x3f80);
  CHECK(bfloat16_of_float(std::bit_cast<float>(0x3f818000u)) == 0x3f82);
}

TEST_CASE("slices: of every rank, put together again", "[exec]") {
  const Mesh mesh = mesh_of({2, 3, 2});
  Tensor whole = generate("x", DType::kInt16, {12, 6, 4}, 1);
  for (std::size_t i = 0; i < whole.bytes.size(); ++i) whole.bytes[i] = static_cast<char>(i);
  for (const char* text : {"[{},{},{}]", "[{a},{},{}]", "[{b,a},{},{}]", "[{},{b},{c}]",
                           "[{c},{b},{a}]", "[{a,c},{b},{}]", "[{},{},{a,c}]"}) {
    const auto spec = parse_spec(text, mesh);
    REQUIRE(spec);
    Tensor again = whole;
    again.bytes.assign(whole.bytes.size(), 'x');
    for (std::int64_t rank = 0; rank < mesh.size(); ++rank) {
      const Slice slice(whole, *spec, mesh, rank);
      const Shape offset = slice_offsets(*spec, whole.shape, mesh, rank);
      const Plain expected = make_plain(slice.shape(), [&](const Shape& index) {
        std::int64_t flat = 0;
        for (std::size_t d = 0; d < 3; ++d) flat = flat * whole.shape[d] + index[d] + offset[d];
        std::int16_t value = 0;
        std::memcpy(&value, whole.bytes.data() + 2 * flat, 2);
        return value;
      });
      CAPTURE(text, rank);
      CHECK((std::string(static_cast<const char*>(slice.data()), slice.size()) ==
             encode(DType::kInt16, expected.values)));
      put_slice(slice.data(), *spec, mesh, rank, again);
    }
    CHECK((again == whole));
  }
}

// What each rank does, one list of calls per rank; returns each rank's error ("" if none).
std::vector<std::string> run_calls(const std::vector<std::vector<CollectiveCall>>& calls,
                                   Seconds timeout, Seconds pause_of_rank_0 = 0) {
  const auto n = static_cast<int>(calls.size());
  ThreadWorld world(n, timeout);
  std::vector<std::string> errors(calls.size());
  on_ranks(n, [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == 0 && pause_of_rank_0 > 0) {
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_of_rank_0));
    }
    for (const CollectiveCall& call : calls[r]) {
      std::string input(4096, '\1');
      std::string output(4096, '\0');
      if (auto status = world.run(rank, call, input.data(), output.data()); !status) {
        errors[r] = status.error().code == ErrorCode::kRuntime ? status.error().message
                                                               : "another kind of error";
        break;
      }
    }
    world.finish(rank);
  });
  return errors;
}

CollectiveCall named(const std::string& name, std::int64_t seq,
                     const std::vector<std::int64_t>& group, int rank) {
  const auto position = std::find(group.begin(), group.end(), rank) - group.begin();
  auto call = make_call(CollectiveKind::kAllReduce, DType::kFloat32, {4}, group,
                        static_cast<int>(position));
  call.op_name = name;
  call.seq = seq;
  return call;
}

void check_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    CAPTURE(text, part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("threads: ranks that wait for each other are found at once", "[exec]") {
  // Rank 0 goes to a with 1, rank 1 to b with 2, rank 2 to c with 0.
  const auto errors = run_calls(
      {{named("a", 0, {0, 1}, 0)}, {named("b", 1, {1, 2}, 1)}, {named("c", 2, {0, 2}, 2)}}, 1000);
  for (const std::string& error : errors) {
    check_contains(error, {"wait for each other", "AllReduce 'a'", "AllReduce 'b'", "AllReduce 'c'",
                           "rank 0 waits for rank 1", "rank 1 waits for rank 2"});
  }
}

TEST_CASE("threads: a rank that has finished is named", "[exec]") {
  const auto errors = run_calls({{named("a", 0, {0, 1, 2}, 0), named("b", 1, {0, 1, 2}, 0)},
                                 {named("a", 0, {0, 1, 2}, 1)},
                                 {named("a", 0, {0, 1, 2}, 2), named("b", 1, {0, 1, 2}, 2)}},
                                1000);
  check_contains(errors[0], {"AllReduce 'b' (seq 1, group [0,1,2]", "ranks 0, 2 wait for rank 1",
                             "rank 1 has finished after AllReduce 'a'"});
  CHECK(errors[1].empty());
  CHECK(errors[2] == errors[0]);
}

TEST_CASE("threads: different calls of a group are named with their ranks", "[exec]") {
  const std::vector<std::int64_t> group = {0, 1};
  const auto gather = [&](int rank) {
    auto call = make_call(CollectiveKind::kAllGather, DType::kFloat32, {4}, group, rank);
    call.op_name = "g";
    return call;
  };
  auto errors = run_calls({{named("a", 0, group, 0)}, {gather(1)}}, 1000);
  check_contains(errors[0], {"rank 0", "rank 1", "AllReduce 'a'", "AllGather 'g'"});
  CHECK(errors[0] == errors[1]);

  std::vector<std::function<void(CollectiveCall&)>> changes = {
      [](CollectiveCall& c) { c.op_name = "other"; },
      [](CollectiveCall& c) { c.seq = 9; },
      [](CollectiveCall& c) { c.dtype = DType::kInt32; },
      [](CollectiveCall& c) { c.input_shape = c.output_shape = {5}; },
      [](CollectiveCall& c) { c.reduce_op = "max"; },
  };
  for (const auto& change : changes) {
    CollectiveCall other = named("a", 0, group, 1);
    change(other);
    errors = run_calls({{named("a", 0, group, 0)}, {other}}, 1000);
    check_contains(errors[0], {"rank 0 calls", "rank 1 calls", "same order"});
  }
}

TEST_CASE("threads: a time limit names who is missing", "[exec]") {
  const std::vector<std::int64_t> group = {0, 1, 2};
  const auto call = [&](int r) { return named("late", 3, group, r); };
  const auto errors = run_calls({{call(0)}, {call(1)}, {call(2)}}, 0.1, 0.5);
  check_contains(errors[1], {"AllReduce 'late' (seq 3", "ranks 1, 2 wait for rank 0",
                             "rank 0 is busy with local ops before its first collective", "0.1 s"});
  CHECK(errors[0] == errors[1]);
  for (const auto& error : run_calls({{call(0)}, {call(1)}, {call(2)}}, 20, 0.2)) {
    CHECK(error.empty());
  }
}

TEST_CASE("threads: an abort reaches the ranks that wait and those that come", "[exec]") {
  ThreadWorld world(3, 1000);
  std::vector<std::string> errors(3);
  on_ranks(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ThreadCommunicator(world, 2).abort("rank 2 failed: no more paper");
      return;
    }
    float in = 1;
    float out = 0;
    auto call = named("a", 0, {0, 1, 2}, rank);
    call.input_shape = call.output_shape = {1};
    const auto status = world.run(rank, call, &in, &out);
    errors[static_cast<std::size_t>(rank)] = status ? "" : status.error().message;
  });
  CHECK(errors[0] == "rank 2 failed: no more paper");
  CHECK(errors[1] == errors[0]);
  CHECK(world.failure() == errors[0]);
  CHECK(!world.run(0, named("b", 1, {0, 1, 2}, 0), nullptr, nullptr));
}

TEST_CASE("threads: 64 ranks in groups of several shapes", "[exec]") {
  // Rows and columns of an 8 x 8 mesh in turn; a sum over both is the sum over all.
  constexpr int kRanks = 64;
  ThreadWorld world(kRanks, 60);
  std::vector<std::int64_t> sums(kRanks);
  on_ranks(kRanks, [&](int rank) {
    std::int64_t value = rank;
    for (int round = 0; round < 10; ++round) {
      for (int step : {1, 8}) {
        std::vector<std::int64_t> group;
        const int first = step == 1 ? rank / 8 * 8 : rank % 8;
        for (int i = 0; i < 8; ++i) group.push_back(first + i * step);
        auto call = named("s" + std::to_string(step), round, group, rank);
        call.dtype = DType::kInt64;
        call.input_shape = call.output_shape = {1};
        std::int64_t result = 0;
        if (!world.run(rank, call, &value, &result)) return;
        value = result;
      }
      value /= 64;
    }
    sums[static_cast<std::size_t>(rank)] = value;
    world.finish(rank);
  });
  // 2016 / 64 = 31; from then on all have the same value.
  CHECK(sums == std::vector<std::int64_t>(kRanks, 31));
}

TEST_CASE("profile: kernel events of a trace", "[exec]") {
  const Trace trace = parse_trace(
      "[\n"
      R"({"cat" : "Node","dur" :2,"ts" :6,"name" :"x"y_kernel_time","args" : {"op_name" : "Add"}},)"
      "\n"
      R"({"cat" : "Node","dur" :12,"ts" :5,"name" :"a_kernel_time","args" : {"op_name" : "If"}},)"
      "\n"
      R"({"cat" : "Session","dur" :9,"ts" :4,"name" :"model_run","args" : {}},)"
      "\n"
      R"({"cat" : "Node","dur" :3,"ts" :30,"name" :"b_kernel_time","args" : {"op_name" : "If"}},)"
      "\n"
      R"({"cat" : "Node","dur" :7,"name" :"b_fence_before","args" : {"op_name" : "If"}},)"
      "\n"
      R"({"cat" : "Node","dur" :1,"ts" :34,"name" :"c_kernel_time","args" : {"op_name" : "Add"}})"
      "\n]\n");
  CHECK(trace.model_runs == 1);
  REQUIRE(trace.kernels.size() == 4);
  CHECK(trace.kernels[0].name == "x\"y");
  CHECK(trace.kernels[0].inner);
  CHECK(std::abs(trace.kernels[0].begin - 6e-6) < 1e-12);
  CHECK((!trace.kernels[1].inner && !trace.kernels[2].inner && !trace.kernels[3].inner));
  CHECK(trace.kernels[3].model_run == 1);
  const auto times = kernel_times(trace, 0, 2);
  REQUIRE(times.size() == 2);
  CHECK(times.at("If").count == 2);
  CHECK(std::abs(times.at("If").seconds - 15e-6) < 1e-12);
  CHECK(times.at("Add").count == 2);
  CHECK(kernel_times(trace, 1, 2).at("If").count == 1);
  CHECK(parse_trace("").kernels.empty());
}

}  // namespace
}  // namespace autopar::exec_test
