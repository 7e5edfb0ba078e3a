#include "planning/input_pins.hpp"

#include <algorithm>
#include <set>

#include "planning/gemm_pins.hpp"
#include "search/boundary.hpp"

namespace autopar {

Result<Fill> parse_fill(const std::string& name) {
  if (name == "data_parallel") return Fill::kDataParallel;
  if (name == "replicate") return Fill::kReplicate;
  if (name == "search") return Fill::kSearch;
  return usage_error("--fill '" + name + "': expected data_parallel, replicate or search");
}

namespace {

// A pin that says of which type its op is, must say the model's: it may be of another model.
Status check_type(const StrategyFile& file, const std::string& name, const Op* op) {
  const auto said = file.op_types.find(name);
  if (op == nullptr || said == file.op_types.end()) return Ok{};
  if (said->second == op->type || said->second == op->origin_type) return Ok{};
  return input_error(file.path + ": ops." + name + ".type: the model's op is a " + op->type +
                     ", found \"" + said->second + "\"");
}

// MindSpore's OneHot has the counts of its output in the place of those of the indices, which have
// a dimension less: [2,4] cuts the indices [N] in 2 and the depth in 4.
void take_depth(OpPin& pin, const Op& op, const Graph& graph) {
  if (!pin.in_strategy || pin.in_strategy->empty() || pin.out_strategy) return;
  std::vector<std::int64_t>& counts = pin.in_strategy->front();
  const auto rank = static_cast<std::int64_t>(graph.value(op.inputs[0]).shape.size()) + 1;
  if (static_cast<std::int64_t>(counts.size()) != rank) return;
  pin.out_strategy.emplace(1, counts);
  const std::int64_t axis = op.int_attribute("axis", -1);
  counts.erase(counts.begin() + (axis < 0 ? axis + rank : axis));
}

}  // namespace

namespace {

bool says_spec(const Pins& pins, const std::string& value) {
  const auto pin = pins.values.find(value);
  return pin != pins.values.end() &&
         !(pin->second.spec.empty() && pin->second.device_matrix.empty());
}

// Whether the pins say of an op how it is split, by what it makes or by itself.
bool says_split(const Pins& pins, const Op& op, const Graph& graph) {
  return pins.ops.count(op.name) != 0 ||
         std::any_of(op.outputs.begin(), op.outputs.end(),
                     [&](ValueId v) { return v.valid() && says_spec(pins, graph.value(v).name); });
}

void pin_repeat(const std::string& repeat, const std::string& name, Pins& pins) {
  const auto pin = pins.values.find(name);
  if (pin == pins.values.end()) return;
  ValuePin made;
  made.spec = pin->second.spec;
  made.device_matrix = pin->second.device_matrix;
  made.tensor_map = pin->second.tensor_map;
  pins.values.try_emplace(repeat, made);
}

// What is repeated is split as what it repeats, unless the pins say something else of it.
void pin_repeats(const Inputs& inputs, Pins& pins) {
  const Graph& graph = inputs.model.graph;
  const Pins said = pins;
  for (const Op& op : graph.ops) {
    const auto repeated = inputs.op_of_repeat.find(op.name);
    if (repeated == inputs.op_of_repeat.end() || says_split(said, op, graph)) continue;
    const auto pin = said.ops.find(repeated->second);
    if (pin != said.ops.end()) pins.ops.emplace(op.name, pin->second);
    for (ValueId output : op.outputs) {
      if (!output.valid()) continue;
      const std::string& made = graph.value(output).name;
      const auto of = inputs.value_of_repeat.find(made);
      if (of != inputs.value_of_repeat.end()) pin_repeat(made, of->second, pins);
    }
  }
}

}  // namespace

std::string base_of(const std::string& name) {
  std::size_t end = name.size();
  for (const std::string ending : {".again", ".hub"}) {
    for (std::size_t at = name.find(ending); at < end; at = name.find(ending, at + 1)) {
      const std::size_t behind = at + ending.size();
      if (behind == name.size() || name[behind] == '.') end = at;
    }
  }
  return name.substr(0, end);
}

void drop_unmade(const Graph& graph, Pins& pins) {
  std::set<std::string> ops, values;
  for (const Op& op : graph.ops) ops.insert(op.name);
  for (const Value& value : graph.values) values.insert(value.name);
  const auto is_unmade = [](const std::set<std::string>& known, const std::string& name) {
    return base_of(name) != name && known.count(name) == 0;
  };
  std::erase_if(pins.ops, [&](const auto& pin) { return is_unmade(ops, pin.first); });
  std::erase_if(pins.values, [&](const auto& pin) { return is_unmade(values, pin.first); });
}

Status add_pins(const StrategyFile& file, const Inputs& inputs, SearchRequest& request) {
  AUTOPAR_TRY(mesh, mesh_of(file, inputs.cluster));
  if (request.mesh && mesh && request.mesh->sizes() != mesh->sizes()) {
    return input_error(file.path + ": mesh " + to_text(*mesh) + ": --mesh asks for " +
                       to_text(*request.mesh) + "; leave out one of them");
  }
  if (mesh) request.mesh = std::move(mesh);
  const Graph& graph = inputs.model.graph;
  std::map<std::string, OpId> op_of;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    op_of[graph.ops[o].name] = OpId(static_cast<std::int64_t>(o));
  }
  std::map<std::string, OpPin> implied;
  for (const auto& [name, pin] : file.pins.ops) {
    std::string target = name;
    if (!op_of.count(name)) {
      const auto it = inputs.model.ops_of_user_op->find(name);
      if (it != inputs.model.ops_of_user_op->end() && it->second.empty()) {
        return input_error(file.path + ": op '" + name +
                           "' was folded into a constant or removed at import; it cannot be split");
      }
      if (it != inputs.model.ops_of_user_op->end() && it->second.size() == 1) {
        target = it->second.front();
      }
    }
    const auto found = op_of.find(target);
    const Op* op = found == op_of.end() ? nullptr : &graph.op(found->second);
    AUTOPAR_RETURN_IF_ERROR(check_type(file, name, op));
    OpPin kept = pin;
    if (op != nullptr && op->type == "OneHot") take_depth(kept, *op, graph);
    if (op != nullptr && op->type == "Gemm") {
      auto of_gemm = pin_gemm(std::move(kept), graph, inputs.rules, found->second, implied);
      if (!of_gemm) return input_error(file.path + ": " + of_gemm.error().message);
      kept = std::move(*of_gemm);
    }
    request.pins.ops[target] = std::move(kept);
  }
  // What the file says of an op itself comes before what follows from another's pin.
  request.pins.ops.merge(implied);
  request.pins.values = file.pins.values;
  pin_repeats(inputs, request.pins);
  return Ok{};
}

void complete_pins(const StrategyFile& file, SearchRequest& request) {
  const Graph& graph = request.graph;
  if (!file.stages.empty() || !is_complete(graph, file)) return;
  // The search says what is wrong with one that contradicts itself.
  const auto strategy = complete_strategy(graph, request.rules, request.cluster, file);
  if (!strategy) return;
  const std::vector<Readers> readers = readers_of(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.kind == ValueKind::kConstant) continue;
    const ValueSpecs& specs = strategy->values[v];
    const auto text = [&](const Spec& spec) { return to_text(spec, strategy->mesh); };
    const bool is_fixed = readers[v].is_output && is_fixed_output(request.outputs, value);
    const bool is_only_output = readers[v].is_output && readers[v].count() == 1;
    ValuePin& pin = request.pins.values[value.name];
    if (pin.spec.empty()) pin.spec = text(specs.spec);  // of what a phase op hands on
    if (pin.hub_spec.empty() && pin.kept_spec.empty() && !(is_fixed && is_only_output)) {
      pin.hub_spec = text(specs.hub);
    }
    if (pin.output_spec.empty() && readers[v].is_output && !is_fixed) {
      pin.output_spec = text(specs.output);
    }
  }
}

Error with_pin_file(Error error, const std::string& path) {
  const bool of_pins = error.message.rfind("op '", 0) == 0 ||
                       error.message.rfind("tensor '", 0) == 0 ||
                       error.message.rfind("pin of ", 0) == 0;
  if (of_pins && error.code == ErrorCode::kInput) error.message = path + ": " + error.message;
  return error;
}

}  // namespace autopar
