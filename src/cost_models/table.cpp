#include "autopar/cost_models.hpp"
#include "autopar/mindspore.hpp"

namespace autopar {

namespace {

std::unique_ptr<CostModel> make_roofline(const Cluster& cluster, const Mesh& mesh) {
  return std::make_unique<RooflineModel>(cluster, mesh);
}

std::vector<CostModelRow> all_rows() {
  std::vector<CostModelRow> table = {
      {"roofline", "roofline per op, alpha-beta per collective", "seconds", make_roofline},
  };
  for (const CostModelRow& row : mindspore_cost_models()) table.push_back(row);
  return table;
}

}  // namespace

const std::vector<CostModelRow>& cost_models() {
  static const std::vector<CostModelRow> table = all_rows();
  return table;
}

Result<std::unique_ptr<CostModel>> make_cost_model(const std::string& name, const Cluster& cluster,
                                                   const Mesh& mesh) {
  std::string known;
  for (const CostModelRow& row : cost_models()) {
    if (name == row.name) return row.make(cluster, mesh);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return usage_error("unknown cost model '" + name + "'; known: " + known);
}

}  // namespace autopar
