#include "autopar/hub_ops.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "autopar/phase_ops.hpp"
#include "search/meshes.hpp"
#include "search/pins.hpp"

namespace autopar {

namespace {

// Where the request does not say how many axes: those that a search tries at most.
constexpr int kMostAxes = 4;

// Readers in several phases do not share: what they read is kept in the hub between the phases.
bool read_by_several(const Graph& graph, const std::vector<Use>& uses) {
  const auto all = [&](const auto& alike) {
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return alike(use.op); });
  };
  if (uses.empty()) return false;
  const OpId first = uses.front().op;
  return all([&](OpId op) { return graph.op(op).phase == graph.op(first).phase; }) &&
         !all([&](OpId op) { return op == first; });
}

// Whether an Identity can read and leave a value so.
bool is_handed_on(const Spec& spec) {
  return spec.reduction == Reduction::kSum &&
         std::all_of(spec.dims.begin(), spec.dims.end(),
                     [](const AxisList& axes) { return std::is_sorted(axes.begin(), axes.end()); });
}

bool may_pin_hubs(const Pins& pins) {
  return std::any_of(pins.values.begin(), pins.values.end(),
                     [](const auto& pin) { return !pin.second.hub_spec.empty(); }) ||
         std::any_of(pins.ops.begin(), pins.ops.end(),
                     [](const auto& pin) { return pin.second.out_strategy.has_value(); });
}

// Those of all searchers.
std::vector<Mesh> meshes_to_ask(const SearchRequest& request) {
  std::vector<Mesh> meshes = meshes_of(request);
  if (request.mesh) return meshes;
  const int axes = request.max_axes > 0 ? request.max_axes : kMostAxes;
  for (Mesh& mesh : mesh_candidates(request.cluster, axes, true)) {
    if (std::find(meshes.begin(), meshes.end(), mesh) != meshes.end()) continue;
    meshes.push_back(std::move(mesh));
  }
  return meshes;
}

void replace_ops(Graph& graph, std::vector<Op> ops) {
  graph.ops.clear();
  for (Op& op : ops) graph.add_op(std::move(op));
}

}  // namespace

std::vector<HubOp> possible_hub_ops(const Graph& graph, const IsReserved& reserved) {
  Names op_names, value_names;
  for (const Op& op : graph.ops) op_names.take(op.name);
  for (const Value& value : graph.values) value_names.take(value.name);
  const std::vector<std::vector<Use>> uses = uses_of(graph);
  const PhaseOps phase_ops(graph);
  std::vector<HubOp> found;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const bool of_phase = value.producer.valid() && phase_ops.contains(value.producer);
    const bool is_shared = !of_phase && read_by_several(graph, uses[v]);
    if (value.kind == ValueKind::kConstant || !is_shared) continue;
    const std::string name = value.name + ".hub";
    found.push_back({ValueId(static_cast<std::int64_t>(v)), unreserved(op_names, name, reserved),
                     value_names.unique(name)});
  }
  return found;
}

std::vector<HubOp> pinned_hub_ops(const SearchRequest& request, std::vector<HubOp> possible) {
  if (!may_pin_hubs(request.pins) || possible.empty()) return {};
  std::map<ValueId, bool> handed_on;  // of pinned hubs, on all meshes
  for (const Mesh& mesh : meshes_to_ask(request)) {
    const auto model = make_cost_model(request.cost_model, request.cluster, mesh);
    if (!model) return {};
    const auto kept = keep_pins(request, **model);
    if (!kept) continue;  // as the search will say
    for (const auto& [value, pin] : kept->hub) {
      bool& all = handed_on.try_emplace(value, true).first->second;
      all = all && std::all_of(pin.specs.begin(), pin.specs.end(), is_handed_on);
    }
  }
  std::erase_if(possible, [&](const HubOp& hub_op) {
    const auto found = handed_on.find(hub_op.value);
    return found == handed_on.end() || !found->second;
  });
  return possible;
}

void add_hub_ops(Graph& graph, const std::vector<HubOp>& hub_ops) {
  if (hub_ops.empty()) return;
  std::vector<ValueId> read(graph.values.size());  // in the place of a value; invalid: itself
  const std::vector<std::vector<Use>> uses = uses_of(graph);
  std::map<OpId, std::vector<Op>> before;
  for (const HubOp& hub_op : hub_ops) {
    const Value& value = graph.value(hub_op.value);
    const DType dtype = value.dtype;
    const Shape shape = value.shape;
    const ValueId output = graph.add_value({.name = hub_op.output, .dtype = dtype, .shape = shape});
    read[hub_op.value.index()] = output;
    const OpId first = uses[hub_op.value.index()].front().op;
    before[first].push_back({.name = hub_op.name,
                             .type = "Identity",
                             .inputs = {hub_op.value},
                             .outputs = {output},
                             .phase = graph.op(first).phase});
  }
  std::vector<Op> ops;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto added = before.find(OpId(static_cast<std::int64_t>(o)));
    if (added != before.end())
      std::move(added->second.begin(), added->second.end(), std::back_inserter(ops));
    Op& op = graph.ops[o];
    for (ValueId& input : op.inputs) {
      if (input.valid() && read[input.index()].valid()) input = read[input.index()];
    }
    ops.push_back(std::move(op));
  }
  replace_ops(graph, std::move(ops));
}

void remove_hub_ops(Graph& graph, std::size_t values) {
  const auto is_later = [&](const Op& op) {
    return is_hub_op(op) && op.outputs[0].index() >= values;
  };
  if (std::none_of(graph.ops.begin(), graph.ops.end(), is_later)) return;
  std::map<ValueId, ValueId> stands_for;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (is_later(op)) {
      stands_for[op.outputs[0]] = op.inputs[0];
      continue;
    }
    for (ValueId& input : op.inputs) {
      for (auto found = stands_for.find(input); found != stands_for.end();
           found = stands_for.find(input)) {
        input = found->second;
      }
    }
    ops.push_back(std::move(op));
  }
  const std::size_t left = graph.values.size() - stands_for.size();
  AUTOPAR_CHECK(stands_for.begin()->first.index() == left, "hub ops were added last");
  graph.values.resize(left);
  replace_ops(graph, std::move(ops));
}

// Every op of the user's has an origin, and where a step adds up gradients it says so.
bool is_hub_op(const Op& op) {
  return is_identity(op) && op.origin_name.empty() && op.sums == SumsAt::kAnywhere;
}

}  // namespace autopar
