#include "search/build/execution_order.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace autopar {

namespace {

template <class T>
void permute(std::vector<T>& values, const std::vector<int>& order) {
  std::vector<T> result;
  result.reserve(values.size());
  for (int from : order) result.push_back(std::move(values[static_cast<std::size_t>(from)]));
  values = std::move(result);
}

// Per node when it comes: three times the op's index, one less for what it needs stored, one more
// for what lies behind it.
std::vector<int> times_of_nodes(const Graph& graph, const std::vector<Readers>& readers,
                                const MeshProblem& problem) {
  std::vector<int> times(problem.problem.nodes.size(), 0);
  const auto set = [&](int node, int time) {
    if (node >= 0) times[static_cast<std::size_t>(node)] = time;
  };
  for (std::size_t o = 0; o < problem.node_of_op.size(); ++o) {
    set(problem.node_of_op[o], 3 * static_cast<int>(o));
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    int time = 3 * static_cast<int>(graph.ops.size());
    if (graph.values[v].producer.valid()) {
      time = 3 * static_cast<int>(graph.values[v].producer.index()) + 1;
    } else if (!readers[v].uses.empty()) {
      time = 3 * readers[v].first - 1;
    }
    // The output may be the node of another value's store (an update): that one's time counts.
    if (problem.output_node[v] >= 0 && graph.values[v].producer.valid()) {
      set(problem.output_node[v], time);
    }
    set(problem.hub_node[v], time);
    set(problem.source_node[v], time);
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (problem.source_node[v] >= 0 && !readers[v].uses.empty()) {
      set(problem.source_node[v], 3 * readers[v].first - 1);
    }
  }
  return times;
}

}  // namespace

void number_in_execution_order(const Graph& graph, const std::vector<Readers>& readers,
                               MeshProblem& problem) {
  const std::vector<int> times = times_of_nodes(graph, readers, problem);
  std::vector<int> order(times.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return times[static_cast<std::size_t>(a)] < times[static_cast<std::size_t>(b)];
  });
  std::vector<int> number(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    number[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  }
  permute(problem.problem.nodes, order);
  permute(problem.op_of_node, order);
  permute(problem.specs_of_node, order);
  for (ProblemEdge& edge : problem.problem.edges) {
    edge.from = number[static_cast<std::size_t>(edge.from)];
    edge.to = number[static_cast<std::size_t>(edge.to)];
  }
  for (std::vector<int>* nodes :
       {&problem.node_of_op, &problem.source_node, &problem.hub_node, &problem.output_node}) {
    for (int& node : *nodes) {
      if (node >= 0) node = number[static_cast<std::size_t>(node)];
    }
  }
}

}  // namespace autopar
