// A strategy file as the pieces of its text: what is said of the whole, and a line for each op and
// tensor. So a pipeline's file is put together of those of its chunks, without being read again.
//
//   StrategyLines all = strategy_lines(graph, rules, strategy, cluster, origin);
//   all.ops.front()      // {"fc1", R"({"type": "MatMul", "assignment": {"x": "m"}, ...})"}
//   StrategyLines next = strategy_lines(...);  // of another chunk
//   all.ops.insert(all.ops.end(), next.ops.begin(), next.ops.end());
//   to_text(all)         // strategy.json
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "autopar/files.hpp"

namespace autopar {

struct StrategyLines {
  using Member = std::pair<std::string, std::string>;  // a name, and the text of its JSON value
  std::string head;                                    // members before the ops; not closed
  std::vector<Member> ops, tensors;
};
// Precondition: the strategy is verified.
StrategyLines strategy_lines(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                             const Cluster& cluster, const StrategyOrigin& origin);
std::string to_text(const StrategyLines& lines);

}  // namespace autopar
