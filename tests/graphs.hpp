// For tests: small clusters and graphs at random from a seed, and how many plans there are.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "autopar/search.hpp"

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

// A few square matrices through matmuls, adds, relus and transposes; some values read twice, some
// left as outputs.
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
    const char* types[] = {"MatMul", "MatMul", "Add", "Relu", "Transpose"};
    Op op;
    op.type = types[draw.below(5)];
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
  const auto readers = uses_of(graph);
  for (ValueId id : values) {
    const bool unread = readers[id.index()].empty() && graph.value(id).producer.valid();
    if (unread && id != values.back()) graph.outputs.push_back(id);
  }
  return graph;
}

inline double combinations(const Problem& problem) {
  double product = 1;
  for (const ProblemNode& node : problem.nodes) product *= static_cast<double>(node.cost.size());
  return product;
}

}  // namespace autopar::testing
