// For tests: programs of collectives and messages line by line, and what the order proof says of
// them.
#pragma once

#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "autopar/export.hpp"

namespace autopar::testing::order_programs {

using Ints = std::vector<std::int64_t>;

inline Ints up_to(std::int64_t n) {
  Ints ranks(static_cast<std::size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A program line by line: each op waits for the one before.
class Writer {
 public:
  Graph graph;

  Writer() {
    x_ = graph.add_value({.name = "x", .shape = {4, 6}, .kind = ValueKind::kInput});
    graph.inputs = {x_};
  }
  Writer& add(const std::string& type, const Ints& groups, std::int64_t size,
              std::map<std::string, Attribute> attributes = {}) {
    const std::string name = std::string(1, static_cast<char>('a' + graph.ops.size() % 26)) +
                             (graph.ops.size() < 26 ? "" : std::to_string(graph.ops.size() / 26));
    const bool receives = type == "Recv";
    if (type == "AllReduce") attributes.try_emplace("reduce_op", std::string("sum"));
    if (type == "AllGather") attributes.try_emplace("axis", std::int64_t{0});
    if (type == "Broadcast") attributes.try_emplace("root", std::int64_t{0});
    if (receives) {
      attributes.try_emplace("shape", Ints{4, 6});
      attributes.try_emplace("dtype", std::int64_t{1});
    }
    attributes["groups"] = groups;
    attributes["group_size"] = size;
    attributes["seq"] = static_cast<std::int64_t>(graph.ops.size());
    Shape shape = {4, 6};
    if (type == "AllGather")
      shape[static_cast<std::size_t>(std::get<std::int64_t>(attributes["axis"]))] *= size;
    Op op;
    op.name = name;
    op.type = type;
    op.domain = "ai.autopar";
    op.attributes = std::move(attributes);
    if (!receives) op.inputs.push_back(x_);
    if (last_.valid()) op.inputs.push_back(last_);
    last_ = graph.add_value({.name = name + "_out", .shape = shape});
    op.outputs = {last_};
    graph.add_op(op);
    graph.outputs = {last_};
    return *this;
  }

 private:
  ValueId x_, last_;
};

inline std::string proof(const std::vector<ProgramOnRanks>& programs, std::int64_t world) {
  const Status status = prove_order(programs, world);
  return status ? "" : status.error().message;
}
inline std::string proof(const Graph& graph, std::int64_t world) {
  return proof({{&graph, up_to(world)}}, world);
}

}  // namespace autopar::testing::order_programs
