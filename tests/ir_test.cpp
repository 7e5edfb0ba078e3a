// Tensors, graphs, their verifier and their text form.
#include "autopar/ir.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

namespace autopar::ir_test {

namespace {

// X[4,8] -> MatMul W -> H -> Reshape to [2,16] -> Y
Graph small_graph() {
  Graph graph;
  graph.name = "small";
  const ValueId x = graph.add_value({.name = "X", .shape = {4, 8}, .kind = ValueKind::kInput});
  const ValueId w = graph.add_value({.name = "W",
                                     .shape = {8, 8},
                                     .kind = ValueKind::kParameter,
                                     .data = ExternalData{"w.bin", 64, 256}});
  const ValueId to = graph.add_value({.name = "to",
                                      .dtype = DType::kInt64,
                                      .shape = {2},
                                      .kind = ValueKind::kConstant,
                                      .data = int64_tensor({2}, {2, 16})});
  const ValueId h = graph.add_value({.name = "H", .shape = {4, 8}});
  const ValueId y = graph.add_value({.name = "Y", .shape = {2, 16}});
  graph.inputs = {x};
  graph.outputs = {y};
  graph.add_op({.name = "fc", .type = "MatMul", .inputs = {x, w}, .outputs = {h}});
  graph.add_op({.name = "view",
                .type = "Reshape",
                .inputs = {h, to},
                .outputs = {y},
                .attributes = {{"allowzero", std::int64_t{0}}}});
  return graph;
}

std::uint16_t half_bits(DType dtype, double value) {
  std::uint16_t bits = 0;
  const Tensor tensor = scalar_tensor(dtype, value);
  REQUIRE(tensor.bytes.size() == 2);
  std::memcpy(&bits, tensor.bytes.data(), 2);
  return bits;
}

void expect_error(const Graph& graph, const std::string& part) {
  const Status status = verify(graph);
  REQUIRE_FALSE(status.ok());
  INFO(status.error().message);
  CHECK(status.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("dtype names read back", "[ir]") {
  int count = 0;
  for (const char* name : {"float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16",
                           "uint16", "int32", "uint32", "int64", "uint64", "bool"}) {
    const std::optional<DType> dtype = parse_dtype(name);
    REQUIRE(dtype);
    CHECK(std::string(name_of(*dtype)) == name);
    CHECK(static_cast<int>(*dtype) == count++);
    CHECK(is_floating(*dtype) == (std::string(name).find("float") != std::string::npos));
  }
  CHECK_FALSE(parse_dtype("float8"));
  CHECK(size_of(DType::kBFloat16) == 2);
  CHECK(size_of(DType::kInt64) == 8);
  CHECK(size_of(DType::kBool) == 1);
}

TEST_CASE("element counts saturate", "[ir]") {
  CHECK(element_count({}) == 1);
  CHECK(element_count({3, 4}) == 12);
  CHECK(element_count({3, 0, 4}) == 0);
  const std::int64_t big = std::int64_t{1} << 40;
  CHECK(element_count({big, big, big}) == kMaxElements);
  CHECK(element_count({big, big, 0}) == 0);
  CHECK(to_text(Shape{64, 128}) == "[64,128]");
}

TEST_CASE("scalars round once, to nearest even", "[ir]") {
  struct Row {
    DType dtype;
    double value;
    std::uint16_t bits;
  };
  const double inf = std::numeric_limits<double>::infinity();
  for (const Row& row : std::vector<Row>{
           {DType::kFloat16, 1.0, 0x3C00},
           {DType::kFloat16, -2.0, 0xC000},
           {DType::kFloat16, 65504, 0x7BFF},
           {DType::kFloat16, 65519.99, 0x7BFF},
           {DType::kFloat16, 65520, 0x7C00},
           {DType::kFloat16, inf, 0x7C00},
           {DType::kFloat16, -inf, 0xFC00},
           {DType::kFloat16, 0.0, 0x0000},
           {DType::kFloat16, -0.0, 0x8000},
           {DType::kFloat16, 5.960464477539063e-08, 0x0001},   // smallest subnormal
           {DType::kFloat16, 2.9802322387695312e-08, 0x0000},  // half of it: tie to even
           {DType::kFloat16, 6.097555160522461e-05, 0x03FF},   // largest subnormal
           {DType::kFloat16, 1.00048828125, 0x3C00},           // tie to even, down
           {DType::kFloat16, 1.00146484375, 0x3C02},           // tie to even, up
           {DType::kFloat16, 1.0004882812500002, 0x3C01},      // just above the tie
           {DType::kBFloat16, 1.0, 0x3F80},
           {DType::kBFloat16, 3.3895313892515355e38, 0x7F7F},
           {DType::kBFloat16, 3.4e38, 0x7F80},
           {DType::kBFloat16, 0.1, 0x3DCD},
       }) {
    INFO(name_of(row.dtype) << " " << row.value);
    CHECK(half_bits(row.dtype, row.value) == row.bits);
  }
  CHECK((half_bits(DType::kFloat16, std::numeric_limits<double>::quiet_NaN()) & 0x7FFF) > 0x7C00);
}

TEST_CASE("integer scalars saturate and read back", "[ir]") {
  struct Row {
    DType dtype;
    double value;
    std::int64_t expected;
  };
  for (const Row& row : std::vector<Row>{
           {DType::kInt8, 1e9, 127},
           {DType::kUInt8, -3, 0},
           {DType::kInt16, -7, -7},
           {DType::kUInt16, 65535, 65535},
           {DType::kInt32, -1e12, std::numeric_limits<std::int32_t>::min()},
           {DType::kUInt32, 4294967295.0, 4294967295},
           {DType::kInt64, 1e30, std::numeric_limits<std::int64_t>::max()},
           {DType::kInt64, -5, -5},
           {DType::kUInt64, 12, 12},
           {DType::kBool, 2, 1},
           {DType::kInt32, std::numeric_limits<double>::quiet_NaN(), 0},
       }) {
    const auto values = int_values(scalar_tensor(row.dtype, row.value));
    INFO(name_of(row.dtype) << " " << row.value);
    REQUIRE(values);
    CHECK(*values == std::vector<std::int64_t>{row.expected});
  }
  CHECK_FALSE(int_values(scalar_tensor(DType::kFloat32, 1)));
  Tensor truncated = int64_tensor({2}, {1, 2});
  truncated.bytes.pop_back();
  CHECK_FALSE(int_values(truncated));
}

TEST_CASE("names are unique and deterministic", "[ir]") {
  Names names;
  CHECK(names.unique("a") == "a");
  CHECK(names.unique("a") == "a/1");
  names.take("a/2");
  CHECK(names.unique("a") == "a/3");
  CHECK(names.unique("a/1") == "a/1/1");
  CHECK(names.taken("a/3"));
  CHECK_FALSE(names.taken("a/4"));
}

TEST_CASE("a graph knows producers, uses and constants", "[ir]") {
  const Graph graph = small_graph();
  REQUIRE(verify(graph).ok());
  CHECK(graph.value(ValueId(3)).producer == OpId(0));
  const auto uses = uses_of(graph);
  CHECK(uses[0] == std::vector<Use>{{OpId(0), 0}});
  CHECK(uses[3] == std::vector<Use>{{OpId(1), 0}});
  CHECK(uses[4].empty());
  CHECK(constant_ints(graph, graph.ops[1], 1) == std::vector<std::int64_t>{2, 16});
  CHECK_FALSE(constant_ints(graph, graph.ops[1], 0));
  CHECK_FALSE(constant_ints(graph, graph.ops[1], 2));
  CHECK(graph.ops[1].int_attribute("allowzero", 7) == 0);
  CHECK(graph.ops[1].int_attribute("other", 7) == 7);
  CHECK(graph.ops[1].string_attribute("allowzero", "x") == "x");
}

TEST_CASE("the text form of a graph", "[ir]") {
  Graph graph = small_graph();
  graph.ops[1].attributes["scale"] = 2.0;
  graph.ops[1].attributes["mode"] = std::string("a\"b");
  graph.ops[1].attributes["perm"] = std::vector<std::int64_t>{1, 0};
  CHECK(
      to_text(graph) ==
      "graph small opset 18\n"
      "input X: float32[4,8]\n"
      "parameter W: float32[8,8] = w.bin@64\n"
      "constant to: int64[2] = [2, 16]\n"
      "H: float32[4,8] = MatMul(X, W) # fc\n"
      "Y: float32[2,16] = Reshape(H, to) allowzero=0 mode=\"a\\\"b\" perm=[1, 0] scale=2.0 # view\n"
      "output Y\n");
}

TEST_CASE("the verifier refuses broken graphs", "[ir]") {
  Graph graph = small_graph();
  SECTION("order of ops") {
    std::swap(graph.ops[0], graph.ops[1]);
    graph.values[3].producer = OpId(1);
    graph.values[4].producer = OpId(0);
    expect_error(graph, "topological");
  }
  SECTION("value names") {
    graph.values[1].name = "X";
    expect_error(graph, "two values are named 'X'");
  }
  SECTION("op names") {
    graph.ops[1].name = "fc";
    expect_error(graph, "two ops are named 'fc'");
  }
  SECTION("no name") {
    graph.values[2].name.clear();
    expect_error(graph, "has no name");
  }
  SECTION("two producers") {
    graph.ops[1].outputs = {graph.ops[0].outputs[0]};
    expect_error(graph, "a second time");
  }
  SECTION("producer that does not produce") {
    graph.values[4].producer = OpId(0);
    expect_error(graph, "another producer");
  }
  SECTION("nothing produces") {
    graph.add_value({.name = "ghost"});
    graph.ops[1].inputs[0] = ValueId(5);
    expect_error(graph, "nothing produces");
  }
  SECTION("missing value") {
    graph.ops[1].inputs[0] = ValueId(9);
    expect_error(graph, "does not exist");
  }
  SECTION("data of another size") {
    std::get<Tensor>(graph.values[2].data).bytes += "x";
    expect_error(graph, "expected 16 bytes of data, found 17");
  }
  SECTION("data of another type") {
    graph.values[2].dtype = DType::kInt32;
    expect_error(graph, "but its data is int64[2]");
  }
  SECTION("negative extent") {
    graph.values[4].shape = {2, -1};
    expect_error(graph, "dimension 1 is -1");
  }
  SECTION("huge") {
    graph.values[4].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
    expect_error(graph, "too many elements");
  }
  SECTION("input not listed") {
    graph.inputs.clear();
    expect_error(graph, "does not list it");
  }
  SECTION("constant as input") {
    graph.inputs.push_back(ValueId(2));
    expect_error(graph, "neither of kind input");
  }
  SECTION("missing output") {
    graph.outputs = {ValueId()};
    expect_error(graph, "output does not exist");
  }
}

}  // namespace autopar::ir_test
