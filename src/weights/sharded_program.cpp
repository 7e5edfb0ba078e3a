#include "weights/sharded_program.hpp"

#include <set>
#include <unordered_map>
#include <utility>

#include "autopar/weights.hpp"

namespace autopar {
namespace {

// How often a value is read, and by which op if that is only one.
struct Reads {
  int count = 0;
  OpId op;
  bool leaves = false;  // the program
};

std::vector<Reads> reads_of(const Graph& program) {
  std::vector<Reads> reads(program.values.size());
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    for (ValueId input : program.ops[o].inputs) {
      if (!input.valid()) continue;
      ++reads[input.index()].count;
      reads[input.index()].op = OpId(static_cast<std::int64_t>(o));
    }
  }
  for (ValueId output : program.outputs) {
    ++reads[output.index()].count;
    reads[output.index()].leaves = true;
  }
  return reads;
}

// The mesh axes of a ShardSlice of a lowered program.
std::vector<int> axes_of(const Op& op, const Mesh& mesh) {
  std::vector<int> axes;
  const auto names = op.attributes.find("mesh_axes");
  if (names == op.attributes.end()) return axes;
  if (const auto* list = std::get_if<std::vector<std::string>>(&names->second)) {
    for (const std::string& name : *list) axes.push_back(mesh.axis_index(name));
  }
  return axes;
}

CutWeight cut_weight(const Plan& plan, ValueId initializer, const std::vector<Reads>& reads) {
  const Graph& program = plan.program;
  const Value& value = program.value(initializer);
  CutWeight weight{{value.name, value.dtype, value.shape, replicated(value.shape.size())},
                   initializer,
                   initializer,
                   {}};
  while (true) {
    const Reads& read = reads[weight.slice.index()];
    if (read.count != 1 || !read.op.valid()) return weight;
    const Op& op = program.op(read.op);
    if (!is_slice(op) || op.inputs[0] != weight.slice) return weight;
    if (reads[op.outputs[0].index()].leaves) return weight;  // under its own name
    Spec spec = weight.whole.spec;
    const auto axis = static_cast<std::size_t>(op.int_attribute("axis", 0));
    const std::vector<int> axes = axes_of(op, plan.mesh);
    spec.dims[axis].append(axes.begin(), axes.end());
    // A dimension that is cut twice over one axis is not a layout.
    if (!verify(spec, weight.whole.shape, plan.mesh)) return weight;
    if (local_shape(spec, weight.whole.shape, plan.mesh) != program.value(op.outputs[0]).shape) {
      return weight;
    }
    weight.whole.spec = spec;
    weight.slice = op.outputs[0];
    weight.slices.push_back(read.op);
  }
}

// Drops ops and what they give. `stand`: what is read in the place of a value. `kept` are
// renumbered.
void drop(Graph& program, const std::vector<char>& dropped,
          const std::unordered_map<ValueId, ValueId>& stand, std::vector<ValueId>& kept) {
  std::vector<char> ops(program.ops.size(), 1), values(program.values.size(), 1);
  for (std::size_t o = 0; o < program.ops.size(); ++o) {
    if (!dropped[o]) continue;
    ops[o] = values[program.ops[o].outputs[0].index()] = 0;
  }
  const auto replace = [&](std::vector<ValueId>& ids) {
    for (ValueId& id : ids) {
      if (const auto found = stand.find(id); found != stand.end()) id = found->second;
    }
  };
  for (Op& op : program.ops) replace(op.inputs);
  replace(program.outputs);
  const std::vector<ValueId> now = keep(program, ops, values);
  for (ValueId& id : kept) {
    if (id.valid()) id = now[id.index()];
  }
}

// A copy but for the data of parameters, which may be large.
Plan without_data(const Plan& plan) {
  const Graph& from = plan.program;
  Plan copy{{}, plan.mesh, plan.inputs, plan.outputs};
  Graph& to = copy.program;
  to.name = from.name;
  to.opset = from.opset;
  to.ops = from.ops;
  to.inputs = from.inputs;
  to.outputs = from.outputs;
  for (const Value& value : from.values) {
    const bool kept = value.kind != ValueKind::kParameter;
    to.values.push_back({value.name, value.dtype, value.shape, value.kind, value.producer, {}});
    if (kept) to.values.back().data = value.data;
  }
  return copy;
}

}  // namespace

std::vector<CutWeight> cut_weights(const Plan& plan) {
  const Graph& program = plan.program;
  const std::vector<Reads> reads = reads_of(program);
  std::vector<char> is_input(program.values.size());
  for (ValueId input : program.inputs) is_input[input.index()] = 1;
  std::vector<CutWeight> weights;
  for (std::size_t v = 0; v < program.values.size(); ++v) {
    const Value& value = program.values[v];
    if (value.kind != ValueKind::kParameter || !value.has_data() || is_input[v]) continue;
    weights.push_back(cut_weight(plan, ValueId(static_cast<std::int64_t>(v)), reads));
  }
  return weights;
}

std::vector<BoundaryValue> weights_of(const Plan& plan) {
  std::vector<BoundaryValue> weights;
  for (CutWeight& weight : cut_weights(plan)) weights.push_back(std::move(weight.whole));
  return weights;
}

ShardedProgram shard_program(const Plan& plan, const std::vector<BoundaryValue>& known) {
  ShardedProgram sharded{without_data(plan), known, {}};
  Graph& program = sharded.plan.program;
  if (!known.empty()) {
    std::unordered_map<std::string, ValueId> ids;
    for (std::size_t v = 0; v < program.values.size(); ++v) {
      ids[program.values[v].name] = ValueId(static_cast<std::int64_t>(v));
    }
    for (const BoundaryValue& weight : known) sharded.initializers.push_back(ids.at(weight.name));
    return sharded;
  }
  std::vector<char> dropped(program.ops.size());
  std::unordered_map<ValueId, ValueId> stand;  // the slice -> the initializer
  for (CutWeight& weight : cut_weights(plan)) {
    for (OpId op : weight.slices) dropped[op.index()] = 1;
    program.value(weight.initializer).shape = program.value(weight.slice).shape;
    if (weight.slice != weight.initializer) stand[weight.slice] = weight.initializer;
    sharded.initializers.push_back(weight.initializer);
    sharded.weights.push_back(std::move(weight.whole));
  }
  drop(program, dropped, stand, sharded.initializers);
  return sharded;
}

namespace {

// `made`: what programs of the step give, by name.
Plan with_weights_as_inputs(const Plan& plan, const std::set<std::string>& made) {
  Plan copy = without_data(plan);
  Graph& program = copy.program;
  std::vector<char> dropped(program.ops.size());
  std::unordered_map<ValueId, ValueId> stand;  // the slice -> the input
  for (CutWeight& weight : cut_weights(plan)) {
    Value& value = program.value(weight.initializer);
    if (value.bytes() == 0 || made.count(value.name) != 0) {
      value.data = plan.program.value(weight.initializer).data;
      continue;
    }
    for (OpId op : weight.slices) dropped[op.index()] = 1;
    value.shape = program.value(weight.slice).shape;
    if (weight.slice != weight.initializer) stand[weight.slice] = weight.initializer;
    program.inputs.push_back(weight.initializer);
    copy.inputs.push_back(std::move(weight.whole));
  }
  std::vector<ValueId> none;
  drop(program, dropped, stand, none);
  return copy;
}

}  // namespace

std::vector<Plan> with_weights_as_inputs(const std::vector<const Plan*>& plans) {
  std::set<std::string> made;
  for (const Plan* plan : plans) {
    for (const BoundaryValue& output : plan->outputs) made.insert(output.name);
  }
  std::vector<Plan> changed;
  for (const Plan* plan : plans) changed.push_back(with_weights_as_inputs(*plan, made));
  return changed;
}

}  // namespace autopar
