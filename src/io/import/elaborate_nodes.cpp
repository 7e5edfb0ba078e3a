// One node after the other: names, schema, types, folding, and the op that is left.
#include <algorithm>
#include <numeric>
#include <utility>

#include "io/import/elaborator.hpp"
#include "io/import/passes.hpp"
#include "io/import/pool_ceiling.hpp"
#include "io/import/proto_op.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

onnx::TypeProto tensor_type(DType dtype, const Shape& shape) {
  onnx::TypeProto type;
  type.mutable_tensor_type()->set_elem_type(onnx_dtype_of(dtype));
  auto* dims = type.mutable_tensor_type()->mutable_shape();
  for (const std::int64_t extent : shape) dims->add_dim()->set_dim_value(extent);
  return type;
}

// Checks what inference (or value_info) says about the output `name`.
Result<OutputType> output_type(const onnx::TypeProto& type, const std::string& name) {
  if (!type.has_tensor_type()) {
    return input_error("output '" + name + "' " +
                       (type.value_case() == onnx::TypeProto::VALUE_NOT_SET
                            ? "has a type that cannot be inferred"
                            : "is not a tensor; sequences, maps and optionals are not supported"));
  }
  const auto dtype = dtype_of_onnx(type.tensor_type().elem_type());
  if (!dtype) {
    return input_error("output '" + name + "': element type " +
                       onnx_dtype_name(type.tensor_type().elem_type()) + " is not supported");
  }
  OutputType output{*dtype, static_shape(type)};
  if (!output.shape) return output;
  const bool negative =
      std::any_of(output.shape->begin(), output.shape->end(), [](std::int64_t d) { return d < 0; });
  if (negative || element_count(*output.shape) >= kMaxElements) {
    return input_error("output '" + name + "' has the impossible shape " + to_text(*output.shape));
  }
  return output;
}

Result<OutputType> absent_output() { return OutputType{DType::kFloat32, Shape{}}; }

// ONNX has no inference for some ops of its other domains, or only for their element types.
bool is_silent(const onnx::TypeProto& type, const Op& op) {
  if (type.value_case() == onnx::TypeProto::VALUE_NOT_SET) return true;
  return !op.domain.empty() && type.has_tensor_type() && !static_shape(type);
}

Error undeclared(const onnx::NodeProto& node, const std::string& name, const std::string& how) {
  return input_error("ONNX cannot infer what " + node.domain() + "::" + node.op_type() +
                     " makes, so the type and the shape of its output '" + name +
                     "' must stand in the model's value_info; " + how +
                     "; append onnx.helper.make_tensor_value_info('" + name +
                     "', TYPE, SHAPE) to graph.value_info");
}

// An op that may leave out an output gives it no name; of outputs of which there may be any number
// none can be left out, and ONNX Runtime crashes where one has no name.
Status check_outputs(const onnx::OpSchema* schema, const onnx::NodeProto& node) {
  if (schema == nullptr || schema->outputs().empty()) return Ok{};
  if (schema->outputs().back().GetOption() != onnx::OpSchema::Variadic) return Ok{};
  for (int i = static_cast<int>(schema->outputs().size()) - 1; i < node.output_size(); ++i) {
    if (!node.output(i).empty()) continue;
    return input_error("its output " + std::to_string(i) +
                       " has no name; expected one for each of its outputs, though nobody reads "
                       "them: ONNX Runtime does not run it otherwise");
  }
  return Ok{};
}

Error at(const std::string& name, const onnx::NodeProto& node, Error error) {
  error.message = label(name, node) + ": " + error.message;
  return error;
}

}  // namespace

// The names of the main graph are the user's; what is added later must not collide with them.
Status Elaborator::take_model_names(const onnx::GraphProto& graph) {
  for (const auto& input : graph.input()) value_names_.take(input.name());
  for (const auto& tensor : graph.initializer()) value_names_.take(tensor.name());
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) value_names_.take(output);
  }
  for (const auto& node : graph.node()) {
    result_.user_ops.push_back(op_names_.unique(name_of_node(node)));
  }
  return Ok{};
}

std::string Elaborator::value_name(const std::string& name, const Scope& scope) {
  if (scope.is_main()) return name;
  const auto outer = scope.outer_names.find(name);
  if (outer != scope.outer_names.end()) return outer->second;
  return value_names_.unique(scope.prefix + name);
}

ValueId Elaborator::add_value(Value value, Scope& scope, const std::string& name) {
  value.name = value_name(name, scope);
  types_.push_back(tensor_type(value.dtype, value.shape));
  const ValueId id = graph_.add_value(std::move(value));
  scope.values.emplace(name, id);
  return id;
}

bool Elaborator::is_ready(const onnx::NodeProto& node, const Scope& scope) const {
  const bool has_body = std::any_of(node.attribute().begin(), node.attribute().end(),
                                    [](const auto& attribute) { return attribute.has_g(); });
  // Names inside a body may be its own, so a body waits for nothing that can be told here.
  if (has_body) return false;
  return std::all_of(node.input().begin(), node.input().end(), [&](const std::string& input) {
    return input.empty() || scope.lookup(input);
  });
}

// In file order; where a file is not sorted, the rest is sorted once.
Status Elaborator::run_nodes(Nodes& nodes, Scope& scope) {
  std::vector<int> order(static_cast<std::size_t>(nodes.size()));
  std::iota(order.begin(), order.end(), 0);
  bool sorted = false;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!sorted && !is_ready(nodes[order[i]], scope)) {
      AUTOPAR_TRY(rest, topological_order(nodes, static_cast<int>(i)));
      std::copy(rest.begin(), rest.end(), order.begin() + static_cast<std::ptrdiff_t>(i));
      sorted = true;
    }
    onnx::NodeProto& node = nodes[order[i]];
    const std::string name = scope.is_main() ? result_.user_ops[static_cast<std::size_t>(order[i])]
                                             : op_names_.unique(scope.prefix + name_of_node(node));
    AUTOPAR_RETURN_IF_ERROR(run_node(node, scope, name));
  }
  return Ok{};
}

Status Elaborator::run_node(onnx::NodeProto& node, Scope& scope, const std::string& name) {
  if (auto status = check_names(node, scope); !status) return at(name, node, status.error());
  if (const onnx::FunctionProto* function = called_function(functions_, node)) {
    return run_call(node, *function, scope, name);
  }
  if (domain_of(node).empty() && node.op_type() == "If") return run_if(node, scope, name);
  if (auto status = run_op(node, scope, name); !status) return at(name, node, status.error());
  return Ok{};
}

Status Elaborator::check_names(const onnx::NodeProto& node, const Scope& scope) const {
  for (const auto& input : node.input()) {
    if (!input.empty() && !scope.lookup(input)) {
      return input_error("it reads '" + input + "', which nothing produces");
    }
  }
  std::vector<std::string> seen;
  for (const auto& output : node.output()) {
    if (output.empty()) continue;
    if (scope.values.count(output) || std::find(seen.begin(), seen.end(), output) != seen.end()) {
      return input_error("it produces '" + output + "', which is there already");
    }
    seen.push_back(output);
  }
  return Ok{};
}

Status Elaborator::run_op(onnx::NodeProto& node, Scope& scope, const std::string& name) {
  AUTOPAR_TRY(schema, schema_of(node, scope));
  AUTOPAR_RETURN_IF_ERROR(check_outputs(schema, node));
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g() && attribute.graphs_size() == 0) continue;
    return input_error("data-dependent control flow is not supported; expected a graph without " +
                       node.op_type() + "; export the model with its loops unrolled");
  }
  const bool is_constant = domain_of(node).empty() && node.op_type() == "Constant";
  if (is_constant) {
    try {
      schema->Verify(node);
    } catch (const std::bad_alloc&) {
      throw;  // no fault of the model
    } catch (const std::exception& error) {
      return input_error(error.what());
    }
    AUTOPAR_TRY(tensor, constant_of_node(node));
    add_constants(node, {std::move(tensor)}, scope);
    return Ok{};
  }
  if (domain_of(node).empty() && node.input_size() == 1) {
    const ValueId input = node.input(0).empty() ? ValueId() : scope.find(node.input(0));
    if (input.valid()) AUTOPAR_RETURN_IF_ERROR(state_ceiling(node, graph_.value(input).shape));
  }
  AUTOPAR_TRY(groups, group_lists_.take(node));
  AUTOPAR_TRY(op, op_of_node(node));
  if (groups) op.attributes["groups"] = std::move(*groups);
  resolve_inputs(node, scope, op);
  AUTOPAR_TRY(outputs, output_types(node, op, schema));
  if (op.domain.empty() && op.type == "CastLike") {
    // Only the type of the second input counts, so its value need not be known.
    op.type = "Cast";
    op.inputs.resize(1);
    op.attributes["to"] = std::int64_t{onnx_dtype_of(outputs[0].dtype)};
  }
  AUTOPAR_RETURN_IF_ERROR(gather_what_stays(op, outputs, scope));
  if (auto shape = shape_of_input(op)) {
    add_constants(node, {std::move(*shape)}, scope);
    return Ok{};
  }
  const Fold fold = op.inputs.empty() ? Fold::kNone : fold_kind(op);
  auto values = values_of(op, outputs, fold);
  if (values && fold == Fold::kConstant) {
    add_constants(node, std::move(*values), scope);
    return Ok{};
  }
  AUTOPAR_RETURN_IF_ERROR(require_static(node, op, outputs));
  make_base(op, scope, name);
  emit(node, std::move(op), outputs, scope, name);
  if (!values) return Ok{};
  for (std::size_t i = 0; i < values->size(); ++i) {
    const ValueId id = graph_.ops.back().outputs[i];
    if (id.valid()) derived_.emplace(id, std::move((*values)[i]));
  }
  return Ok{};
}

// A constant of one number that values are scattered into, such as the zeros of a table's gradient,
// is made by an op: each device makes its part of it, and holds it no longer than it is needed.
void Elaborator::make_base(Op& op, Scope& scope, const std::string& name) {
  const bool scatters = op.type == "ScatterND" || op.type == "ScatterElements";
  if (!op.domain.empty() || !scatters) return;
  const Value& base = graph_.value(op.inputs[0]);
  const Tensor* data = known(op.inputs[0]);
  if (data == nullptr || base.kind != ValueKind::kConstant || !is_large(*data)) return;
  const std::size_t element = data->bytes.size() / element_count(data->shape);
  const bool is_one_number = data->bytes.compare(element, std::string::npos, data->bytes, 0,
                                                 data->bytes.size() - element) == 0;
  if (!is_one_number) return;
  const std::string own = op_names_.unique(name + ".base");
  Op expand;
  expand.type = "Expand";
  expand.name = own;
  expand.origin_name = scope.origin_name.empty() ? name : scope.origin_name;
  expand.origin_type = scope.origin_type.empty() ? op.type : scope.origin_type;
  const auto add = [&](ValueKind kind, Tensor tensor, bool is_known, const std::string& of) {
    Value value;
    value.kind = kind;
    value.dtype = tensor.dtype;
    value.shape = tensor.shape;
    if (is_known) value.data = std::move(tensor);
    return add_value(std::move(value), scope, value_names_.unique(own + of));
  };
  const Tensor number{data->dtype, {}, data->bytes.substr(0, element)};
  const Tensor like{data->dtype, data->shape, ""};
  const Tensor shape =
      int64_tensor({static_cast<std::int64_t>(like.shape.size())},
                   std::vector<std::int64_t>(like.shape.begin(), like.shape.end()));
  expand.inputs = {add(ValueKind::kConstant, number, true, "/number"),
                   add(ValueKind::kConstant, shape, true, "/shape")};
  expand.outputs = {add(Value().kind, like, false, "_out")};
  op.inputs[0] = expand.outputs[0];
  graph_.add_op(std::move(expand));
}

// A Compress whose condition is known looks up the places that stay.
Status Elaborator::gather_what_stays(Op& op, std::vector<OutputType>& outputs, Scope& scope) {
  if (!op.domain.empty() || op.type != "Compress" || op.inputs.size() != 2) return Ok{};
  const Tensor* condition = known(op.inputs[1]);
  Shape shape = graph_.value(op.inputs[0]).shape;
  if (condition == nullptr || (op.attributes.count("axis") == 0 && shape.size() != 1)) return Ok{};
  const auto axis = normal_axis(op.int_attribute("axis", 0), shape.size());
  if (!axis) return Ok{};
  std::vector<std::int64_t> places;
  for (std::size_t i = 0; i < condition->bytes.size(); ++i) {
    if (condition->bytes[i] != 0) places.push_back(static_cast<std::int64_t>(i));
  }
  if (!places.empty() && places.back() >= shape[*axis]) {
    return input_error("its condition keeps place " + std::to_string(places.back()) +
                       ", and dimension " + std::to_string(*axis) + " of its input has " +
                       std::to_string(shape[*axis]));
  }
  Value value;
  value.dtype = DType::kInt64;
  value.shape = {static_cast<std::int64_t>(places.size())};
  value.kind = ValueKind::kConstant;
  value.data = int64_tensor(value.shape, places);
  const std::string name = graph_.value(op.inputs[1]).name + ".places";
  op.inputs[1] = add_value(std::move(value), scope, value_names_.unique(name));
  op.type = "Gather";
  op.attributes["axis"] = static_cast<std::int64_t>(*axis);
  shape[*axis] = static_cast<std::int64_t>(places.size());
  outputs[0].shape = std::move(shape);
  return Ok{};
}

void Elaborator::resolve_inputs(const onnx::NodeProto& node, const Scope& scope, Op& op) const {
  for (const auto& input : node.input()) {
    op.inputs.push_back(input.empty() ? ValueId() : scope.find(input));
  }
  while (!op.inputs.empty() && !op.inputs.back().valid()) op.inputs.pop_back();
}

// Null for an op of a domain that ONNX does not know.
Result<const onnx::OpSchema*> Elaborator::schema_of(const onnx::NodeProto& node,
                                                    const Scope& scope) const {
  const std::string domain = domain_of(node);
  const auto opset = scope.opsets.find(domain);
  if (opset == scope.opsets.end()) {
    return input_error("the model does not import an opset of its domain '" + domain + "'");
  }
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(
      node.op_type(), static_cast<int>(std::clamp<std::int64_t>(opset->second, 0, 1 << 20)),
      domain);
  if (!domain.empty()) return schema;
  if (!schema) {
    const auto* newest = onnx::OpSchemaRegistry::Schema(node.op_type(), domain);
    return input_error(
        "unknown op type; ONNX has none of that name in opset version " +
        std::to_string(opset->second) +
        (newest ? ", but it has since opset version " + std::to_string(newest->since_version())
                : ""));
  }
  if (opset->second != graph_.opset) {
    // The body of a function: it may differ only where the op has not changed.
    const auto* other =
        onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(graph_.opset), domain);
    if (!other || other->since_version() != schema->since_version()) {
      return input_error("it is in a function of opset version " + std::to_string(opset->second) +
                         ", where " + node.op_type() + " differs from the model's opset version " +
                         std::to_string(graph_.opset));
    }
  }
  return schema;
}

Result<std::vector<OutputType>> Elaborator::output_types(const onnx::NodeProto& node, const Op& op,
                                                         const onnx::OpSchema* schema) {
  std::vector<OutputType> outputs;
  if (!schema) {
    for (const auto& name : node.output()) {
      AUTOPAR_TRY(output, name.empty() ? absent_output() : declared_type(node, name));
      outputs.push_back(std::move(output));
    }
    return outputs;
  }
  std::vector<NodeInput> inputs(static_cast<std::size_t>(node.input_size()));
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.inputs[i].valid()) {
      inputs[i] = {&types_[op.inputs[i].index()], known(op.inputs[i])};
    }
  }
  auto inferred = infer_types(*schema, node, inputs);
  if (!inferred) {
    return input_error(inferred.error().message + "; its inputs: " + inputs_text(op));
  }
  const auto& types = *inferred;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = node.output(static_cast<int>(i));
    AUTOPAR_TRY(output, name.empty()              ? absent_output()
                        : is_silent(types[i], op) ? declared_type(node, name)
                                                  : output_type(types[i], name));
    outputs.push_back(std::move(output));
  }
  if (op.domain.empty() && op.type == "Einsum" && outputs.front().shape) {
    std::vector<Shape> operands;
    for (ValueId input : op.inputs) operands.push_back(graph_.value(input).shape);
    const auto shape = einsum_shape(op.string_attribute("equation", ""), operands);
    if (shape) outputs.front().shape = shape;
  }
  return outputs;
}

std::string Elaborator::inputs_text(const Op& op) const {
  std::string text;
  for (const ValueId id : op.inputs) {
    text += text.empty() ? "" : ", ";
    if (!id.valid()) {
      text += "none";
      continue;
    }
    const Value& value = graph_.value(id);
    text += "'" + value.name + "' " + name_of(value.dtype) + to_text(value.shape);
  }
  return text.empty() ? "none" : text;
}

// Of an op that ONNX cannot infer: what the file says.
Result<OutputType> Elaborator::declared_type(const onnx::NodeProto& node, const std::string& name) {
  if (declared_.empty()) {
    for (const auto& info : model_.graph().value_info()) declared_[info.name()] = &info.type();
    for (const auto& info : model_.graph().output()) declared_[info.name()] = &info.type();
  }
  const auto found = declared_.find(name);
  if (found == declared_.end()) return undeclared(node, name, "it does not");
  onnx::TypeProto type = *found->second;
  if (!type.tensor_type().has_shape()) return undeclared(node, name, "there it has no shape");
  for (auto& dim : *type.mutable_tensor_type()->mutable_shape()->mutable_dim()) {
    if (dim.has_dim_value()) continue;
    const auto symbol = symbols_.find(dim.dim_param());
    if (symbol == symbols_.end()) {
      return undeclared(node, name,
                        "there a dimension is '" + dim.dim_param() + "', as no input has it");
    }
    dim.set_dim_value(symbol->second);
  }
  return output_type(type, name);
}

Status Elaborator::require_static(const onnx::NodeProto& node, const Op& op,
                                  const std::vector<OutputType>& outputs) const {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].shape) continue;
    std::string reason;
    for (const ValueId id : op.inputs) {
      if (!id.valid() || known(id)) continue;
      const Value& value = graph_.value(id);
      if (const auto* external = std::get_if<ExternalData>(&value.data)) {
        return input_error("its shapes depend on '" + value.name + "', which lies in the file '" +
                           external->location + "'; that file cannot be read");
      }
      reason += (reason.empty() ? "" : ", ") + ("'" + value.name + "'");
    }
    return input_error("the shape of its output '" + node.output(static_cast<int>(i)) +
                       "' depends on data" +
                       (reason.empty() ? "" : " (on the values of " + reason + ")") +
                       "; expected a static shape; export the model without data-dependent shapes");
  }
  return Ok{};
}

void Elaborator::emit(const onnx::NodeProto& node, Op op, const std::vector<OutputType>& outputs,
                      Scope& scope, const std::string& name) {
  op.name = name;
  op.origin_name = scope.origin_name.empty() ? name : scope.origin_name;
  op.origin_type = scope.origin_type.empty() ? node.op_type() : scope.origin_type;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string& output = node.output(static_cast<int>(i));
    if (output.empty()) {
      op.outputs.emplace_back();
      continue;
    }
    Value value;
    value.dtype = outputs[i].dtype;
    value.shape = *outputs[i].shape;
    op.outputs.push_back(add_value(std::move(value), scope, output));
  }
  graph_.add_op(std::move(op));
}

}  // namespace autopar
