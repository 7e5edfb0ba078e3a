// For tests: small clusters, graphs built in a line per op, and strategies chosen at random among
// the valid ones.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "autopar/strategy.hpp"

namespace autopar::testing {

// Tier sizes, innermost first; fast inside, slow outside.
inline Cluster cluster_of(const std::vector<std::int64_t>& sizes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device = {"device", Bytes{1} << 30, 2e12, {{"float32", 1e12}}};
  const std::vector<std::string> names = {"nvlink", "ib", "pod"};
  const std::vector<double> bandwidths = {3e11, 2.5e10, 1.25e10};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    cluster.tiers.push_back({names[i], sizes[i], bandwidths[i], 2e-6, {}});
  }
  return cluster;
}

class GraphWriter {
 public:
  Graph graph;

  ValueId input(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    graph.inputs.push_back(add(name, dtype, shape, ValueKind::kInput, {}));
    return graph.inputs.back();
  }
  ValueId parameter(const std::string& name, const Shape& shape) {
    graph.inputs.push_back(add(name, DType::kFloat32, shape, ValueKind::kParameter, {}));
    return graph.inputs.back();
  }
  // An initializer with small numbers in it.
  ValueId weight(const std::string& name, const Shape& shape) {
    return add(name, DType::kFloat32, shape, ValueKind::kParameter, numbers(name, shape));
  }
  ValueId constant(const std::string& name, const Shape& shape) {
    return add(name, DType::kFloat32, shape, ValueKind::kConstant, numbers(name, shape));
  }
  ValueId ints(const std::string& name, const std::vector<std::int64_t>& values) {
    const Shape shape = {static_cast<std::int64_t>(values.size())};
    return add(name, DType::kInt64, shape, ValueKind::kConstant, int64_tensor(shape, values));
  }
  ValueId op(const std::string& type, const std::vector<ValueId>& inputs, const Shape& shape,
             std::map<std::string, Attribute> attributes = {}, const std::string& name = "") {
    const std::string stem = name.empty() ? type + std::to_string(graph.ops.size()) : name;
    const DType dtype = graph.value(inputs.back().valid() ? inputs.front() : inputs.back()).dtype;
    const ValueId output = add(stem + "_out", dtype, shape, ValueKind::kActivation, {});
    graph.add_op({.name = stem,
                  .type = type,
                  .domain = "",
                  .inputs = inputs,
                  .outputs = {output},
                  .attributes = std::move(attributes),
                  .origin_name = stem,
                  .origin_type = type});
    return output;
  }
  const Shape& shape(ValueId v) const { return graph.value(v).shape; }

 private:
  ValueId add(const std::string& name, DType dtype, const Shape& shape, ValueKind kind,
              std::variant<std::monostate, Tensor, ExternalData> data) {
    return graph.add_value({.name = name,
                            .dtype = dtype,
                            .shape = shape,
                            .kind = kind,
                            .producer = {},
                            .data = std::move(data)});
  }
  static Tensor numbers(const std::string& name, const Shape& shape) {
    std::mt19937 random(static_cast<unsigned>(name.size() * 131 + name.back()));
    Tensor tensor{DType::kFloat32, shape, {}};
    for (std::int64_t i = 0; i < element_count(shape); ++i) {
      const float number = (static_cast<float>(random() % 2001) - 1000.0F) / 4000.0F;
      char bytes[sizeof number];
      std::memcpy(bytes, &number, sizeof number);
      tensor.bytes.append(bytes, sizeof number);
    }
    return tensor;
  }
};

// Z = (X x W) x V of the documentation: X [64,128], W [128,256], V [256,32].
inline Graph two_matmuls() {
  GraphWriter b;
  const ValueId x = b.input("X", {64, 128});
  const ValueId w = b.parameter("W", {128, 256});
  const ValueId v = b.parameter("V", {256, 32});
  const ValueId y = b.op("MatMul", {x, w}, {64, 256}, {}, "fc1");
  const ValueId z = b.op("MatMul", {y, v}, {64, 32}, {}, "fc2");
  b.graph.outputs = {z};
  b.graph.name = "two_matmuls";
  return b.graph;
}

using Random = std::mt19937_64;
inline std::size_t below(Random& random, std::size_t n) { return random() % n; }

// A spec without partial axes; every axis goes to a dimension that it divides, or nowhere.
inline Spec random_spec(const Shape& shape, const Mesh& mesh, Random& random) {
  Spec spec = replicated(shape.size());
  for (int axis = 0; axis < mesh.rank() && !shape.empty(); ++axis) {
    if (below(random, 3) == 0) continue;
    auto& axes = spec.dims[below(random, shape.size())];
    const AxisList before = axes;
    if (below(random, 2) == 0) {
      axes = {axis};
      axes.append(before.begin(), before.end());
    } else {
      axes.push_back(axis);
    }
    if (!verify(spec, shape, mesh)) axes = before;
  }
  return spec;
}

inline Spec without_partial(Spec spec) {
  spec.partial.clear();
  spec.reduction = Reduction::kSum;
  return spec;
}

inline Spec need_of(const std::vector<OpSpecs>& specs, const Use& use) {
  return specs[use.op.index()].inputs[static_cast<std::size_t>(use.port)];
}

// Specs of all values for given assignments, the free ones at random.
inline std::vector<ValueSpecs> random_values(const Graph& graph, const std::vector<OpSpecs>& specs,
                                             const Mesh& mesh, Random& random) {
  const std::vector<Readers> readers = readers_of(graph);
  std::vector<ValueSpecs> values;
  for (const Value& value : graph.values) {
    const Spec whole = replicated(value.shape.size());
    values.push_back({whole, whole, whole});
  }
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    for (std::size_t i = 0; i < graph.ops[o].outputs.size(); ++i) {
      if (!graph.ops[o].has_output(i)) continue;
      values[graph.ops[o].outputs[i].index()].spec = specs[o].outputs[i];
    }
  }
  for (std::size_t v = 0; v < values.size(); ++v) {
    const Value& value = graph.values[v];
    const Readers& r = readers[v];
    ValueSpecs& chosen = values[v];
    const bool stored = value.kind == ValueKind::kInput || value.kind == ValueKind::kParameter;
    if (value.kind == ValueKind::kConstant) {
      if (r.is_output) chosen.output = random_spec(value.shape, mesh, random);
      continue;
    }
    if (stored) chosen.spec = random_spec(value.shape, mesh, random);
    const Spec output = random_spec(value.shape, mesh, random);
    if (r.count() == 1) {
      chosen.hub = r.is_output ? output : need_of(specs, r.uses[0]);
    } else {
      const std::size_t choice = below(random, 3);
      if (choice == 0) chosen.hub = chosen.spec;
      if (choice == 1) chosen.hub = random_spec(value.shape, mesh, random);
      if (choice == 2 && !r.uses.empty()) {
        chosen.hub = need_of(specs, r.uses[below(random, r.uses.size())]);
      }
      if (stored) chosen.hub = without_partial(chosen.hub);
    }
    chosen.output = r.is_output ? output : chosen.hub;
  }
  return values;
}

// Any assignment of every op, any hubs. Precondition: the graph has rules.
inline Strategy random_strategy(const Graph& graph, const GraphRules& rules, const Mesh& mesh,
                                Random& random) {
  Strategy strategy;
  strategy.mesh = mesh;
  std::vector<OpSpecs> specs;
  for (const Rule& rule : rules.rules) {
    const std::vector<Assignment> all = candidates(rule, mesh);
    strategy.assignments.push_back(all[below(random, all.size())]);
    specs.push_back(*specs_of(rule, strategy.assignments.back(), mesh));
  }
  strategy.values = random_values(graph, specs, mesh, random);
  return strategy;
}

// A strategy from factor names per op and mesh axis ("" = none); inputs lie as their first reader
// needs them, hubs are what the first reader needs, outputs leave reduced where they are produced.
inline Strategy named_strategy(const Graph& graph, const GraphRules& rules, const Mesh& mesh,
                               const std::vector<std::vector<std::string>>& factors) {
  Strategy strategy;
  strategy.mesh = mesh;
  std::vector<OpSpecs> specs;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    Assignment assignment;
    for (const std::string& name : factors[o]) {
      assignment.factor_of_axis.push_back(rules.rules[o].factor_index(name));
    }
    specs.push_back(specs_of(rules.rules[o], assignment, mesh).value());
    strategy.assignments.push_back(assignment);
  }
  Random random(1);
  strategy.values = random_values(graph, specs, mesh, random);
  const std::vector<Readers> readers = readers_of(graph);
  for (std::size_t v = 0; v < strategy.values.size(); ++v) {
    ValueSpecs& chosen = strategy.values[v];
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::kConstant) continue;
    if (value.producer.valid()) {
      chosen.hub = readers[v].uses.empty() ? without_partial(chosen.spec)
                                           : need_of(specs, readers[v].uses[0]);
    } else if (!readers[v].uses.empty()) {
      chosen.spec = chosen.hub = without_partial(need_of(specs, readers[v].uses[0]));
    }
    chosen.output = readers[v].is_output ? without_partial(chosen.hub) : chosen.hub;
  }
  return strategy;
}

}  // namespace autopar::testing
