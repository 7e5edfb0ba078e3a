#include "io/import/scope.hpp"

#include <functional>
#include <queue>
#include <set>
#include <vector>

#include "io/import/proto_op.hpp"

namespace autopar {
namespace {

void collect(const onnx::NodeProto& node, std::vector<std::string>& names);

// What a branch or body reads from outside: names that it makes itself hide those.
void collect(const onnx::GraphProto& graph, std::vector<std::string>& names) {
  std::set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& stored : graph.initializer()) own.insert(stored.name());
  std::vector<std::string> read;
  for (const auto& inner : graph.node()) {
    own.insert(inner.output().begin(), inner.output().end());
    collect(inner, read);
  }
  for (const auto& output : graph.output()) read.push_back(output.name());
  for (std::string& name : read) {
    if (own.count(name) == 0) names.push_back(std::move(name));
  }
}

void collect(const onnx::NodeProto& node, std::vector<std::string>& names) {
  for (const auto& input : node.input()) {
    if (!input.empty()) names.push_back(input);
  }
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) collect(attribute.g(), names);
  }
}

}  // namespace

std::vector<std::string> names_read(const onnx::NodeProto& node) {
  std::vector<std::string> names;
  collect(node, names);
  return names;
}

Result<std::vector<int>> topological_order(const Nodes& nodes, int first) {
  std::unordered_map<std::string, int> producer;
  for (int i = first; i < nodes.size(); ++i) {
    for (const auto& output : nodes[i].output()) {
      if (!output.empty()) producer.emplace(output, i);
    }
  }
  std::vector<std::vector<int>> readers(static_cast<std::size_t>(nodes.size()));
  std::vector<int> missing(readers.size(), 0);
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = first; i < nodes.size(); ++i) {
    std::set<int> sources;
    for (const auto& name : names_read(nodes[i])) {
      if (auto found = producer.find(name); found != producer.end()) sources.insert(found->second);
    }
    for (const int source : sources) readers[static_cast<std::size_t>(source)].push_back(i);
    missing[static_cast<std::size_t>(i)] = static_cast<int>(sources.size());
    if (sources.empty()) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const int reader : readers[static_cast<std::size_t>(node)]) {
      if (--missing[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
    }
  }
  if (static_cast<int>(order.size()) == nodes.size() - first) return order;
  std::string cycle;
  int named = 0;
  for (int i = first; i < nodes.size() && named < 4; ++i) {
    if (missing[static_cast<std::size_t>(i)] == 0) continue;
    cycle += (named++ ? ", " : "") + label(name_of_node(nodes[i]), nodes[i]);
  }
  return input_error("the graph has a cycle; among the ops that wait for each other: " + cycle);
}

}  // namespace autopar
