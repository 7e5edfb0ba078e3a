// Inputs that are drawn: their numbers, and how they are distributed by what reads them.
#include "exec/generate.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

namespace autopar::generate_test {
namespace {

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

}  // namespace
}  // namespace autopar::generate_test
