// The builder of graphs and the reverse walk: what is added where, and under which names.
#include "autopar/grad.hpp"

#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif

namespace autopar::grad_test {
namespace {

struct Subject {
  Graph graph;
  Names values, ops;

  ValueId add(const std::string& name, const Shape& shape, ValueKind kind) {
    values.take(name);
    const ValueId id =
        graph.add_value({.name = name, .dtype = DType::kFloat32, .shape = shape, .kind = kind});
    if (kind != ValueKind::kActivation) graph.inputs.push_back(id);
    return id;
  }
  ValueId op(const std::string& name, const std::string& type, const std::vector<ValueId>& inputs,
             const Shape& shape) {
    const ValueId output = add(name + ".out", shape, ValueKind::kActivation);
    ops.take(name);
    graph.add_op({.name = name, .type = type, .inputs = inputs, .outputs = {output}});
    return output;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const Op& one : graph.ops) found.push_back(one.name + " " + one.type);
    return found;
  }
};

TEST_CASE("a builder broadcasts, reduces back and counts names", "[grad]") {
  Subject s;
  const ValueId row = s.add("row", {4}, ValueKind::kInput),
                table = s.add("table", {3, 4}, ValueKind::kInput);
  GraphBuilder to(s.graph, s.values, s.ops);
  to.name_after("sum.grad", GraphBuilder::Naming::kCounted);
  const ValueId product = to.pointwise("Mul", {table, row});
  CHECK(to.shape(product) == Shape{3, 4});
  CHECK(to.shape(to.sum_to(product, {4})) == Shape{4});
  CHECK(to.sum_to(product, {3, 4}) == product);
  CHECK(s.names() ==
        std::vector<std::string>{"sum.grad Mul", "sum.grad.1 ReduceSum", "sum.grad.2 Reshape"});
}

TEST_CASE("gradients by several ways are added", "[grad]") {
  Subject s;
  const ValueId x = s.add("x", {4}, ValueKind::kParameter), y = s.op("square", "Mul", {x, x}, {4});
  const ValueId z = s.op("more", "Add", {y, x}, {4});
  GraphBuilder to(s.graph, s.values, s.ops);
  const ValueId one = to.filled(DType::kFloat32, {4}, 1);
  const auto grads = backward(to, 2, {{z, one}}, {x});
  REQUIRE(grads.ok());
  // 1 by `more`, x and x by `square`.
  int added = 0;
  for (const Op& op : s.graph.ops)
    added += op.type == "Add" && op.name.find(".grad") != std::string::npos;
  CHECK(added == 2);
  CHECK(to.shape((*grads)[0]) == Shape{4});
}

TEST_CASE("an op without a gradient is an error that tells the way", "[grad]") {
  Subject s;
  const ValueId x = s.add("x", {4, 4}, ValueKind::kParameter);
  const ValueId y = s.op("odd", "NoSuchOp", {x}, {4, 4}), z = s.op("relu", "Relu", {y}, {4, 4});
  GraphBuilder to(s.graph, s.values, s.ops);
  const auto grads = backward(to, 2, {{z, to.filled(DType::kFloat32, {4, 4}, 1)}}, {x});
  REQUIRE(!grads.ok());
  CHECK(grads.error().message.find("op 'odd': NoSuchOp has no gradient") == 0);
  CHECK(grads.error().message.find("by way of 'relu'") != std::string::npos);
}

TEST_CASE("a value that the loss does not depend on has no gradient", "[grad]") {
  Subject s;
  const ValueId x = s.add("x", {4}, ValueKind::kParameter),
                w = s.add("w", {4}, ValueKind::kParameter);
  const ValueId y = s.op("relu", "Relu", {x}, {4});
  GraphBuilder to(s.graph, s.values, s.ops);
  const auto grads = backward(to, 1, {{y, to.filled(DType::kFloat32, {4}, 1)}}, {x, w});
  REQUIRE(grads.ok());
  CHECK((*grads)[0].valid());
  CHECK(!(*grads)[1].valid());
}

TEST_CASE("16-bit tensors are decoded as they are encoded", "[grad]") {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (double value : {0.0, 1.0, -2.5, 0.0078125, 3e-5, 60000.0}) {
      const auto decoded = float_values(scalar_tensor(dtype, value));
      REQUIRE(decoded);
      CHECK(decoded->at(0) == Approx(value).epsilon(0.01));
    }
  }
  CHECK(!float_values(scalar_tensor(DType::kInt32, 1)));
}

}  // namespace
}  // namespace autopar::grad_test
