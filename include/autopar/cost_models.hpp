// The cost models by name, as --cost-model takes them.
//
//   Result<std::unique_ptr<CostModel>> model = make_cost_model("roofline", cluster, mesh);
#pragma once

#include "autopar/cost.hpp"

namespace autopar {

const std::vector<CostModelRow>& cost_models();
// Errors: kUsage for an unknown name, with those that there are.
Result<std::unique_ptr<CostModel>> make_cost_model(const std::string& name, const Cluster& cluster,
                                                   const Mesh& mesh);

}  // namespace autopar
