// Models into which somebody wrote collectives.
#include <algorithm>
#include <array>
#include <set>

#include "autopar/import.hpp"
#include "io/export/programs.hpp"

namespace autopar {
namespace {

// One axis of all ranks. Its groups need not run along it.
Mesh mesh_of_ranks(std::int64_t ranks) { return {{{"ranks", ranks, 0, 1}}}; }

std::vector<BoundaryValue> whole(const Graph& program, const std::vector<ValueId>& ids) {
  std::vector<BoundaryValue> boundary;
  for (ValueId id : ids) {
    const Value& value = program.value(id);
    boundary.push_back({value.name, value.dtype, value.shape, replicated(value.shape.size())});
  }
  return boundary;
}

bool has_collectives(const Graph& program) {
  return std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return op.domain == "ai.autopar" && op.type != "ShardSlice";
  });
}

Status set_mesh(const Properties& properties, PlanFile& file) {
  if (properties.count("autopar.mesh") > 0) {
    AUTOPAR_TRY(mesh, mesh_of(properties, file.path, file.metadata.tier_names));
    file.plan.mesh = mesh;
    return Ok{};
  }
  AUTOPAR_TRY(place, stage_place_of(properties, file.path));
  std::int64_t ranks = static_cast<std::int64_t>(place.ranks.size());
  if (ranks == 0) ranks = place.world_size;
  if (ranks == 0) ranks = listed_ranks(file.plan.program);
  constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
  if (ranks < 1 || ranks > kMostRanks) {
    return input_error(file.path + ": a program for " + std::to_string(ranks) +
                       " ranks; expected collectives whose groups list from 1 to " +
                       std::to_string(kMostRanks));
  }
  file.plan.mesh = mesh_of_ranks(ranks);
  return Ok{};
}

}  // namespace

Status check_known_collectives(const onnx::ModelProto& model) {
  static const std::set<std::string> microsoft = {"AllReduce",
                                                  "AllGather",
                                                  "AllToAll",
                                                  "NcclAllReduce",
                                                  "NcclAllGather",
                                                  "NcclReduceScatter",
                                                  "Send",
                                                  "Recv",
                                                  "DistributedMatMul",
                                                  "DistributedSlice",
                                                  "DistributedReshape",
                                                  "DistributedExpand",
                                                  "DistributedReduceSum",
                                                  "DistributedReduceMax",
                                                  "DistributedReduceMean",
                                                  "DistributedSqueeze",
                                                  "DistributedUnsqueeze"};
  static const std::set<std::string> anywhere = {"DistCollective"};
  for (const auto& node : model.graph().node()) {
    const bool foreign = anywhere.count(node.op_type()) > 0 ||
                         (node.domain() == "com.microsoft" && microsoft.count(node.op_type()) > 0);
    if (!foreign) continue;
    const std::string domain = node.domain().empty() ? "" : node.domain() + "::";
    const std::string output = node.output_size() > 0 ? node.output(0) : "";
    return input_error(
        "op '" + (node.name().empty() ? output : node.name()) + "' (" + domain + node.op_type() +
        ") exchanges data between ranks in a way that is not read; write it as an "
        "op of the domain ai.autopar (AllReduce, AllGather, ReduceScatter, AllToAll, "
        "Broadcast, ShardSlice, Send, Recv) with the attributes groups and "
        "group_size");
  }
  return Ok{};
}

Result<PlanFile> read_by_hand(const std::string& path,
                              const std::map<std::string, std::int64_t>& dims) {
  ImportOptions options;
  options.dims = dims;
  AUTOPAR_TRY(model, import_model(path, options));
  PlanFile file;
  file.path = path;
  file.by_hand = true;
  file.warnings = std::move(model.warnings);
  file.metadata.version = AUTOPAR_VERSION;
  file.plan.program = std::move(model.graph);
  if (!has_collectives(file.plan.program)) {
    return input_error(path +
                       ": has neither the metadata of a plan nor collectives of ai.autopar; "
                       "`autopar search` or `apply` makes a plan of a model");
  }
  const Properties& properties = model.metadata;
  AUTOPAR_RETURN_IF_ERROR(set_mesh(properties, file));
  AUTOPAR_RETURN_IF_ERROR(set_ranks(properties, file));
  auto completed = complete_collectives(file.plan.program, file.plan.mesh);
  if (!completed) return input_error(path + ": " + completed.error().message);
  file.warnings.insert(file.warnings.end(), completed->begin(), completed->end());
  if (properties.count("autopar.io") > 0) {
    AUTOPAR_RETURN_IF_ERROR(read_boundary(properties, path, file.plan));
  } else {
    file.plan.inputs = whole(file.plan.program, file.plan.program.inputs);
    file.plan.outputs = whole(file.plan.program, file.plan.program.outputs);
  }
  const Status valid = verify(file.plan, file.ranks, file.world_size);
  if (!valid) return input_error(path + ": " + valid.error().message);
  return file;
}

}  // namespace autopar
