// Which outputs of a model have a jump upstream.
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "autopar/exec.hpp"

namespace autopar::verdict_test {
namespace {

// A graph in which every value is a float32[4,4] unless it says otherwise.
class Model {
 public:
  ValueId input(const std::string& name, DType dtype = DType::kFloat32) {
    graph.inputs.push_back(graph.add_value(
        {.name = name, .dtype = dtype, .shape = {4, 4}, .kind = ValueKind::kInput}));
    return graph.inputs.back();
  }
  ValueId add(const std::string& type, const std::vector<ValueId>& inputs,
              DType dtype = DType::kFloat32) {
    return add_all(type, inputs, {dtype})[0];
  }
  std::vector<ValueId> add_all(const std::string& type, const std::vector<ValueId>& inputs,
                               const std::vector<DType>& dtypes) {
    const std::string name = "op" + std::to_string(graph.ops.size());
    std::vector<ValueId> outputs;
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      outputs.push_back(graph.add_value(
          {.name = name + "." + std::to_string(i), .dtype = dtypes[i], .shape = {4, 4}}));
    }
    graph.add_op({.name = name, .type = type, .inputs = inputs, .outputs = outputs});
    return outputs;
  }
  void output(ValueId value, const std::string& name) {
    graph.value(value).name = name;
    graph.outputs.push_back(value);
  }
  std::map<std::string, std::string> jumps(int steps = 1) const {
    return jumps_of(graph, steps, "new.*");
  }
  Graph graph;
};

using Jumps = std::map<std::string, std::string>;

TEST_CASE("jumps: only outputs behind one", "[exec]") {
  Model model;
  const ValueId product = model.add("MatMul", {model.input("x"), model.input("w")});
  const ValueId positive = model.add("Greater", {product, model.input("zero")}, DType::kBool);
  const ValueId gradient = model.add("Where", {positive, product, product});
  model.output(model.add("Softmax", {product}), "beside");
  model.output(model.add("MatMul", {gradient, product}), "behind");
  model.output(model.add("Relu", {product}), "continuous");
  CHECK(model.jumps() == Jumps{{"behind", "Greater 'op1'"}});
}

TEST_CASE("jumps: what is not computed crosses none", "[exec]") {
  Model model;
  const ValueId x = model.input("x");
  const ValueId w = model.input("w");
  // A mask of real numbers that come in: the same bits on every rank.
  const ValueId mask = model.add("Less", {model.add("Mul", {x, x}), w}, DType::kBool);
  model.output(model.add("Where", {mask, model.add("MatMul", {x, w}), x}), "masked");
  CHECK(model.jumps().empty());
  // Of integers.
  const ValueId tokens = model.input("tokens", DType::kInt64);
  const ValueId same = model.add("Equal", {tokens, tokens}, DType::kBool);
  model.output(model.add("Cast", {same}), "same");
  // Only the shape of what is behind a jump.
  const ValueId sign = model.add("Sign", {model.add("Exp", {x})});
  model.output(model.add("ConstantOfShape", {model.add("Shape", {sign}, DType::kInt64)}), "filled");
  CHECK(model.jumps().empty());
  model.output(sign, "sign");
  CHECK(model.jumps() == Jumps{{"sign", "Sign '" + model.graph.ops[7].name + "'"}});
}

TEST_CASE("jumps: nothing is carried across infinity", "[exec]") {
  for (const float bound : {0.0f, -std::numeric_limits<float>::infinity()}) {
    Model model;
    const ValueId x = model.add("Exp", {model.input("x")});
    std::string bytes(sizeof bound, 0);
    std::memcpy(bytes.data(), &bound, sizeof bound);
    const ValueId known = model.graph.add_value({.name = "bound",
                                                 .kind = ValueKind::kConstant,
                                                 .data = Tensor{DType::kFloat32, {}, bytes}});
    model.output(model.add("Where", {model.add("Equal", {x, known}, DType::kBool), x, known}), "y");
    CHECK(model.jumps().count("y") == (bound == 0 ? 1 : 0));
  }
}

TEST_CASE("jumps: indices leap where values do not; the nearest is named", "[exec]") {
  Model model;
  const ValueId x = model.input("x");
  const auto top = model.add_all("TopK", {model.add("Exp", {x})}, {DType::kFloat32, DType::kInt64});
  model.output(top[0], "largest");
  model.output(model.add("Gather", {x, top[1]}), "found");
  CHECK(model.jumps() == Jumps{{"found", "TopK 'op1'"}});
  const ValueId whole = model.add("Cast", {top[0]}, DType::kInt32);
  model.output(model.add("Cast", {whole}), "whole");
  model.output(model.add("Floor", {model.add("Cast", {whole})}), "twice");
  CHECK(model.jumps().at("whole") == "Cast 'op3'");
  CHECK(model.jumps().at("twice") == "Floor '" + model.graph.ops.back().name + "'");
}

TEST_CASE("jumps: through next values in several steps", "[exec]") {
  Model model;
  const ValueId w = model.input("w");
  const ValueId v = model.input("v");
  model.output(model.add("Sign", {w}), "sign");
  model.output(model.add("Add", {v, model.add("Sign", {w})}), "new.v");
  model.output(model.add("Softmax", {w}), "new.w");
  model.output(model.add("Neg", {v}), "negative");
  CHECK(model.jumps(1).empty());  // w and v are given
  CHECK(model.jumps(2).count("sign") == 1);
  CHECK(model.jumps(2).count("new.v") == 1);
  CHECK(model.jumps(2).count("negative") == 0);
  CHECK(model.jumps(3).count("negative") == 1);
  CHECK(model.jumps(100).count("new.w") == 0);
}

}  // namespace
}  // namespace autopar::verdict_test
