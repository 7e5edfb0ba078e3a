// For tests: a graph on one mesh under one memory limit, and what any searcher's plan for it must
// hold.
#pragma once

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "autopar/files.hpp"
#include "folder.hpp"
#include "graphs.hpp"

namespace autopar::testing {

inline constexpr double kRounding = 1e-12;

// A graph on one mesh under one limit, as every searcher sees it.
struct Instance {
  const Graph& graph;
  const GraphRules& rules;
  const Cluster& cluster;
  Mesh mesh;
  Bytes memory_limit = 0;
  Pins pins = {};

  SearchRequest request(const std::string& searcher) const {
    SearchRequest request{graph, rules, cluster};
    request.searcher = searcher;
    request.mesh = mesh;
    request.memory_limit = memory_limit;
    request.pins = pins;
    return request;
  }
};

// The strategy, as it is written and read again, costs what was claimed to the last digit.
inline void check_price(const Instance& instance, const SearchOutcome& outcome,
                        const Folder& folder) {
  const auto& [graph, rules, cluster, mesh, limit, pins] = instance;
  StrategyOrigin origin;
  origin.searcher = outcome.searcher;
  origin.cost = {outcome.cost.total(), outcome.lower_bound, outcome.gap(),
                 outcome.cost.memory.total};
  const std::string path = folder.write(
      "strategy.json", strategy_to_json(graph, rules, outcome.strategy, cluster, origin));
  const StrategyFile file = read_strategy(path).value();
  REQUIRE(file.cost.has_value());
  const Strategy strategy = complete_strategy(graph, rules, cluster, file).value();
  CHECK(strategy == outcome.strategy);
  RooflineModel model(cluster, strategy.mesh);
  const StrategyCost cost = evaluate(graph, rules, strategy, model).value();
  CHECK(cost.total() == file.cost->seconds);
  CHECK(cost.memory.total == file.cost->memory_bytes);
  CHECK(outcome.lower_bound == file.cost->lower_bound_seconds);
}

// It fits, it is a strategy, the pins are kept.
inline void check_outcome(const Instance& instance, const SearchOutcome& outcome) {
  CHECK(outcome.cost.memory.total <=
        (instance.memory_limit > 0 ? instance.memory_limit : instance.cluster.device.memory_bytes));
  CHECK(verify(instance.graph, instance.rules, outcome.strategy).ok());
  CHECK(outcome.lower_bound <= outcome.cost.total());
  for (const auto& [name, pin] : instance.pins.ops) {
    for (std::size_t o = 0; o < instance.graph.ops.size(); ++o) {
      if (instance.graph.ops[o].name != name) continue;
      for (const auto& [axis, factor] : *pin.assignment) {
        const int a = instance.mesh.axis_index(axis);
        CHECK(outcome.strategy.assignments[o].factor_of_axis[static_cast<std::size_t>(a)] ==
              instance.rules.rules[o].factor_index(factor));
      }
    }
  }
}

// One op split in some valid way.
inline Pins random_pin(const Instance& instance, Draw& draw) {
  const std::size_t o = draw.below(instance.graph.ops.size());
  const Rule& rule = instance.rules.rules[o];
  const std::vector<Assignment> all = candidates(rule, instance.mesh);
  const Assignment& chosen = all[draw.below(all.size())];
  OpPin pin;
  pin.assignment.emplace();
  for (std::size_t a = 0; a < chosen.factor_of_axis.size(); ++a) {
    const int factor = chosen.factor_of_axis[a];
    if (factor < 0) continue;
    (*pin.assignment)[instance.mesh.axes[a].name] =
        rule.factors[static_cast<std::size_t>(factor)].name;
  }
  Pins pins;
  pins.ops[instance.graph.ops[o].name] = pin;
  return pins;
}

}  // namespace autopar::testing
