#include <algorithm>
#include <array>
#include <optional>

#include "partition/program.hpp"

namespace autopar {
namespace {

constexpr std::array kKinds = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                               CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                               CollectiveKind::kBroadcast,     CollectiveKind::kShardSlice,
                               CollectiveKind::kMakePartial};

std::optional<CollectiveKind> kind_of(const Op& op) {
  for (CollectiveKind kind : kKinds) {
    if (op.type == name_of(kind)) return kind;
  }
  return std::nullopt;
}

std::optional<Reduction> reduction_of(const Op& op) {
  const std::string name = op.string_attribute("reduce_op", "sum");
  for (Reduction reduction :
       {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
    if (name == name_of(reduction)) return reduction;
  }
  return std::nullopt;
}

Error op_error(const Op& op, const std::string& what) {
  return input_error("op '" + op.name + "' (" + std::string(kCollectiveDomain) + "::" + op.type +
                     "): " + what);
}

// Before lowering the split axis of AllToAll is called `axis`, as in AbstractCollective.
std::int64_t split_axis_of(const Op& op) {
  return op.int_attribute("split_axis", op.int_attribute("axis", -1));
}

}  // namespace

bool exchanges_data(const Op& op) {
  const std::optional<CollectiveKind> kind = kind_of(op);
  return is_collective(op) && kind && communicates(*kind);
}

Result<std::vector<int>> axes_of(const Op& op, const Mesh& mesh) {
  std::vector<int> axes;
  const auto names = op.attributes.find("mesh_axes");
  if (names == op.attributes.end()) {
    for (std::int64_t axis : op.ints_attribute("axes")) axes.push_back(static_cast<int>(axis));
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&names->second)) {
    for (const std::string& name : *list) axes.push_back(mesh.axis_index(name));
  }
  if (axes.empty()) return op_error(op, "names no mesh axes");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool repeated = std::count(axes.begin(), axes.end(), axes[i]) > 1;
    if (axes[i] < 0 || axes[i] >= mesh.rank() || repeated) {
      return op_error(op, "its mesh axis " + std::to_string(i) +
                              " is not one of the mesh or stands there twice");
    }
  }
  return axes;
}

Result<Shape> collective_output_shape(const Op& op, std::int64_t group_size, const Shape& input) {
  const std::optional<CollectiveKind> kind = kind_of(op);
  if (!kind) return op_error(op, "is not an op of this domain");
  if (group_size < 1) return op_error(op, "group_size must be at least 1");
  const auto rank = static_cast<std::int64_t>(input.size());
  const bool to_all = *kind == CollectiveKind::kAllToAll;
  const std::int64_t axis = to_all ? split_axis_of(op) : op.int_attribute("axis", -1);
  const std::int64_t concat_axis = op.int_attribute("concat_axis", -1);
  Shape output = input;
  const auto dimension = [&](std::int64_t index) -> std::int64_t& {
    return output[static_cast<std::size_t>(index)];
  };
  const auto bad_axis = [&](const char* name, std::int64_t found) {
    return op_error(op, std::string(name) + " " + std::to_string(found) +
                            " is no dimension of its input " + to_text(input));
  };
  switch (*kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kMakePartial:
      return output;
    case CollectiveKind::kAllGather:
      if (axis < 0 || axis >= rank) return bad_axis("axis", axis);
      dimension(axis) *= group_size;
      return output;
    case CollectiveKind::kAllToAll:
      if (concat_axis < 0 || concat_axis >= rank) return bad_axis("concat_axis", concat_axis);
      [[fallthrough]];
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kShardSlice:
      if (axis < 0 || axis >= rank) return bad_axis(to_all ? "split_axis" : "axis", axis);
      if (dimension(axis) % group_size != 0) {
        return op_error(op, "dimension " + std::to_string(axis) + " of its input " +
                                to_text(input) + " is not divisible by the group's " +
                                std::to_string(group_size) + " ranks");
      }
      dimension(axis) /= group_size;
      if (to_all) dimension(concat_axis) *= group_size;
      return output;
  }
  return output;
}

Result<std::vector<ProgramCollective>> collectives_of(const Plan& plan) {
  const Graph& program = plan.program;
  std::vector<ProgramCollective> result;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    if (!is_collective(op)) continue;
    const std::optional<CollectiveKind> kind = kind_of(op);
    const std::optional<Reduction> reduction = reduction_of(op);
    if (!kind || *kind == CollectiveKind::kMakePartial || !op.has_input(0)) {
      return op_error(op, "is not a collective of a lowered program");
    }
    if (!reduction) {
      return op_error(op, "unknown reduce_op '" + op.string_attribute("reduce_op", "") + "'");
    }
    AUTOPAR_TRY(axes, axes_of(op, plan.mesh));
    ProgramCollective found;
    found.op = OpId(static_cast<std::int64_t>(o));
    found.collective.kind = *kind;
    found.collective.axes = axes;
    found.collective.axis = static_cast<int>(
        *kind == CollectiveKind::kAllToAll ? split_axis_of(op) : op.int_attribute("axis", -1));
    found.collective.concat_axis = static_cast<int>(op.int_attribute("concat_axis", -1));
    found.collective.reduction = *reduction;
    if (const auto groups = op.attributes.find("groups"); groups != op.attributes.end()) {
      if (const auto* list = std::get_if<IntList>(&groups->second)) found.groups = *list;
    }
    found.group_size = op.int_attribute("group_size", 1);
    found.input_bytes = program.value(op.inputs[0]).bytes();
    result.push_back(std::move(found));
  }
  return result;
}

}  // namespace autopar
