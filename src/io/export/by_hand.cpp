// Models into which somebody wrote collectives.
#include <algorithm>
#include <utility>

#include "io/dialects/dialects.hpp"
#include "io/export/programs.hpp"
#include "io/import/external_locations.hpp"
#include "io/import/import_file.hpp"

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
  return std::any_of(program.ops.begin(), program.ops.end(),
                     [](const Op& op) { return is_collective(op) && !is_slice(op); });
}

// Other runtimes have no seq: theirs is the order of the file.
void number_in_file_order(Graph& program) {
  const bool any = std::any_of(program.ops.begin(), program.ops.end(), [](const Op& op) {
    return is_collective(op) && op.attributes.count("seq") > 0;
  });
  if (any) return;
  std::int64_t seq = 0;
  for (Op& op : program.ops) {
    if (is_collective(op)) op.attributes["seq"] = seq++;
  }
}

// Names the ops without names whose groups run along these axes.
void name_axes(Graph& program, const Mesh& mesh, const AxisList& list) {
  std::vector<std::int64_t> groups;  // as many numbers as there are ranks: made where needed
  const std::int64_t size = axes_size(mesh, list);
  std::vector<std::string> names;
  for (int axis : list) names.push_back(mesh.axes[static_cast<std::size_t>(axis)].name);
  for (Op& op : program.ops) {
    if (!is_collective(op) || op.attributes.count("mesh_axes") > 0) continue;
    if (op.int_attribute("group_size", 0) != size) continue;
    if (groups.empty()) groups = device_groups(mesh, list);
    if (op.ints_attribute("groups") == groups) op.attributes["mesh_axes"] = names;
  }
}

// The same for all lists of axes, in any order, that begin with `first`.
void name_axes_after(Graph& program, const Mesh& mesh, const AxisList& first) {
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    const bool taken = std::find(first.begin(), first.end(), static_cast<int>(axis)) != first.end();
    if (taken || mesh.axes[axis].size == 1) continue;
    AxisList list = first;
    list.push_back(static_cast<int>(axis));
    name_axes(program, mesh, list);
    name_axes_after(program, mesh, list);
  }
}

// Along which axes of the mesh groups run, as a plan would say; other groups have no name.
void name_axes(Graph& program, const Mesh& mesh) {
  constexpr std::size_t kMostAxes = 5;  // 325 lists
  if (mesh.axes.size() <= kMostAxes) name_axes_after(program, mesh, {});
}

Status set_mesh(const Properties& properties, PlanFile& file, const GivenRanks* given) {
  if (properties.count("autopar.mesh") > 0) {
    AUTOPAR_TRY(mesh, mesh_of(properties, file.path, file.metadata.tier_names));
    file.plan.mesh = mesh;
    return Ok{};
  }
  AUTOPAR_TRY(place, stage_place_of(properties, file.path));
  std::int64_t ranks = static_cast<std::int64_t>(place.ranks.size());
  if (given != nullptr) ranks = static_cast<std::int64_t>(given->ranks.size());
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

Result<PlanFile> by_hand_of(ModelFile read, const std::string& path, const std::string& dialect,
                            const std::map<std::string, std::int64_t>& dims,
                            const GivenRanks* given) {
  ImportOptions options;
  options.dims = dims;
  AUTOPAR_TRY(model, import_file(std::move(read), path, options));
  PlanFile file;
  file.path = path;
  file.by_hand = true;
  file.dialect = dialect;
  file.warnings = std::move(model.warnings);
  file.metadata.version = AUTOPAR_VERSION;
  file.plan.program = std::move(model.graph);
  const Properties& properties = model.metadata;
  const bool told_ranks = given != nullptr || properties.count("autopar.world_size") > 0;
  if (!has_collectives(file.plan.program) && !told_ranks) {
    return input_error(path +
                       ": has neither the metadata of a plan nor collectives of ai.autopar, "
                       "TensorRT (DistCollective) or ONNX Runtime (com.microsoft); `autopar "
                       "search` or `apply` makes a plan of a model");
  }
  const auto told = [&](const char* key) {
    const auto found = properties.find(key);
    return found == properties.end() ? std::string() : found->second;
  };
  file.metadata.model_sha256 = told("autopar.model_sha256");
  file.metadata.strategy_sha256 = told("autopar.strategy_sha256");
  if (dialect.empty()) file.dialect = told("autopar.dialect");
  AUTOPAR_RETURN_IF_ERROR(set_mesh(properties, file, given));
  AUTOPAR_RETURN_IF_ERROR(set_ranks(properties, file, given));
  if (!file.dialect.empty()) number_in_file_order(file.plan.program);
  if (properties.count("autopar.mesh") > 0 && file.metadata.ranks.empty()) {
    name_axes(file.plan.program, file.plan.mesh);
  }
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

Result<PlanFile> read_by_hand(const std::string& path,
                              const std::map<std::string, std::int64_t>& dims,
                              const GivenRanks* given) {
  const auto in_file = [&](const Error& error) { return input_error(path + ": " + error.message); };
  const auto mapped = open_file(path);
  if (!mapped) return in_file(mapped.error());
  auto file = read_model(mapped->bytes());
  if (!file) return in_file(file.error());
  const Status located = check_external_locations(file->model, path);
  if (!located) return in_file(located.error());
  const auto dialect = translate_collectives(file->model, 0);
  if (!dialect) return in_file(dialect.error());
  return by_hand_of(std::move(*file), path, *dialect, dims, given);
}

}  // namespace autopar
