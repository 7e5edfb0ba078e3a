// Bodies that are walked in place: model-local functions and the taken branch of an `If`.
#include <utility>

#include "io/import/elaborator.hpp"
#include "io/import/proto_op.hpp"

namespace autopar {
namespace {

Error at(const std::string& name, const onnx::NodeProto& node, const std::string& message) {
  return input_error(label(name, node) + ": " + message);
}

// Replaces references to attributes of the call; drops those that the call leaves out.
void bind_attributes(onnx::NodeProto& node, const Scope& scope) {
  auto& attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;) {
    onnx::AttributeProto& attribute = attributes[i];
    if (!attribute.ref_attr_name().empty()) {
      const auto found = scope.attributes.find(attribute.ref_attr_name());
      if (found == scope.attributes.end() || !found->second) {
        attributes.DeleteSubrange(i, 1);
        continue;
      }
      const std::string name = attribute.name();
      attribute = *found->second;
      attribute.set_name(name);
    }
    if (attribute.has_g()) {
      for (auto& inner : *attribute.mutable_g()->mutable_node()) bind_attributes(inner, scope);
    }
  }
}

}  // namespace

Status Elaborator::run_call(const onnx::NodeProto& node, const onnx::FunctionProto& function,
                            Scope& scope, const std::string& name) {
  Scope body;
  body.depth = scope.depth + 1;
  if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
    return at(name, node,
              "expected at most " + std::to_string(function.input_size()) + " inputs and " +
                  std::to_string(function.output_size()) + " outputs as in the function, found " +
                  std::to_string(node.input_size()) + " and " + std::to_string(node.output_size()));
  }
  body.prefix = name + "/";
  body.origin_name = scope.origin_name.empty() ? name : scope.origin_name;
  body.origin_type = scope.origin_type.empty() ? node.op_type() : scope.origin_type;
  for (const auto& opset : function.opset_import()) {
    body.opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = opset.version();
  }
  for (const auto& formal : function.attribute()) body.attributes[formal] = nullptr;
  for (const auto& formal : function.attribute_proto()) body.attributes[formal.name()] = &formal;
  for (const auto& actual : node.attribute()) body.attributes[actual.name()] = &actual;
  for (int i = 0; i < function.input_size(); ++i) {
    const bool given = i < node.input_size() && !node.input(i).empty();
    body.values[function.input(i)] = given ? scope.find(node.input(i)) : ValueId();
  }
  const std::vector<std::string> outer = outer_names(node, scope);
  for (int i = 0; i < node.output_size(); ++i) {
    body.outer_names.emplace(function.output(i), outer[static_cast<std::size_t>(i)]);
  }
  Nodes nodes = function.node();
  for (auto& inner : nodes) bind_attributes(inner, body);
  AUTOPAR_RETURN_IF_ERROR(run_nodes(nodes, body));
  for (int i = 0; i < node.output_size(); ++i) {
    AUTOPAR_RETURN_IF_ERROR(bind_result(function.output(i), body, node.output(i),
                                        outer[static_cast<std::size_t>(i)], scope, name));
  }
  return Ok{};
}

Status Elaborator::run_if(onnx::NodeProto& node, Scope& scope, const std::string& name) {
  const ValueId id = node.input_size() == 1 ? scope.find(node.input(0)) : ValueId();
  const Tensor* condition = known(id);
  const auto values = condition ? int_values(*condition) : std::nullopt;
  if (!id.valid() || graph_.value(id).dtype != DType::kBool ||
      element_count(graph_.value(id).shape) != 1) {
    return at(name, node, "expected one bool as its condition");
  }
  if (!values) {
    return at(name, node,
              "its condition '" + graph_.value(id).name +
                  "' is not known at import; data-dependent control flow is not supported");
  }
  onnx::GraphProto* branch = nullptr;
  const std::string wanted = (*values)[0] ? "then_branch" : "else_branch";
  for (auto& attribute : *node.mutable_attribute()) {
    if (attribute.name() == wanted && attribute.has_g()) branch = attribute.mutable_g();
  }
  if (!branch || branch->output_size() != node.output_size()) {
    return at(name, node, "expected a " + wanted + " with as many outputs as the op has");
  }
  Scope body;
  body.parent = &scope;
  body.depth = scope.depth + 1;
  body.prefix = scope.prefix;
  body.origin_name = scope.origin_name;
  body.origin_type = scope.origin_type;
  body.opsets = scope.opsets;
  const std::vector<std::string> outer = outer_names(node, scope);
  for (int i = 0; i < node.output_size(); ++i) {
    body.outer_names.emplace(branch->output(i).name(), outer[static_cast<std::size_t>(i)]);
  }
  AUTOPAR_RETURN_IF_ERROR(add_initializers(*branch, body));
  AUTOPAR_RETURN_IF_ERROR(run_nodes(*branch->mutable_node(), body));
  for (int i = 0; i < node.output_size(); ++i) {
    AUTOPAR_RETURN_IF_ERROR(bind_result(branch->output(i).name(), body, node.output(i),
                                        outer[static_cast<std::size_t>(i)], scope, name));
  }
  return Ok{};
}

// The names in the graph of a call's outputs; for absent ones, a name that is not used.
std::vector<std::string> Elaborator::outer_names(const onnx::NodeProto& node, const Scope& scope) {
  std::vector<std::string> names;
  for (const auto& output : node.output()) {
    names.push_back(output.empty() ? value_names_.unique("unused") : value_name(output, scope));
  }
  return names;
}

// Makes the body's value `inner` the caller's `outer`, whose name in the graph is `name`. Where the
// body only passes a value on, or gives it out twice, an Identity stands for the second name.
Status Elaborator::bind_result(const std::string& inner, const Scope& body,
                               const std::string& outer, const std::string& name, Scope& scope,
                               const std::string& op_name) {
  if (outer.empty()) return Ok{};
  const ValueId id = body.find(inner);
  if (!id.valid()) {
    return input_error("op '" + op_name + "': its body does not produce '" + inner + "'");
  }
  if (graph_.value(id).name == name) {
    scope.values.emplace(outer, id);
    return Ok{};
  }
  Op op;
  op.type = "Identity";
  op.inputs = {id};
  onnx::NodeProto node;
  node.set_op_type("Identity");
  node.add_output(outer);
  const std::vector<OutputType> outputs = {{graph_.value(id).dtype, graph_.value(id).shape}};
  emit(node, std::move(op), outputs, scope, op_names_.unique(op_name + "/" + outer));
  return Ok{};
}

}  // namespace autopar
