// For tests: small models in few words and devices on one link, for MindSpore's cost model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/mindspore.hpp"

namespace autopar::testing::mindspore_nets {

using Counts = std::vector<std::vector<std::int64_t>>;

// Builds graphs of float32 values in few words.
struct Net {
  Graph graph;

  ValueId value(const std::string& name, const Shape& shape, ValueKind kind,
                DType dtype = DType::kFloat32) {
    const ValueId id =
        graph.add_value({.name = name, .dtype = dtype, .shape = shape, .kind = kind});
    if (kind != ValueKind::kActivation) graph.inputs.push_back(id);
    return id;
  }
  ValueId input(const std::string& name, const Shape& shape) {
    return value(name, shape, ValueKind::kInput);
  }
  ValueId parameter(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    return value(name, shape, ValueKind::kParameter, dtype);
  }
  ValueId ints(const std::vector<std::int64_t>& values) {
    Value constant{.name = "c" + std::to_string(graph.values.size()), .dtype = DType::kInt64};
    constant.kind = ValueKind::kConstant;
    constant.shape = {static_cast<std::int64_t>(values.size())};
    constant.data = int64_tensor(constant.shape, values);
    return graph.add_value(constant);
  }
  ValueId op(const std::string& name, const std::string& type, const std::vector<ValueId>& inputs,
             const Shape& shape, const std::map<std::string, Attribute>& attributes = {}) {
    const ValueId out = value(name + ".out", shape, ValueKind::kActivation);
    graph.add_op({.name = name,
                  .type = type,
                  .inputs = inputs,
                  .outputs = {out},
                  .attributes = attributes,
                  .origin_name = name,
                  .origin_type = type});
    return out;
  }
  ValueId matmul(const std::string& name, ValueId a, ValueId b) {
    Shape shape = graph.value(a).shape;
    shape.back() = graph.value(b).shape.back();
    return op(name, "MatMul", {a, b}, shape);
  }
  ValueId same(const std::string& name, const std::string& type,
               const std::vector<ValueId>& inputs) {
    return op(name, type, inputs, graph.value(inputs[0]).shape);
  }
  ValueId transpose(const std::string& name, ValueId x) {
    const Shape& shape = graph.value(x).shape;
    return op(name, "Transpose", {x}, {shape[1], shape[0]},
              {{"perm", std::vector<std::int64_t>{1, 0}}});
  }
  Graph done(const std::vector<ValueId>& outputs) {
    graph.outputs = outputs;
    return graph;
  }
};

inline Cluster devices(std::int64_t count) {
  return {"devices",
          {"device", Bytes{16} << 30, 1e12, {{"float32", 1e13}}},
          {{"link", count, 1e11, 1e-6, {}}},
          0};
}

}  // namespace autopar::testing::mindspore_nets
