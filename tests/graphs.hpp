// For tests: small clusters and graphs at random from a seed, and how many plans there are.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "autopar/search.hpp"
#include "strategies.hpp"

namespace autopar::testing {

// Tier sizes, innermost first; slow devices and slower links, so that plans differ.
inline Cluster small_cluster(std::vector<std::int64_t> sizes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device = {"device", Bytes{1} << 40, 1e9, {{"float32", 1e10}}};
  double bandwidth = 1e8;
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    cluster.tiers.push_back({"t" + std::to_string(t), sizes[t], bandwidth, 1e-6, {}});
    bandwidth /= 5;
  }
  return cluster;
}

struct Draw {
  std::mt19937_64 engine;
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine() % n); }
};

// As the file of a step of several passes is read.
inline void mark_accumulators(Graph& step) {
  for (Value& value : step.values) {
    value.accumulates = value.name.rfind("acc.", 0) == 0 || value.name.rfind("new.acc.", 0) == 0;
  }
}

// A few square matrices through matmuls, adds, relus, transposes and views; some values read twice,
// some left as outputs, in half of the graphs as the next value of an input.
inline Graph random_graph(std::uint64_t seed, int op_count) {
  Draw draw{std::mt19937_64(seed)};
  const std::int64_t size = draw.below(2) == 0 ? 8 : 12;
  Graph graph;
  graph.name = "random";
  std::vector<ValueId> values;
  const auto add_source = [&](ValueKind kind) {
    Value value;
    value.name = (kind == ValueKind::kInput ? "x" : "w") + std::to_string(graph.values.size());
    value.shape = {size, size};
    value.kind = kind;
    const ValueId id = graph.add_value(value);
    graph.inputs.push_back(id);
    return id;
  };
  values.push_back(add_source(ValueKind::kInput));
  for (int i = 0; i < op_count; ++i) {
    const char* types[] = {"MatMul", "MatMul", "Add", "Relu", "Transpose", "Identity"};
    Op op;
    op.type = types[draw.below(6)];
    op.name = "op" + std::to_string(i);
    op.origin_name = op.name;
    op.origin_type = op.type;
    const std::size_t from = values.size() > 2 ? values.size() - 2 : 0;
    op.inputs.push_back(values[from + draw.below(values.size() - from)]);
    if (op.type == "MatMul") {
      op.inputs.push_back(add_source(ValueKind::kParameter));
    } else if (op.type == "Add") {
      op.inputs.push_back(values[draw.below(values.size())]);
    } else if (op.type == "Transpose") {
      op.attributes["perm"] = std::vector<std::int64_t>{1, 0};
    }
    Value out;
    out.name = "y" + std::to_string(i);
    out.shape = {size, size};
    const ValueId id = graph.add_value(out);
    op.outputs.push_back(id);
    graph.add_op(op);
    values.push_back(id);
  }
  graph.outputs.push_back(values.back());
  if (draw.below(2) == 0) {
    const Value& input = graph.value(graph.inputs[draw.below(graph.inputs.size())]);
    graph.values.back().name = "new." + input.name;
  }
  const auto readers = uses_of(graph);
  for (ValueId id : values) {
    const bool unread = readers[id.index()].empty() && graph.value(id).producer.valid();
    if (unread && id != values.back()) graph.outputs.push_back(id);
  }
  return graph;
}

// Matrices of several sizes through ops of several kinds: products with weights, elementwise ops
// with and without broadcasting, softmax, sums, transposes, reshapes, joins. Values may be read
// several times, also twice by one op; some weights have a next value ("new.W0").
inline Graph mixed_graph(std::uint64_t seed, int op_count) {
  Draw draw{std::mt19937_64(seed)};
  const auto pick = [&](std::initializer_list<std::int64_t> sizes) {
    return *(sizes.begin() + draw.below(sizes.size()));
  };
  GraphWriter b;
  b.graph.name = "mixed";
  std::vector<ValueId> values = {b.input("X", {pick({4, 6, 12}), pick({4, 8, 12})})};
  std::vector<ValueId> weights;
  for (int i = 0; i < op_count; ++i) {
    const std::size_t recent = std::min<std::size_t>(values.size(), 2);
    const ValueId x = values[values.size() - 1 - draw.below(recent)];
    const Shape shape = b.shape(x);
    const std::size_t kind = draw.below(10);
    ValueId y;
    if (kind < 3) {
      const std::int64_t columns = pick({4, 6, 8});
      weights.push_back(b.parameter("W" + std::to_string(i), {shape[1], columns}));
      y = b.op("MatMul", {x, weights.back()}, {shape[0], columns});
    } else if (kind == 3) {
      std::vector<ValueId> like;
      for (ValueId v : values) {
        if (b.shape(v) == shape) like.push_back(v);
      }
      y = b.op("Add", {x, like[draw.below(like.size())]}, shape);
    } else if (kind == 4) {
      weights.push_back(b.parameter("W" + std::to_string(i), {shape[1]}));
      y = b.op("Mul", {x, weights.back()}, shape);
    } else if (kind == 5) {
      y = b.op("Relu", {x}, shape);
    } else if (kind == 6) {
      y = b.op("Softmax", {x}, shape, {{"axis", std::int64_t{1}}});
    } else if (kind == 7) {
      y = b.op("Transpose", {x}, {shape[1], shape[0]}, {{"perm", std::vector<std::int64_t>{1, 0}}});
    } else if (kind == 8 && shape[1] % 2 == 0) {
      const Shape to = {shape[0] * 2, shape[1] / 2};
      y = b.op("Reshape", {x, b.ints("shape" + std::to_string(i), to)}, to);
    } else {
      y = b.op("ReduceSum", {x, b.ints("axes" + std::to_string(i), {0})}, {1, shape[1]});
    }
    values.push_back(y);
  }
  if (!weights.empty() && draw.below(3) == 0) {
    const ValueId updated = b.op("Relu", {weights[0]}, b.shape(weights[0]), {}, "update");
    b.graph.values[updated.index()].name = "new." + b.graph.value(weights[0]).name;
    b.graph.outputs.push_back(updated);
  }
  const auto readers = uses_of(b.graph);
  for (ValueId id : values) {
    if (id == values.back() || (readers[id.index()].empty() && id != values[0])) {
      b.graph.outputs.push_back(id);
    }
  }
  return b.graph;
}

inline double combinations(const Problem& problem) {
  double product = 1;
  for (const ProblemNode& node : problem.nodes) product *= static_cast<double>(node.cost.size());
  return product;
}

}  // namespace autopar::testing
