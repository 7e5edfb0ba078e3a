#include "partition/collectives.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace autopar {
namespace {

struct DTypeNumber {
  DType dtype;
  std::int64_t number;
};
// TensorProto.DataType.
constexpr DTypeNumber kDTypeNumbers[] = {
    {DType::kFloat32, 1},  {DType::kUInt8, 2},    {DType::kInt8, 3},    {DType::kUInt16, 4},
    {DType::kInt16, 5},    {DType::kInt32, 6},    {DType::kInt64, 7},   {DType::kBool, 9},
    {DType::kFloat16, 10}, {DType::kFloat64, 11}, {DType::kUInt32, 12}, {DType::kUInt64, 13},
    {DType::kBFloat16, 16}};

// -1 where it is none, which is refused where an axis is needed: 2^32 is no axis 0.
int small(std::int64_t axis) {
  return axis >= 0 && axis <= std::numeric_limits<int>::max() ? static_cast<int>(axis) : -1;
}

// Before lowering the split axis of AllToAll is called `axis`, as in AbstractCollective.
std::int64_t split_axis_of(const Op& op) {
  return op.int_attribute("split_axis", op.int_attribute("axis", -1));
}

bool names_axes(const Op& op) {
  const auto names = op.attributes.find("mesh_axes");
  if (names == op.attributes.end()) return op.attributes.count("axes") > 0;
  const auto* list = std::get_if<std::vector<std::string>>(&names->second);
  return list != nullptr && !list->empty();
}

}  // namespace

std::optional<DType> dtype_of_number(std::int64_t number) {
  for (const DTypeNumber& row : kDTypeNumbers) {
    if (row.number == number) return row.dtype;
  }
  return std::nullopt;
}

std::int64_t number_of(DType dtype) {
  for (const DTypeNumber& row : kDTypeNumbers) {
    if (row.dtype == dtype) return row.number;
  }
  return 0;
}

Error collective_error(const Op& op, const std::string& what) {
  return input_error("op '" + op.name + "' (" + std::string(kCollectiveDomain) + "::" + op.type +
                     "): " + what);
}

Result<std::vector<int>> axes_of(const Op& op, const Mesh& mesh) {
  std::vector<int> axes;
  const auto names = op.attributes.find("mesh_axes");
  if (names == op.attributes.end()) {
    for (std::int64_t axis : op.ints_attribute("axes")) axes.push_back(small(axis));
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&names->second)) {
    for (const std::string& name : *list) axes.push_back(mesh.axis_index(name));
  }
  if (axes.empty()) return collective_error(op, "names no mesh axes");
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const bool repeated = std::count(axes.begin(), axes.end(), axes[i]) > 1;
    if (axes[i] < 0 || axes[i] >= mesh.rank() || repeated) {
      return collective_error(op, "its mesh axis " + std::to_string(i) +
                                      " is not one of the mesh or stands there twice");
    }
  }
  return axes;
}

Result<Shape> collective_output_shape(const Op& op, std::int64_t group_size, const Shape& input) {
  const std::optional<CollectiveKind> kind = parse_collective_kind(op.type);
  if (!kind) return collective_error(op, "is not an op of this domain");
  if (group_size < 1) return collective_error(op, "group_size must be at least 1");
  const auto rank = static_cast<std::int64_t>(input.size());
  const bool to_all = *kind == CollectiveKind::kAllToAll;
  const std::int64_t axis = to_all ? split_axis_of(op) : op.int_attribute("axis", -1);
  const std::int64_t concat_axis = op.int_attribute("concat_axis", -1);
  Shape output = input;
  const auto dimension = [&](std::int64_t index) -> std::int64_t& {
    return output[static_cast<std::size_t>(index)];
  };
  const auto multiply = [&](std::int64_t index) -> Status {
    const std::int64_t extent = dimension(index);
    if (!__builtin_mul_overflow(extent, group_size, &dimension(index))) return Ok{};
    return collective_error(op, "dimension " + std::to_string(index) + " of its input " +
                                    to_text(input) + " times the group's " +
                                    std::to_string(group_size) +
                                    " ranks is more than a tensor can have");
  };
  const auto bad_axis = [&](const char* name, std::int64_t found) {
    return collective_error(op, std::string(name) + " " + std::to_string(found) +
                                    " is no dimension of its input " + to_text(input));
  };
  switch (*kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute:
    case CollectiveKind::kMakePartial:
    case CollectiveKind::kSend:
      return output;
    case CollectiveKind::kRecv:
      output = op.ints_attribute("shape", {-1});
      if (std::all_of(output.begin(), output.end(), [](auto extent) { return extent >= 0; })) {
        return output;
      }
      return collective_error(op, "needs the attribute shape, of static extents");
    case CollectiveKind::kAllGather:
      if (axis < 0 || axis >= rank) return bad_axis("axis", axis);
      AUTOPAR_RETURN_IF_ERROR(multiply(axis));
      return output;
    case CollectiveKind::kAllToAll:
      if (concat_axis < 0 || concat_axis >= rank) return bad_axis("concat_axis", concat_axis);
      [[fallthrough]];
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kShardSlice:
      if (axis < 0 || axis >= rank) return bad_axis(to_all ? "split_axis" : "axis", axis);
      if (dimension(axis) % group_size != 0) {
        return collective_error(op, "dimension " + std::to_string(axis) + " of its input " +
                                        to_text(input) + " is not divisible by the group's " +
                                        std::to_string(group_size) + " ranks");
      }
      dimension(axis) /= group_size;
      if (to_all) AUTOPAR_RETURN_IF_ERROR(multiply(concat_axis));
      return output;
  }
  return output;
}

Result<TensorType> collective_output_type(const Graph& program, const Op& op,
                                          std::int64_t group_size) {
  const bool receives = op.type == name_of(CollectiveKind::kRecv);
  TensorType type;
  if (receives) {
    const std::optional<DType> dtype = dtype_of_number(op.int_attribute("dtype", 0));
    if (!dtype) {
      return collective_error(op,
                              "needs the attribute dtype, the number of a type in ONNX files (1: "
                              "float32), found " +
                                  std::to_string(op.int_attribute("dtype", 0)));
    }
    type.dtype = *dtype;
  } else {
    if (!op.has_input(0)) return collective_error(op, "has no input");
    type.dtype = program.value(op.inputs[0]).dtype;
  }
  AUTOPAR_TRY(shape, collective_output_shape(
                         op, group_size, receives ? Shape{} : program.value(op.inputs[0]).shape));
  type.shape = shape;
  return type;
}

Result<std::vector<ProgramCollective>> collectives_of(const Plan& plan) {
  const Graph& program = plan.program;
  std::vector<ProgramCollective> result;
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    if (!is_collective(op)) continue;
    const std::optional<CollectiveKind> kind = parse_collective_kind(op.type);
    const std::optional<Reduction> reduction = reduction_of(op);
    if (!kind || *kind == CollectiveKind::kMakePartial || !op.has_output(0) ||
        (*kind != CollectiveKind::kRecv && !op.has_input(0))) {
      return collective_error(op, "is not a collective of a lowered program");
    }
    if (!reduction) {
      return collective_error(op,
                              "unknown reduce_op '" + op.string_attribute("reduce_op", "") + "'");
    }
    ProgramCollective found;
    found.op = OpId(static_cast<std::int64_t>(o));
    found.collective.kind = *kind;
    if (names_axes(op)) {
      AUTOPAR_TRY(axes, axes_of(op, plan.mesh));
      found.collective.axes = axes;
    }
    found.collective.axis = small(
        *kind == CollectiveKind::kAllToAll ? split_axis_of(op) : op.int_attribute("axis", -1));
    found.collective.concat_axis = small(op.int_attribute("concat_axis", -1));
    found.collective.reduction = *reduction;
    if (const auto groups = op.attributes.find("groups"); groups != op.attributes.end()) {
      if (const auto* list = std::get_if<IntList>(&groups->second)) found.groups = *list;
    }
    found.group_size = op.int_attribute("group_size", 1);
    const bool receives = *kind == CollectiveKind::kRecv;
    found.input_bytes = program.value(receives ? op.outputs[0] : op.inputs[0]).bytes();
    result.push_back(std::move(found));
  }
  return result;
}

std::vector<char> known_at_load(const Graph& program) {
  std::vector<char> known(program.values.size());
  for (std::size_t v = 0; v < known.size(); ++v) known[v] = program.values[v].has_data();
  for (const Op& op : program.ops) {
    const bool of_known = is_slice(op) && op.has_input(0) && known[op.inputs[0].index()] != 0;
    if (of_known) known[op.outputs[0].index()] = 1;
  }
  return known;
}

}  // namespace autopar
