// The parts of exec that need no ONNX Runtime: what collectives compute, how threads meet. In one
// file because all are held to one plain implementation of the collectives.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/collective_math.hpp"
#include "exec/compare.hpp"
#include "exec/generate.hpp"
#include "exec/profile.hpp"
#include "exec/reduce.hpp"
#include "exec/thread_world.hpp"
#include "exec/verdict.hpp"
#include "ir/half.hpp"

namespace autopar::exec_test {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                             DType::kInt8,    DType::kUInt8,   DType::kInt16,    DType::kUInt16,
                             DType::kInt32,   DType::kUInt32,  DType::kInt64,    DType::kUInt64,
                             DType::kBool};

Mesh mesh_of(const std::vector<std::int64_t>& sizes) {
  Mesh mesh;
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    mesh.axes.insert(mesh.axes.begin(),
                     Axis{std::string(1, static_cast<char>('a' + i)), sizes[i], 0, stride});
    stride *= sizes[i];
  }
  return mesh;
}

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string encode(DType dtype, const std::vector<double>& values) {
  std::string bytes;
  for (double v : values) {
    switch (dtype) {
      case DType::kFloat32:
        put(bytes, static_cast<float>(v));
        break;
      case DType::kFloat64:
        put(bytes, v);
        break;
      case DType::kFloat16:
        put(bytes, float16_of_float(static_cast<float>(v)));
        break;
      case DType::kBFloat16:
        put(bytes, bfloat16_of_float(static_cast<float>(v)));
        break;
      case DType::kInt8:
      case DType::kUInt8:
        put(bytes, static_cast<std::int8_t>(v));
        break;
      case DType::kInt16:
      case DType::kUInt16:
        put(bytes, static_cast<std::int16_t>(v));
        break;
      case DType::kInt32:
      case DType::kUInt32:
        put(bytes, static_cast<std::int32_t>(v));
        break;
      case DType::kInt64:
      case DType::kUInt64:
        put(bytes, static_cast<std::int64_t>(v));
        break;
      case DType::kBool:
        put(bytes, static_cast<std::uint8_t>(v != 0));
        break;
    }
  }
  return bytes;
}

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

TEST_CASE("generate: the same everywhere, about normal, by seed and name", "[exec]") {
  const Tensor x = generate("x", DType::kFloat32, {200, 100}, 7);
  CHECK((x == generate("x", DType::kFloat32, {200, 100}, 7)));
  CHECK((x.bytes != generate("y", DType::kFloat32, {200, 100}, 7).bytes));
  CHECK((x.bytes != generate("x", DType::kFloat32, {200, 100}, 8).bytes));
  const auto* values = reinterpret_cast<const float*>(x.bytes.data());
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 20000; ++i) {
    sum += values[i];
    squares += values[i] * values[i];
  }
  CHECK(std::abs(sum / 20000) < 0.003);
  CHECK(std::abs(std::sqrt(squares / 20000) - 0.1) < 0.003);
  CHECK(std::bit_cast<std::uint32_t>(values[0]) == 0xbda17d9au);  // as on every platform
  for (DType dtype : {DType::kInt8, DType::kInt64, DType::kBool, DType::kUInt16}) {
    const Tensor bits = generate("i", dtype, {1000}, 0);
    const auto ints = int_values(bits);
    REQUIRE(ints);
    const auto ones = std::accumulate(ints->begin(), ints->end(), std::int64_t{0});
    CHECK(*std::max_element(ints->begin(), ints->end()) == 1);
    CHECK(*std::min_element(ints->begin(), ints->end()) == 0);
    CHECK(ones > 400);
    CHECK(ones < 600);
  }
  const auto drawn = int_values(generate("i", DType::kInt64, {5000}, 0, {.indices = 50}));
  CHECK(*std::min_element(drawn->begin(), drawn->end()) == 0);
  CHECK(*std::max_element(drawn->begin(), drawn->end()) == 49);
  const auto counts = int_values(generate("i", DType::kInt64, {100}, 0, {.mean = 1}));
  CHECK(*std::min_element(counts->begin(), counts->end()) == 1);
  CHECK(*std::max_element(counts->begin(), counts->end()) == 2);
  const auto small = int_values(generate("i", DType::kInt8, {5000}, 0, {.indices = 1000}));
  CHECK(*std::min_element(small->begin(), small->end()) == 0);
  CHECK(*std::max_element(small->begin(), small->end()) == 127);
}

// By the criterion of a result that is alone, with only the tolerance as it is given.
Criterion criterion_for(DType dtype, const std::vector<double>& expected, Tolerance tolerance) {
  double largest = 0;
  for (double element : expected) {
    if (std::isfinite(element)) largest = std::max(largest, std::abs(element));
  }
  return criterion_of(dtype, tolerance, {.largest = largest});
}

Difference differ(DType dtype, const std::vector<double>& found,
                  const std::vector<double>& expected, Tolerance tolerance = {1e-3, 1e-5}) {
  return compare(encode(dtype, found).data(), encode(dtype, expected).data(), expected.size(),
                 criterion_for(dtype, expected, tolerance));
}

TEST_CASE("compare: tolerances, NaN, infinities, integers", "[exec]") {
  const double nan = std::nan("");
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(differ(DType::kFloat32, {1, 2}, {1, 2}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {1.0005, 2}, {1, 2}).disagreeing == 0);
  const Difference far = differ(DType::kFloat32, {1, 2.5}, {1, 2});
  CHECK(far.disagreeing == 1);
  CHECK(far.max_absolute == 0.5);
  CHECK(far.max_relative == 0.25);
  CHECK(far.first == "element 1 of the slice is 2.5, expected 2");
  CHECK(differ(DType::kFloat64, {0.001}, {0}).disagreeing == 1);
  CHECK(differ(DType::kFloat32, {nan, 1}, {nan, 1}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {nan, 1}, {nan, 1}).nans == 1);
  CHECK(differ(DType::kFloat32, {nan, 1}, {1, nan}).disagreeing == 2);
  CHECK(differ(DType::kFloat32, {inf, -inf}, {inf, -inf}).disagreeing == 0);
  CHECK(differ(DType::kFloat32, {inf, 1}, {-inf, inf}).disagreeing == 2);
  CHECK(std::isinf(differ(DType::kFloat32, {inf}, {1}).max_absolute));
  CHECK(differ(DType::kInt64, {3, 4}, {3, 5}).disagreeing == 1);
  CHECK(differ(DType::kBool, {1, 0}, {1, 1}).disagreeing == 1);
  CHECK(differ(DType::kFloat16, {1.005}, {1}).disagreeing == 0);
  CHECK(differ(DType::kFloat16, {1.05}, {1}).disagreeing == 1);
  CHECK(differ(DType::kBFloat16, {1.05}, {1}).disagreeing == 0);
  CHECK(differ(DType::kBFloat16, {1.2}, {1}).disagreeing == 1);
}

TEST_CASE("compare: an updated tensor agrees in its change", "[exec]") {
  const auto whole = [](const std::vector<double>& values) {
    return Tensor{DType::kFloat32,
                  {static_cast<std::int64_t>(values.size())},
                  encode(DType::kFloat32, values)};
  };
  const Tensor before = whole({1, 1, 1, 1});
  const Tensor after = whole({1.001, 0.999, 1.002, 1});
  CHECK(largest_magnitude(after, &before) == Approx(0.002).epsilon(1e-4));
  Scales scales{.largest = largest_magnitude(after),
                .is_next_value = true,
                .largest_change = largest_magnitude(after, &before)};
  const auto differences = [&](const std::vector<double>& found, bool updated) {
    scales.is_next_value = updated;
    Criterion criterion = criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales);
    criterion.jump = "Greater 'op'";
    const Difference difference = compare(whole(found).bytes.data(), after.bytes.data(), 4,
                                          criterion, updated ? before.bytes.data() : nullptr);
    return std::pair(difference.disagreeing, is_excused(difference, criterion));
  };
  const std::vector<double> wrong = {1.0008, 0.9988, 1.0018, 1};
  CHECK(differences(wrong, false).first == 0);  // 2e-4 of a weight of 1
  CHECK(differences(wrong, true) == std::pair(std::size_t{3}, false));
  CHECK(differences({1.001, 0.999, 1.002 + 1e-5, 1}, true).first == 0);
  // Never laxer than without: a change that is much larger than the weight that is left.
  const Tensor large = whole({100, 100, 100, 100});
  scales = {.largest = 1, .is_next_value = true, .largest_change = 99};
  CHECK(compare(whole({1.01, 1, 1, 1}).bytes.data(), before.bytes.data(), 4,
                criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales), large.bytes.data())
            .disagreeing == 1);
}

TEST_CASE("compare: small changes are not lost in the absolute tolerance", "[exec]") {
  const auto bytes = [](const std::vector<double>& values) {
    return encode(DType::kFloat32, values);
  };
  const auto disagreeing = [&](double found, double typical_change) {
    const Scales scales{.largest = 0.002,
                        .typical_of_all = typical_change,
                        .is_next_value = true,
                        .largest_change = 3e-6};
    return compare(bytes({found, 0.001997}).data(), bytes({0.001003, 0.001997}).data(), 2,
                   criterion_of(DType::kFloat32, {2e-4, 2e-5}, scales),
                   bytes({0.001, 0.002}).data())
        .disagreeing;
  };
  CHECK(disagreeing(0.0010025, 0) == 1);
  CHECK(disagreeing(0.0010025, 1) == 0);  // all are rounded so
  CHECK(disagreeing(0.00100301, 0) == 0);
}

TEST_CASE("expect: absolute tolerances go by what the model computes", "[exec]") {
  const auto tensor = [](DType dtype, const std::vector<double>& values) {
    return Tensor{dtype, {static_cast<std::int64_t>(values.size())}, encode(dtype, values)};
  };
  const std::map<std::string, Tensor> outputs = {
      {"tiny", tensor(DType::kFloat32, {1e-9, 2e-9, 0})},
      {"new.w", tensor(DType::kFloat32, {30, 20, 10})},
      {"new.b", tensor(DType::kFloat32, {1e-6, 1e-6, 1e-6})}};
  const std::map<std::string, Tensor> inputs = {{"w", tensor(DType::kFloat32, {20, 20, 30})},
                                                {"b", tensor(DType::kFloat32, {0, 0, 0})}};
  RunRequest request;
  request.jumps["new.b"] = "Sign 'op'";
  const ExpectedTensors expected = expect(request, outputs, inputs);
  const Criterion& tiny = expected.at("tiny").criterion;
  CHECK(tiny.tolerance.atol == Approx(4e-11));
  CHECK(tiny.jump.empty());
  CHECK(tiny.reason() == "|difference| <= 4e-11 + 0.0002 |expected|");
  const double rounding = 12 * 20 * 0x1p-23;  // more than the absolute tolerance
  CHECK(expected.at("new.w").criterion.tolerance.atol == Approx(rounding));
  CHECK(expected.at("new.w").criterion.allowed(20, 20) ==
        Approx(rounding + 2e-4 * 20.0 / 16 + 16 * 20 * 0x1p-23));
  // The median change of w is 10: what is left of b may be no more than rounding.
  const Criterion& left = expected.at("new.b").criterion;
  CHECK(left.change_atol == Approx(12 * 10 * 0x1p-23));
  CHECK(left.jump == "Sign 'op'");
  CHECK(left.reason().find("behind Sign 'op' up to 25 % of the elements") != std::string::npos);
  // Half of it masked: by what is not.
  const Tensor masked = tensor(DType::kFloat16, {-60000, 2, -3, 2, -60000});
  CHECK(typical_magnitude(masked) == 3);
  const Scales scales{.largest = 60000, .typical = 3};
  CHECK(criterion_of(DType::kFloat16, {2e-4, 0}, scales).tolerance.atol == Approx(36 * 0x1p-10));
  // Results in float32, but not next values, lie behind all sums of a model.
  CHECK(criterion_of(DType::kFloat32, {2e-4, 0}, scales).tolerance.atol ==
        Approx(96 * 3 * 0x1p-23));
  CHECK(criterion_of(DType::kFloat64, {2e-4, 0}, scales).tolerance.atol == Approx(36 * 0x1p-52));
}

TEST_CASE("compare: what is excused behind a jump is little and small", "[exec]") {
  std::vector<double> expected(10000, 0.1);
  for (std::size_t i = 0; i < expected.size(); i += 2) expected[i] = -1;
  std::vector<double> found = expected;
  const auto excused = [&](double rtol, const std::string& jump = "Sign 'op'") {
    Criterion criterion = criterion_for(DType::kFloat32, expected, {rtol, 1e-5});
    criterion.jump = jump;
    return is_excused(compare(encode(DType::kFloat32, found).data(),
                              encode(DType::kFloat32, expected).data(), expected.size(), criterion),
                      criterion);
  };
  found[17] = 0.11;
  CHECK(differ(DType::kFloat32, found, expected).disagreeing == 1);
  CHECK(excused(2e-4));
  CHECK_FALSE(excused(2e-4, ""));  // no jump, no excuse
  CHECK_FALSE(excused(0));
  found[17] = 0.2;  // too large
  CHECK_FALSE(excused(2e-4));
  found = expected;
  for (double& element : found) element *= 1.002;  // too many
  CHECK_FALSE(excused(2e-4));
  found = expected;
  for (std::size_t i = 0; i < 1000; ++i) found[i] *= 1.045;  // too much as a whole
  CHECK_FALSE(excused(2e-4));
  found = expected;
  found[3] = std::nan("");
  CHECK_FALSE(excused(2e-4));
}

TEST_CASE("compare: more is excused behind a jump in 16 bits", "[exec]") {
  const std::vector<double> expected(100, 1);
  const auto excused = [&](double off, std::size_t count, DType calculated_in, double rtol = 2e-4) {
    std::vector<double> found = expected;
    for (std::size_t i = 0; i < count; ++i) found[i] += off;
    const Scales scales{.largest = 1, .typical = 1, .largest_result = 1};
    Criterion criterion = criterion_of(DType::kFloat32, {rtol, 1e-5}, scales, calculated_in);
    criterion.jump = "Greater 'op'";
    return is_excused(compare(encode(DType::kFloat32, found).data(),
                              encode(DType::kFloat32, expected).data(), expected.size(), criterion),
                      criterion);
  };
  for (const DType half : {DType::kFloat16, DType::kBFloat16}) {
    CHECK(excused(0.05, 100, half));
    CHECK(excused(0.19, 10, half));
    CHECK_FALSE(excused(0.21, 1, half));    // too large
    CHECK_FALSE(excused(0.07, 100, half));  // too much as a whole
    CHECK_FALSE(excused(0.05, 100, half, 0));
  }
  CHECK_FALSE(excused(0.05, 100, DType::kFloat32));
}

Distribution distribution_for(const std::string& type, std::size_t port, const Shape& shape,
                              DType dtype = DType::kFloat32) {
  Graph graph;
  Op op{.name = "op", .type = type};
  for (std::size_t i = 0; i < 5; ++i) {
    const bool own = i == port;
    const ValueId value = graph.add_value({.name = "in" + std::to_string(i),
                                           .dtype = own ? dtype : DType::kFloat32,
                                           .shape = own ? shape : Shape{7, 5},
                                           .kind = ValueKind::kInput});
    graph.inputs.push_back(value);
    op.inputs.push_back(value);
  }
  op.outputs = {graph.add_value({.name = "out", .shape = {7, 5}})};
  graph.outputs = op.outputs;
  graph.add_op(op);
  return distributions_of(graph).at("in" + std::to_string(port));
}

TEST_CASE("distributions: by what reads the input", "[exec]") {
  const Distribution unit{0, 1};
  const Distribution around_one{1, 0.1};
  CHECK((distribution_for("MatMul", 0, {4, 7}) == unit));
  CHECK((distribution_for("MatMul", 1, {30, 20}) == Distribution{0, 0.2}));
  CHECK((distribution_for("Conv", 1, {4, 1, 5, 2}) == Distribution{0, 0.2}));
  CHECK((distribution_for("LayerNormalization", 1, {7}) == around_one));
  CHECK((distribution_for("BatchNormalization", 4, {7}) == around_one));
  CHECK((distribution_for("Sqrt", 0, {7}) == around_one));
  CHECK((distribution_for("Div", 1, {7}) == around_one));
  CHECK((distribution_for("Pow", 0, {7}) == around_one));
  CHECK((distribution_for("Acosh", 0, {7}) == Distribution{2, 0.1}));
  CHECK((distribution_for("Mul", 0, {1, 7, 1, 1}) == around_one));
  CHECK((distribution_for("Div", 1, {7}, DType::kInt64) == Distribution{.mean = 1, .indices = 1}));
  CHECK((distribution_for("Add", 1, {7}) == Distribution{}));
  CHECK(distribution_for("Gather", 1, {9}, DType::kInt64).indices == 7);
  CHECK(distribution_for("SoftmaxCrossEntropyLoss", 1, {9}, DType::kInt32).indices == 5);
  CHECK(distribution_for("Add", 1, {9}, DType::kInt64).indices == 2);
  CHECK(distribution_for("Equal", 1, {9}, DType::kInt64).indices == 2);
  CHECK(distribution_for("Where", 0, {9}, DType::kBool).indices == 2);
}

TEST_CASE("distributions: through ops in between", "[exec]") {
  // Adam's second moment: Sqrt(v * 0.99 + g) is the next value; the weight is transposed first.
  Graph graph;
  const auto value = [&graph](const char* name, const Shape& shape) {
    return graph.add_value({.name = name, .shape = shape, .kind = ValueKind::kInput});
  };
  const ValueId v = value("v", {8, 8});
  const ValueId g = value("g", {8, 8});
  const ValueId w = value("w", {8, 8});
  const ValueId b = value("b", {});
  const auto add = [&](const char* type, const std::vector<ValueId>& inputs) {
    const std::string name = "op" + std::to_string(graph.ops.size());
    const ValueId output = graph.add_value({.name = name, .shape = {8, 8}});
    graph.add_op({.name = name, .type = type, .inputs = inputs, .outputs = {output}});
    return output;
  };
  graph.inputs = {v, g, w, b};
  const ValueId root = add("Sqrt", {add("Add", {add("Mul", {v, b}), add("Mul", {g, g})})});
  graph.outputs = {add("MatMul", {root, add("Transpose", {w})})};
  const auto distributions = distributions_of(graph);
  CHECK((distributions.at("v") == Distribution{1e-6, 1e-7}));
  CHECK((distributions.at("g") == Distribution{}));
  CHECK((distributions.at("w") == Distribution{0, std::sqrt(2.0 / 16)}));
  CHECK((distributions.at("b") == Distribution{}));
}

TEST_CASE("distributions: sides of products, steps", "[exec]") {
  Graph graph;
  const auto value = [&graph](const char* name, const Shape& shape, DType dtype = DType::kFloat32) {
    graph.inputs.push_back(
        graph.add_value({.name = name, .dtype = dtype, .shape = shape, .kind = ValueKind::kInput}));
    return graph.inputs.back();
  };
  const auto add = [&](const char* type, const std::vector<ValueId>& inputs,
                       DType dtype = DType::kFloat32) {
    const std::string name = "op" + std::to_string(graph.ops.size());
    const ValueId output = graph.add_value({.name = name, .dtype = dtype, .shape = {8, 8}});
    graph.add_op({.name = name, .type = type, .inputs = inputs, .outputs = {output}});
    return output;
  };
  const ValueId base = graph.add_value({.name = "base",
                                        .shape = {},
                                        .kind = ValueKind::kConstant,
                                        .data = Tensor{DType::kFloat32, {}, std::string(4, 0)}});
  const ValueId x = value("x", {8, 8});
  const ValueId left = value("left", {8, 8});
  const ValueId right = value("right", {8, 8});
  const ValueId step = value("step", {}, DType::kInt64);
  const ValueId relu = add("Relu", {x});
  add("MatMul", {left, add("MatMul", {relu, right})});
  graph.outputs = {add("Pow", {base, add("Cast", {step})})};
  const auto distributions = distributions_of(graph);
  CHECK((distributions.at("left") == Distribution{0, std::sqrt(2.0 / 16)}));
  CHECK((distributions.at("right") == Distribution{0, std::sqrt(4.0 / 16)}));  // of a ReLU
  CHECK((distributions.at("step") == Distribution{.mean = 1}));  // 1 - 0.9^0 would be 0
}

TEST_CASE("distributions: indices of inputs that meet", "[exec]") {
  Graph graph;
  const auto indices = [&graph](const char* name, const Shape& shape) {
    return graph.add_value({.name = name, .dtype = DType::kInt64, .shape = shape});
  };
  const auto look_up = [&graph](std::int64_t rows, ValueId index) {
    const std::string name = "rows" + std::to_string(rows);
    const ValueId table = graph.add_value({.name = "table of " + name, .shape = {rows}});
    const ValueId found = graph.add_value({.name = name, .shape = {4}});
    graph.add_op({.name = name, .type = "Gather", .inputs = {table, index}, .outputs = {found}});
    return found;
  };
  const ValueId a = indices("a", {2}), b = indices("b", {2}), both = indices("both", {4});
  graph.inputs = {a, b};
  graph.add_op({.name = "join", .type = "Concat", .inputs = {a, b}, .outputs = {both}});
  graph.outputs = {look_up(10, both), look_up(100, b)};
  CHECK(distributions_of(graph).at("a").indices == 10);
  CHECK(distributions_of(graph).at("b").indices == 10);
}

TEST_CASE("distributions: a chain of ops longer than a stack is deep", "[exec]") {
  Graph graph;
  graph.inputs = {graph.add_value({.name = "x", .shape = {2}, .kind = ValueKind::kInput})};
  ValueId last = graph.inputs[0];
  for (int i = 0; i < 200000; ++i) {
    const bool is_last = i == 199999;
    const ValueId next = graph.add_value({.name = "v" + std::to_string(i), .shape = {2}});
    graph.add_op({.name = "op" + std::to_string(i),
                  .type = is_last ? "Sqrt" : "Identity",
                  .inputs = {last},
                  .outputs = {next}});
    last = next;
  }
  graph.outputs = {last};
  CHECK((distributions_of(graph).at("x") == Distribution{1, 0.1}));
}

TEST_CASE("distributions: a moving average is no larger than gradients", "[exec]") {
  Graph graph;
  const auto value = [&graph](const char* name, const Shape& shape) {
    return graph.add_value({.name = name, .shape = shape, .kind = ValueKind::kInput});
  };
  const ValueId m = value("m", {8});
  const ValueId decay = value("decay", {});
  graph.inputs = {m, decay};
  graph.outputs = {graph.add_value({.name = "new.m", .shape = {8}})};
  graph.add_op({.name = "op", .type = "Mul", .inputs = {m, decay}, .outputs = graph.outputs});
  CHECK((distributions_of(graph).at("m") == Distribution{0, 1e-3}));
  CHECK((distributions_of(graph).at("decay") == Distribution{}));
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
