#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "partition/program.hpp"

namespace autopar {
namespace {

// A sequence of collectives and the layout after each, as in Reshard; empty where nothing is to be
// done.
struct Route {
  std::vector<Collective> steps;
  std::vector<Shape> shapes;
  std::vector<Spec> specs;
  Shape local;  // in the end
  bool empty() const { return steps.empty(); }
};

// From a whole tensor that every device holds: one slice per split dimension, for free.
Route slicing(const Shape& shape, const Spec& to, const Mesh& mesh) {
  Route route;
  route.local = local_shape(to, shape, mesh);
  Spec spec = replicated(shape.size());
  for (std::size_t d = 0; d < to.dims.size(); ++d) {
    if (to.dims[d].empty()) continue;
    spec.dims[d] = to.dims[d];
    route.steps.push_back(
        {.kind = CollectiveKind::kShardSlice, .axes = to.dims[d], .axis = static_cast<int>(d)});
    route.specs.push_back(spec);
  }
  if (!to.partial.empty()) {
    route.steps.push_back({.kind = CollectiveKind::kMakePartial, .axes = to.partial});
    route.specs.push_back(to);
  }
  route.shapes.assign(route.steps.size(), shape);
  return route;
}

// Walks the graph once; versions of a value come into being when they are first asked for.
class Inserter {
 public:
  Inserter(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
           const std::vector<OpSpecs>& op_specs, const Cluster& cluster)
      : graph_(graph),
        rules_(rules),
        strategy_(strategy),
        op_specs_(op_specs),
        cluster_(cluster),
        versions_(graph.values.size()) {}

  Result<Draft> run() {
    draft_.plan.mesh = strategy_.mesh;
    program().name = graph_.name;
    program().opset = graph_.opset;
    // Names of the graph stay with what they name there, whatever is inserted before.
    for (const Value& value : graph_.values) draft_.value_names.take(value.name);
    for (const Op& op : graph_.ops) draft_.op_names.take(op.name);
    for (ValueId output : graph_.outputs) versions_[output.index()].is_output = true;
    AUTOPAR_RETURN_IF_ERROR(add_inputs());
    for (ValueId output : graph_.outputs) {
      if (!graph_.value(output).producer.valid()) AUTOPAR_RETURN_IF_ERROR(place_stored(output));
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) AUTOPAR_RETURN_IF_ERROR(add_op(o));
    add_outputs();
    return std::move(draft_);
  }

 private:
  struct Versions {
    bool is_output = false;
    ValueId first;   // in `spec`; of a constant: whole
    ValueId hub;     // in `hub`
    ValueId output;  // in `output`
    // Slices of a constant.
    std::vector<std::pair<Spec, ValueId>> slices;
  };

  Graph& program() { return draft_.plan.program; }
  const Mesh& mesh() const { return strategy_.mesh; }
  const ValueSpecs& specs_of_value(ValueId v) const { return strategy_.values[v.index()]; }

  Status add_inputs();
  void add_outputs();
  Status place_stored(ValueId v);
  Status place_output(ValueId v);
  Result<bool> has_further_versions(ValueId v);
  Result<ValueId> hub_of(ValueId v);
  Result<ValueId> slice_of_constant(ValueId v, const Spec& need, const std::string& name);
  Result<std::vector<ValueId>> inputs_of(std::size_t o);
  Status add_op(std::size_t o);
  void name_ops(const Op& op, std::size_t first_added);

  Result<Route> route_between(ValueId v, const Spec& from, const Spec& to);
  Result<Route> slicing_of(ValueId v, const Spec& to);
  ValueId apply(const Route& route, ValueId v, ValueId from, const std::string& last_name);
  ValueId viewed(ValueId from, const Shape& shape, const std::string& stem);

  const Graph& graph_;
  const GraphRules& rules_;
  const Strategy& strategy_;
  const std::vector<OpSpecs>& op_specs_;
  const Cluster& cluster_;
  std::vector<Versions> versions_;
  // Values of one shape and type share their reshards.
  std::map<std::pair<Shape, DType>, Resharder> resharders_;
  Draft draft_;
};

Result<Route> Inserter::route_between(ValueId v, const Spec& from, const Spec& to) {
  if (from == to || mesh().size() == 1) return Route{};
  const Value& value = graph_.value(v);
  auto key = std::make_pair(value.shape, value.dtype);
  auto found = resharders_.find(key);
  if (found == resharders_.end()) {
    Resharder resharder = resharders_.empty()
                              ? Resharder(value.shape, value.dtype, mesh(), cluster_)
                              : Resharder(value.shape, value.dtype, resharders_.begin()->second);
    found = resharders_.emplace(std::move(key), std::move(resharder)).first;
  }
  Reshard reshard = found->second.path(from, to);
  if (reshard.steps.empty()) {
    return input_error("tensor '" + value.name + "' " + to_text(value.shape) +
                       ": there is no way from " + to_text(from, mesh()) + " to " +
                       to_text(to, mesh()));
  }
  return Route{std::move(reshard.steps), std::move(reshard.shapes), std::move(reshard.specs),
               local_shape(to, value.shape, mesh())};
}

Result<Route> Inserter::slicing_of(ValueId v, const Spec& to) {
  if (mesh().size() == 1) return Route{};
  const Value& value = graph_.value(v);
  if (to.reduction != Reduction::kSum) {
    return input_error("tensor '" + value.name + "' " + to_text(value.shape) +
                       ": cannot become a partial " + name_of(to.reduction) + ", " +
                       to_text(to, mesh()));
  }
  return slicing(value.shape, to, mesh());
}

// The same local elements in another shape; nothing where they have it.
ValueId Inserter::viewed(ValueId from, const Shape& shape, const std::string& stem) {
  if (program().value(from).shape == shape) return from;
  const auto rank = static_cast<std::int64_t>(shape.size());
  const ValueId target =
      program().add_value({.name = draft_.value_names.unique(stem + "/Reshape/shape"),
                           .dtype = DType::kInt64,
                           .shape = {rank},
                           .kind = ValueKind::kConstant,
                           .producer = {},
                           .data = int64_tensor({rank}, shape)});
  const ValueId view = program().add_value({.name = draft_.value_names.unique(stem + "/Reshape"),
                                            .dtype = program().value(from).dtype,
                                            .shape = shape,
                                            .producer = {},
                                            .data = {}});
  std::map<std::string, Attribute> attributes;
  // Else an extent of 0 would stand for the input's.
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (empty && program().opset >= 14) attributes["allowzero"] = std::int64_t{1};
  program().add_op({.name = draft_.op_names.unique(stem + "/Reshape"),
                    .type = "Reshape",
                    .domain = "",
                    .inputs = {from, target},
                    .outputs = {view},
                    .attributes = attributes,
                    .origin_name = "",
                    .origin_type = ""});
  return view;
}

// Appends the collectives of a route; the last output is renamed where `last_name` is not empty.
ValueId Inserter::apply(const Route& route, ValueId v, ValueId from, const std::string& last_name) {
  const Value& value = graph_.value(v);
  for (std::size_t i = 0; i < route.steps.size(); ++i) {
    const Collective& step = route.steps[i];
    const Shape output = local_shape(route.specs[i], route.shapes[i], mesh());
    from = viewed(from, input_shape(step, output, mesh()), value.name);
    const AbstractCollective abstract{
        .type = name_of(step.kind),
        .axes = step.axes,
        .axis = step.axis,
        .concat_axis = step.concat_axis,
        .reduce_op = has_reduction(step.kind) ? name_of(step.reduction) : ""};
    from = add_collective(program(), draft_.value_names, draft_.op_names, abstract, from, output,
                          value.name + "/" + abstract.type);
  }
  if (!route.empty()) from = viewed(from, route.local, value.name);
  if (!route.empty() && !last_name.empty()) program().value(from).name = last_name;
  return from;
}

Status Inserter::add_inputs() {
  for (ValueId v : graph_.inputs) {
    const Value& value = graph_.value(v);
    const Spec& spec = specs_of_value(v).spec;
    const ValueId added = program().add_value({.name = value.name,
                                               .dtype = value.dtype,
                                               .shape = local_shape(spec, value.shape, mesh()),
                                               .kind = value.kind,
                                               .producer = {},
                                               .data = {}});
    program().inputs.push_back(added);
    draft_.plan.inputs.push_back({value.name, value.dtype, value.shape, spec});
    versions_[v.index()].first = added;
  }
  return Ok{};
}

// Whether anything is inserted between the first version of an output and what leaves.
Result<bool> Inserter::has_further_versions(ValueId v) {
  const ValueSpecs& specs = specs_of_value(v);
  AUTOPAR_TRY(to_hub, route_between(v, specs.spec, specs.hub));
  AUTOPAR_TRY(to_output, route_between(v, specs.hub, specs.output));
  return !to_hub.empty() || !to_output.empty();
}

// Brings a value that no op produces into its `spec`, and out again where it is an output.
Status Inserter::place_stored(ValueId v) {
  const Value& value = graph_.value(v);
  Versions& versions = versions_[v.index()];
  const bool constant = value.kind == ValueKind::kConstant;
  const ValueSpecs& specs = specs_of_value(v);
  if (versions.first.valid()) {
    if (!versions.is_output || versions.output.valid()) return Ok{};
    AUTOPAR_TRY(changes, has_further_versions(v));
    if (changes) {
      return input_error("tensor '" + value.name +
                         "' is an input and an output of the model at once, so it must leave as it "
                         "comes in: expected " +
                         to_text(specs.spec, mesh()) + ", found " + to_text(specs.output, mesh()) +
                         "; put an Identity between them");
    }
    return place_output(v);
  }
  AUTOPAR_TRY(route, slicing_of(v, constant ? specs.output : specs.spec));
  bool leaves_changed = false;
  if (versions.is_output) {
    leaves_changed = !route.empty();
    if (!constant) {
      AUTOPAR_TRY(further, has_further_versions(v));
      leaves_changed |= further;
    }
  }
  const std::string whole_name =
      leaves_changed ? draft_.value_names.unique(value.name + "/whole") : value.name;
  const ValueId whole = program().add_value({.name = whole_name,
                                             .dtype = value.dtype,
                                             .shape = value.shape,
                                             .kind = value.kind,
                                             .producer = {},
                                             .data = value.data});
  versions.first = whole;
  if (constant) {
    if (versions.is_output) {
      AUTOPAR_TRY(sliced, slice_of_constant(v, specs.output, value.name));
      versions.output = sliced;
    }
    return Ok{};
  }
  versions.first = apply(route, v, whole, "");
  if (!versions.is_output) return Ok{};
  AUTOPAR_TRY(further, has_further_versions(v));
  if (!further && !route.empty()) program().value(versions.first).name = value.name;
  return place_output(v);
}

// Reshards an output to its hub and to the spec that it leaves in; the last version has its name.
Status Inserter::place_output(ValueId v) {
  const ValueSpecs& specs = specs_of_value(v);
  const std::string& name = graph_.value(v).name;
  Versions& versions = versions_[v.index()];
  AUTOPAR_TRY(to_hub, route_between(v, specs.spec, specs.hub));
  AUTOPAR_TRY(to_output, route_between(v, specs.hub, specs.output));
  versions.hub = apply(to_hub, v, versions.first, to_output.empty() ? name : "");
  versions.output = apply(to_output, v, versions.hub, name);
  return Ok{};
}

Result<ValueId> Inserter::hub_of(ValueId v) {
  Versions& versions = versions_[v.index()];
  if (!versions.first.valid()) AUTOPAR_RETURN_IF_ERROR(place_stored(v));
  if (!versions.hub.valid()) {
    const ValueSpecs& specs = specs_of_value(v);
    AUTOPAR_TRY(route, route_between(v, specs.spec, specs.hub));
    versions.hub = apply(route, v, versions.first, "");
  }
  return versions.hub;
}

Result<ValueId> Inserter::slice_of_constant(ValueId v, const Spec& need, const std::string& name) {
  Versions& versions = versions_[v.index()];
  if (!versions.first.valid()) AUTOPAR_RETURN_IF_ERROR(place_stored(v));
  for (const auto& [spec, slice] : versions.slices) {
    if (spec == need) return slice;
  }
  AUTOPAR_TRY(route, slicing_of(v, need));
  const ValueId slice = apply(route, v, versions.first, name);
  versions.slices.emplace_back(need, slice);
  return slice;
}

Result<std::vector<ValueId>> Inserter::inputs_of(std::size_t o) {
  const Op& op = graph_.ops[o];
  std::vector<ValueId> inputs(op.inputs.size());
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.has_input(i)) continue;
    const ValueId v = op.inputs[i];
    const Spec& need = op_specs_[o].inputs[i];
    for (std::size_t j = 0; j < i && !inputs[i].valid(); ++j) {
      if (op.inputs[j] == v && op_specs_[o].inputs[j] == need) inputs[i] = inputs[j];
    }
    if (inputs[i].valid()) continue;
    if (graph_.value(v).kind == ValueKind::kConstant) {
      AUTOPAR_TRY(slice, slice_of_constant(v, need, ""));
      inputs[i] = slice;
      continue;
    }
    AUTOPAR_TRY(hub, hub_of(v));
    AUTOPAR_TRY(route, route_between(v, specs_of_value(v).hub, need));
    inputs[i] = apply(route, v, hub, "");
  }
  return inputs;
}

Status Inserter::add_op(std::size_t o) {
  const Op& op = graph_.ops[o];
  AUTOPAR_TRY(inputs, inputs_of(o));
  std::vector<std::string> names(op.outputs.size());
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!op.has_output(i)) continue;
    const ValueId v = op.outputs[i];
    names[i] = graph_.value(v).name;
    if (!versions_[v.index()].is_output) continue;
    AUTOPAR_TRY(further, has_further_versions(v));
    if (further) names[i] = draft_.value_names.unique(names[i] + "/produced");
  }
  const std::size_t first_added = program().ops.size();
  AUTOPAR_TRY(outputs, localise({.graph = graph_,
                                 .op = op,
                                 .rule = rules_.rules[o],
                                 .assignment = strategy_.assignments[o],
                                 .specs = op_specs_[o],
                                 .mesh = mesh(),
                                 .program = program(),
                                 .value_names = draft_.value_names,
                                 .op_names = draft_.op_names,
                                 .inputs = inputs,
                                 .output_names = names}));
  AUTOPAR_CHECK(outputs.size() == op.outputs.size(), "localise: number of outputs of " + op.name);
  name_ops(op, first_added);
  for (std::size_t i = 0; i < op.outputs.size(); ++i) {
    if (!op.has_output(i)) continue;
    const ValueId v = op.outputs[i];
    const Value& local = program().value(outputs[i]);
    const Shape expected = local_shape(specs_of_value(v).spec, graph_.value(v).shape, mesh());
    if (local.shape != expected || local.dtype != graph_.value(v).dtype) {
      return input_error("op '" + op.name + "' (" + op.type + ") under the assignment '" +
                         to_text(strategy_.assignments[o], rules_.rules[o], mesh()) +
                         "' gives a local output " + std::to_string(i) + " of " +
                         to_text(local.shape) + ", expected " + to_text(expected) +
                         "; the local form of this op is wrong, please report it");
    }
    versions_[v.index()].first = outputs[i];
    if (versions_[v.index()].is_output) AUTOPAR_RETURN_IF_ERROR(place_output(v));
  }
  return Ok{};
}

// One of the ops that an op became keeps its name, all know where they come from.
void Inserter::name_ops(const Op& op, std::size_t first_added) {
  std::vector<Op>& ops = program().ops;
  Op* main = nullptr;
  for (std::size_t i = first_added; i < ops.size(); ++i) {
    if (ops[i].origin_name.empty()) {
      ops[i].origin_name = op.origin_name;
      ops[i].origin_type = op.origin_type;
    }
    const bool better = main == nullptr || main->type != op.type || ops[i].type == op.type;
    if (better) main = &ops[i];
  }
  for (std::size_t i = first_added; i < ops.size(); ++i) {
    if (ops[i].name == op.name) return;
  }
  if (main != nullptr) main->name = op.name;
}

void Inserter::add_outputs() {
  for (ValueId v : graph_.outputs) {
    const Value& value = graph_.value(v);
    program().outputs.push_back(versions_[v.index()].output);
    draft_.plan.outputs.push_back({value.name, value.dtype, value.shape, specs_of_value(v).output});
  }
}

}  // namespace

Result<Draft> insert_reshards(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                              const std::vector<OpSpecs>& op_specs, const Cluster& cluster) {
  return Inserter(graph, rules, strategy, op_specs, cluster).run();
}

}  // namespace autopar
