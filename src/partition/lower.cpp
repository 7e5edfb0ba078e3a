#include <map>
#include <string>
#include <utility>
#include <vector>

#include "partition/collectives.hpp"
#include "partition/program.hpp"

namespace autopar {
namespace {

class Lowering {
 public:
  explicit Lowering(Draft& draft) : draft_(draft), mesh_(draft.plan.mesh) {}

  Status run() {
    std::vector<Op> ops = std::exchange(program().ops, {});
    program().ops.reserve(ops.size());
    replacement_.resize(program().values.size());
    for (Op& op : ops) {
      for (ValueId& input : op.inputs) {
        if (input.valid() && replacement(input).valid()) input = replacement(input);
      }
      if (is_collective(op)) {
        AUTOPAR_RETURN_IF_ERROR(lower_collective(std::move(op)));
      } else {
        program().add_op(std::move(op));
      }
    }
    return Ok{};
  }

 private:
  Graph& program() { return draft_.plan.program; }
  // Values that lowering adds are never replaced.
  ValueId replacement(ValueId v) const {
    return v.index() < replacement_.size() ? replacement_[v.index()] : ValueId();
  }

  Status lower_collective(Op op);
  void drop(Op op);
  void make_partial(Op op, const std::vector<int>& axes);
  void through_vector(Op op);
  void add_groups(Op& op, const std::vector<int>& axes);
  ValueId is_first(const std::vector<int>& axes, bool scalar);
  ValueId zero(DType dtype);

  Draft& draft_;
  const Mesh& mesh_;
  std::vector<ValueId> replacement_;  // of outputs of dropped collectives
  std::map<std::pair<std::vector<int>, bool>, ValueId> is_first_;
  std::map<DType, ValueId> zeros_;
  std::map<std::vector<int>, IntList> groups_;
};

// A collective over one device gives its input.
void Lowering::drop(Op op) {
  bool leaves = false;
  for (ValueId output : program().outputs) leaves |= output == op.outputs[0];
  if (!leaves) {
    replacement_[op.outputs[0].index()] = op.inputs[0];
    program().value(op.outputs[0]).producer = OpId();
    return;
  }
  program().add_op({.name = op.name,
                    .type = "Identity",
                    .domain = "",
                    .inputs = {op.inputs[0]},
                    .outputs = op.outputs,
                    .attributes = {},
                    .origin_name = op.origin_name,
                    .origin_type = op.origin_type});
}

void Lowering::add_groups(Op& op, const std::vector<int>& axes) {
  auto [groups, added] = groups_.try_emplace(axes);
  if (added) groups->second = device_groups(mesh_, axes);
  std::vector<std::string> names;
  for (int axis : axes) names.push_back(mesh_.axes[static_cast<std::size_t>(axis)].name);
  op.attributes["groups"] = groups->second;
  op.attributes["group_size"] = axes_size(mesh_, axes);
  op.attributes["mesh_axes"] = names;
}

// A bool that is true at position 0 of each group; of shape [1] or scalar.
ValueId Lowering::is_first(const std::vector<int>& axes, bool scalar) {
  if (auto found = is_first_.find({axes, scalar}); found != is_first_.end()) return found->second;
  std::string stem = "is_first";
  for (int axis : axes) stem += "/" + mesh_.axes[static_cast<std::size_t>(axis)].name;
  ValueId flag;
  if (scalar) {
    const ValueId vector = is_first(axes, false);
    flag = program().add_value({.name = draft_.value_names.unique(stem + "/scalar"),
                                .dtype = DType::kBool,
                                .shape = {},
                                .producer = {},
                                .data = {}});
    program().add_op({.name = draft_.op_names.unique(stem + "/Squeeze"),
                      .type = "Squeeze",
                      .domain = "",
                      .inputs = {vector},
                      .outputs = {flag},
                      .attributes = {},
                      .origin_name = "",
                      .origin_type = ""});
  } else {
    const std::int64_t size = axes_size(mesh_, axes);
    Tensor flags{DType::kBool, {size}, std::string(static_cast<std::size_t>(size), '\0')};
    flags.bytes[0] = '\1';
    const ValueId all = program().add_value({.name = draft_.value_names.unique(stem + "/all"),
                                             .dtype = DType::kBool,
                                             .shape = {size},
                                             .kind = ValueKind::kConstant,
                                             .producer = {},
                                             .data = std::move(flags)});
    flag = program().add_value({.name = draft_.value_names.unique(stem),
                                .dtype = DType::kBool,
                                .shape = {1},
                                .producer = {},
                                .data = {}});
    Op slice{.name = draft_.op_names.unique(stem + "/ShardSlice"),
             .type = name_of(CollectiveKind::kShardSlice),
             .domain = kCollectiveDomain,
             .inputs = {all},
             .outputs = {flag},
             .attributes = {{"axis", std::int64_t{0}}},
             .origin_name = "",
             .origin_type = ""};
    add_groups(slice, axes);
    program().add_op(std::move(slice));
  }
  is_first_[{axes, scalar}] = flag;
  return flag;
}

ValueId Lowering::zero(DType dtype) {
  auto [found, added] = zeros_.try_emplace(dtype);
  if (added) {
    found->second = program().add_value(
        {.name = draft_.value_names.unique(std::string("zero/") + name_of(dtype)),
         .dtype = dtype,
         .shape = {},
         .kind = ValueKind::kConstant,
         .producer = {},
         .data = scalar_tensor(dtype, 0)});
  }
  return found->second;
}

// Dtypes for which ONNX Runtime has no Where, by way of one that holds all their values (uint64:
// their bits), with the numbers that Cast knows them by.
struct Detour {
  DType dtype;
  std::int64_t number;
  DType wide;
  std::int64_t wide_number;
};
constexpr Detour kDetours[] = {{DType::kBFloat16, 16, DType::kFloat32, 1},
                               {DType::kInt16, 5, DType::kInt32, 6},
                               {DType::kUInt16, 4, DType::kInt32, 6},
                               {DType::kUInt64, 13, DType::kInt64, 7}};

const Detour* detour_of(DType dtype) {
  for (const Detour& detour : kDetours) {
    if (detour.dtype == dtype) return &detour;
  }
  return nullptr;
}

// Only position 0 keeps what it has: Where(is first, x, 0).
void Lowering::make_partial(Op op, const std::vector<int>& axes) {
  const Shape shape = program().value(op.inputs[0]).shape;
  const DType dtype = program().value(op.inputs[0]).dtype;
  const Detour* detour = detour_of(dtype);
  const ValueId flag = is_first(axes, shape.empty());
  const ValueId nothing = zero(detour ? detour->wide : dtype);
  const auto add = [&](const std::string& name, const char* type, std::vector<ValueId> inputs,
                       std::vector<ValueId> outputs) -> Op& {
    return program().op(program().add_op({.name = name,
                                          .type = type,
                                          .domain = "",
                                          .inputs = std::move(inputs),
                                          .outputs = std::move(outputs),
                                          .attributes = {},
                                          .origin_name = op.origin_name,
                                          .origin_type = op.origin_type}));
  };
  if (detour == nullptr) {
    add(op.name, "Where", {flag, op.inputs[0], nothing}, op.outputs);
    return;
  }
  const auto wide_value = [&](const char* stem) {
    return program().add_value({.name = draft_.value_names.unique(op.name + stem),
                                .dtype = detour->wide,
                                .shape = shape,
                                .producer = {},
                                .data = {}});
  };
  const ValueId all = wide_value("/wide"), kept = wide_value("/kept");
  add(draft_.op_names.unique(op.name + "/widen"), "Cast", {op.inputs[0]}, {all}).attributes["to"] =
      detour->wide_number;
  add(op.name, "Where", {flag, all, nothing}, {kept});
  add(draft_.op_names.unique(op.name + "/narrow"), "Cast", {kept}, op.outputs).attributes["to"] =
      detour->number;
}

Status Lowering::lower_collective(Op op) {
  AUTOPAR_TRY(axes, axes_of(op, mesh_));
  if (axes_size(mesh_, axes) == 1) {
    drop(std::move(op));
    return Ok{};
  }
  if (op.type == name_of(CollectiveKind::kMakePartial)) {
    make_partial(std::move(op), axes);
    return Ok{};
  }
  if (op.type == name_of(CollectiveKind::kAllToAll)) {
    op.attributes["split_axis"] = op.int_attribute("axis", -1);
    op.attributes.erase("axis");
  }
  if (op.type == name_of(CollectiveKind::kBroadcast)) op.attributes.try_emplace("root", 0);
  if (op.type == name_of(CollectiveKind::kPermute)) op.attributes.try_emplace("shift", 1);
  op.attributes.erase("axes");
  add_groups(op, axes);
  if (program().value(op.inputs[0]).shape.empty()) {
    through_vector(std::move(op));
  } else {
    program().add_op(std::move(op));
  }
  return Ok{};
}

// Libraries of collectives know buffers, not scalars: a scalar goes as a vector of one element.
void Lowering::through_vector(Op op) {
  const auto reshaped = [&](ValueId from, ValueId to, const Shape& shape) {
    const std::string stem = op.name + (shape.empty() ? "/scalar" : "/vector");
    const ValueId target = program().add_value(
        {.name = draft_.value_names.unique(stem + "/shape"),
         .dtype = DType::kInt64,
         .shape = {static_cast<std::int64_t>(shape.size())},
         .kind = ValueKind::kConstant,
         .producer = {},
         .data = int64_tensor({static_cast<std::int64_t>(shape.size())}, shape)});
    program().add_op({.name = draft_.op_names.unique(stem),
                      .type = "Reshape",
                      .domain = "",
                      .inputs = {from, target},
                      .outputs = {to},
                      .attributes = {},
                      .origin_name = op.origin_name,
                      .origin_type = op.origin_type});
  };
  const auto vector_value = [&](const std::string& stem) {
    return program().add_value({.name = draft_.value_names.unique(op.name + stem),
                                .dtype = program().value(op.inputs[0]).dtype,
                                .shape = {1},
                                .producer = {},
                                .data = {}});
  };
  const ValueId output = op.outputs[0];
  const ValueId sent = vector_value("/sent"), received = vector_value("/received");
  reshaped(op.inputs[0], sent, {1});
  op.inputs[0] = sent;
  op.outputs[0] = received;
  program().add_op(op);
  reshaped(received, output, {});
}

}  // namespace

Status lower(Draft& draft) { return Lowering(draft).run(); }

}  // namespace autopar
