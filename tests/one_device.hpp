// For tests: what a graph costs on one device of a small cluster.
#pragma once

#include "autopar/kernels.hpp"
#include "graphs.hpp"

namespace autopar::testing {

// With the kernels of the profile.
inline StrategyCost cost_on_one(Graph graph, const std::string& updates = "",
                                const Profile& profile = Profile()) {
  graph.kernels = group_kernels(graph, profile, updates);
  const GraphRules rules = *rules_of(graph);
  Cluster cluster = small_cluster({1});
  cluster.profile = profile;
  RooflineModel model(cluster, Mesh{{{"device", 1, 0, 1}}});
  Strategy strategy;
  strategy.mesh = model.mesh();
  strategy.assignments.assign(graph.ops.size(), Assignment{{-1}});
  for (const Value& value : graph.values) {
    const Spec spec = replicated(value.shape.size());
    strategy.values.push_back({spec, spec, spec});
  }
  return *evaluate(graph, rules, strategy, model, updates);
}

}  // namespace autopar::testing
