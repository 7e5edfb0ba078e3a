#include "autopar/cost.hpp"
#include "autopar/mindspore.hpp"
#include "cost/symbolic.hpp"

namespace autopar {

namespace {

template <class Model>
std::unique_ptr<CostModel> make(const Cluster& cluster, const Mesh& mesh) {
  return std::make_unique<Model>(cluster, mesh);
}

template <DeviceUse kUse, bool kFollow>
std::unique_ptr<CostModel> make_mindspore(const Cluster& cluster, const Mesh& mesh) {
  MindsporeWeights weights;
  weights.devices = kUse;
  weights.elementwise_follow = kFollow;
  return std::make_unique<MindsporeModel>(cluster, mesh, weights);
}

}  // namespace

const std::vector<CostModelRow>& cost_models() {
  static const std::vector<CostModelRow> table = {
      {"roofline", "roofline per op, alpha-beta per collective", "seconds", make<RooflineModel>},
      {"mindspore", "MindSpore's, in bytes of computation", "bytes of computation",
       make<MindsporeModel>, prime_meshes},
      {"mindspore_any",
       "the same for strategies on any of the devices, as its propagation has them",
       "bytes of computation", make_mindspore<DeviceUse::kAnyAxes, false>, prime_meshes},
      {"mindspore_all", "the same where every op uses all devices (fully_use_devices)",
       "bytes of computation", make_mindspore<DeviceUse::kAll, false>, prime_meshes},
      {"mindspore_follow",
       "that where elementwise ops lie as what they read (elementwise_op_strategy_follow)",
       "bytes of computation", make_mindspore<DeviceUse::kAll, true>, prime_meshes},
      {"symbolic", "SAPP's relative costs, for rec", "elements", make<SymbolicModel>},
  };
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
