// What the metadata_props of a plan say, in C++.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/export.hpp"
#include "io/export/model_proto.hpp"

namespace autopar {

using Properties = std::map<std::string, std::string>;
Properties properties_of(const onnx::ModelProto& model);
// Errors name the file.
Result<std::string> property(const Properties& properties, const std::string& key,
                             const std::string& path);

// The ranks of the world, where one of several programs says which run it.
struct StagePlace {
  std::int64_t stage = -1;
  std::vector<std::int64_t> ranks;  // empty: it is alone
  std::int64_t world_size = 0;      // 0: not said
};
Result<StagePlace> stage_place_of(const Properties& properties, const std::string& path);

// `autopar.mesh`; tiers are numbered as in PlanFile.
Result<Mesh> mesh_of(const Properties& properties, const std::string& path,
                     std::vector<std::string>& tier_names);
// Sets the boundary of `plan`, which has its program and mesh, from `autopar.io`.
Status read_boundary(const Properties& properties, const std::string& path, Plan& plan);

// `autopar.data`, and back: a list of names; nothing where it is not said.
inline constexpr const char* kDataKey = "autopar.data";
std::string json_names(const std::vector<std::string>& names);
Result<std::optional<std::vector<std::string>>> data_of(const Properties& properties,
                                                        const std::string& path);

// `autopar.weights_io`, and back: weights become parameters of the plan's program.
std::string json_weights(const std::vector<BoundaryValue>& weights, const Mesh& mesh);
Status read_weights(const Properties& properties, const std::string& path, Plan& plan,
                    PlanMetadata& metadata);

}  // namespace autopar
