#include "autopar/mindspore.hpp"
#include "mindspore/symbolic.hpp"

namespace autopar {

namespace {

template <DeviceUse kUse, bool kFollow>
std::unique_ptr<CostModel> make(const Cluster& cluster, const Mesh& mesh) {
  MindsporeWeights weights;
  weights.devices = kUse;
  weights.elementwise_follow = kFollow;
  return std::make_unique<MindsporeModel>(cluster, mesh, weights);
}

std::unique_ptr<CostModel> make_symbolic(const Cluster& cluster, const Mesh& mesh) {
  return std::make_unique<SymbolicModel>(cluster, mesh);
}

}  // namespace

std::vector<CostModelRow> mindspore_cost_models() {
  return {
      {"mindspore", "MindSpore's, in bytes of computation", "bytes of computation",
       make<MindsporeWeights().devices, false>, prime_meshes},
      {"mindspore_any",
       "the same for strategies on any of the devices, as its propagation has them",
       "bytes of computation", make<DeviceUse::kAnyAxes, false>, prime_meshes},
      {"mindspore_all", "the same where every op uses all devices (fully_use_devices)",
       "bytes of computation", make<DeviceUse::kAll, false>, prime_meshes},
      {"mindspore_follow",
       "that where elementwise ops lie as what they read (elementwise_op_strategy_follow)",
       "bytes of computation", make<DeviceUse::kAll, true>, prime_meshes},
      {"symbolic", "SAPP's relative costs, for rec", "elements", make_symbolic},
  };
}

}  // namespace autopar
