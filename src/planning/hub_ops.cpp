#include "planning/hub_ops.hpp"

#include <algorithm>

#include "autopar/hub_ops.hpp"
#include "autopar/phase_ops.hpp"
#include "planning/logging.hpp"

namespace autopar {

namespace {

// Also of ops that import removed.
IsReserved reserved_names(const Inputs& inputs) {
  return [ops = inputs.model.ops_of_user_op](const std::string& name) {
    return ops->count(name) != 0;
  };
}

// Who states a rule for Identity would state it for those that are added.
bool may_add_ops(const Inputs& inputs) {
  return inputs.user_rules.text_of_type.count("Identity") == 0;
}

Status find_rules_again(Inputs& inputs) {
  AUTOPAR_TRY(rules, rules_of(inputs.model.graph, inputs.user_rules));
  inputs.rules = std::move(rules);
  return Ok{};
}

bool is_named(const HubOp& hub_op, const StrategyFile& file) {
  const auto type = file.op_types.find(hub_op.name);
  if (type != file.op_types.end() && type->second != "Identity") return false;
  return file.pins.ops.count(hub_op.name) != 0 || file.pins.values.count(hub_op.output) != 0;
}

}  // namespace

std::string cost_model_of(const StrategyFile& file, const PlanOptions& options) {
  if (!file.cost) return options.cost_model;
  return file.cost->price ? file.cost->price->cost_model : "roofline";
}

Status share_in_phases(Inputs& inputs, const std::string& cost_model) {
  if (cost_model != "roofline" || !may_add_ops(inputs)) return Ok{};
  if (!PhaseOps(inputs.model.graph).empty()) return Ok{};
  const std::size_t added = add_phase_ops(inputs.model.graph, reserved_names(inputs));
  if (added == 0) return Ok{};
  logging::debug("passes: {} times several ops of a phase share how they get a value", added);
  return find_rules_again(inputs);
}

Status share_pinned_hubs(const StrategyFile& file, Inputs& inputs, const SearchRequest& request) {
  if (!may_add_ops(inputs)) return Ok{};
  Graph& graph = inputs.model.graph;
  std::vector<HubOp> possible = possible_hub_ops(graph, reserved_names(inputs));
  const std::size_t values = graph.values.size();
  const auto others =
      std::stable_partition(possible.begin(), possible.end(),
                            [&](const HubOp& hub_op) { return is_named(hub_op, file); });
  std::vector<HubOp> wanted(possible.begin(), others);
  add_hub_ops(graph, wanted);
  if (!is_complete(graph, file)) {
    remove_hub_ops(graph, values);
    for (HubOp& hub_op : pinned_hub_ops(request, {others, possible.end()})) {
      wanted.push_back(std::move(hub_op));
    }
    std::sort(wanted.begin(), wanted.end(),
              [](const HubOp& a, const HubOp& b) { return a.value < b.value; });
    add_hub_ops(graph, wanted);
  }
  for (const HubOp& hub_op : wanted) {
    logging::debug("tensor '{}': its readers share what they reshard from its hub, by op '{}'",
                   graph.value(hub_op.value).name, hub_op.name);
  }
  if (wanted.empty()) return Ok{};
  return find_rules_again(inputs);
}

}  // namespace autopar
