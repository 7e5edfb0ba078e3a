#include "cli/hub_ops.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "autopar/hub_ops.hpp"

namespace autopar::cli {

namespace {

std::vector<HubOp> possible_in(const Inputs& inputs) {
  std::set<std::string> names;  // of the user's ops, also of those that import removed
  for (const auto& [name, ops] : inputs.model.ops_of_user_op) names.insert(name);
  return possible_hub_ops(inputs.model.graph, names);
}

bool is_named(const HubOp& hub_op, const StrategyFile& file) {
  const auto type = file.op_types.find(hub_op.name);
  if (type != file.op_types.end() && type->second != "Identity") return false;
  return file.pins.ops.count(hub_op.name) != 0 || file.pins.values.count(hub_op.output) != 0;
}

}  // namespace

Status share_pinned_hubs(const StrategyFile& file, Inputs& inputs, const SearchRequest& request) {
  // Who states a rule for Identity would state it for these.
  if (inputs.user_rules.text_of_type.count("Identity") != 0) return Ok{};
  Graph& graph = inputs.model.graph;
  std::vector<HubOp> possible = possible_in(inputs);
  const auto others =
      std::stable_partition(possible.begin(), possible.end(),
                            [&](const HubOp& hub_op) { return is_named(hub_op, file); });
  std::vector<HubOp> wanted(possible.begin(), others);
  add_hub_ops(graph, wanted);
  if (!is_complete(graph, file)) {
    remove_hub_ops(graph);
    for (HubOp& hub_op : pinned_hub_ops(request, {others, possible.end()})) {
      wanted.push_back(std::move(hub_op));
    }
    std::sort(wanted.begin(), wanted.end(),
              [](const HubOp& a, const HubOp& b) { return a.value < b.value; });
    add_hub_ops(graph, wanted);
  }
  for (const HubOp& hub_op : wanted) {
    spdlog::debug("tensor '{}': its readers share what they reshard from its hub, by op '{}'",
                  graph.value(hub_op.value).name, hub_op.name);
  }
  if (wanted.empty()) return Ok{};
  AUTOPAR_TRY(rules, rules_of(graph, inputs.user_rules));
  inputs.rules = std::move(rules);
  return Ok{};
}

}  // namespace autopar::cli
