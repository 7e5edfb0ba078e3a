// What a step does when, one thing after the other as it begins, for those who sum it up.
//
//   visit_step_events(graph, cost, mesh, cluster, "new.*", [&](const StepEvent& event) { ... });
#pragma once

#include <functional>
#include <string>

#include "autopar/cost.hpp"

namespace autopar {

// The events of step_events() (cost.hpp), none of which is kept: a step of 64 passes has millions.
// An event is as it is known when it begins: a sum that then shares its link takes longer than its
// `seconds`. Errors: none.
void visit_step_events(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                       const Cluster& cluster, const std::string& updates,
                       const std::function<void(const StepEvent&)>& visit);

}  // namespace autopar
