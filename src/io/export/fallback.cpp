// A function is per op type, and what depends on a node (its axis, the size of its group) is read
// from the node's attributes in the body. FunctionProto.overload would need a body per node kind
// and IR 10 in the reader.
#include "io/export/fallback.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {
namespace {

class Body {
 public:
  explicit Body(onnx::FunctionProto& function) : function_(function) {}

  std::string add(const char* type, const std::vector<std::string>& inputs,
                  std::string output = "") {
    onnx::NodeProto& node = *function_.add_node();
    if (output.empty()) output = "v" + std::to_string(function_.node_size());
    node.set_name(function_.name() + "/" + output);
    node.set_op_type(type);
    for (const std::string& input : inputs) node.add_input(input);
    node.add_output(output);
    return output;
  }

  // An attribute of the calling node, as a vector of one number.
  std::string attribute(const char* name) {
    const std::string scalar = add("Constant", {});
    onnx::AttributeProto& value = *last().add_attribute();
    value.set_name("value_int");
    value.set_type(onnx::AttributeProto::INT);
    value.set_ref_attr_name(name);
    return add("Reshape", {scalar, number(1)});
  }

  std::string number(std::int64_t value) {
    const std::string result = add("Constant", {});
    onnx::AttributeProto& attribute = *last().add_attribute();
    attribute.set_name("value_ints");
    attribute.set_type(onnx::AttributeProto::INTS);
    attribute.add_ints(value);
    return result;
  }

  // The first of group_size parts along `axis`.
  std::string first_part(const std::string& input, const std::string& axis,
                         const std::string& output) {
    const std::string shape = add("Shape", {input});
    const std::string extent = add("Gather", {shape, axis});
    const std::string end = add("Div", {extent, attribute("group_size")});
    return add("Slice", {input, number(0), end, axis}, output);
  }

  // `input` as often as there are ranks in the group, along `axis`.
  std::string repeated(const std::string& input, const std::string& axis,
                       const std::string& output) {
    const std::string rank = add("Shape", {add("Shape", {input})});
    const std::string ones = add("ConstantOfShape", {rank});
    onnx::AttributeProto& value = *last().add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    value.mutable_t()->set_data_type(onnx::TensorProto::INT64);
    value.mutable_t()->add_dims(1);
    value.mutable_t()->add_int64_data(1);
    const std::string repeats = add("ScatterElements", {ones, axis, attribute("group_size")});
    return add("Tile", {input, repeats}, output);
  }

 private:
  onnx::NodeProto& last() { return *function_.mutable_node(function_.node_size() - 1); }
  onnx::FunctionProto& function_;
};

void write_body(onnx::FunctionProto& function) {
  Body body(function);
  const std::string& type = function.name();
  if (type == "AllGather") {
    body.repeated("input", body.attribute("axis"), "output");
  } else if (type == "ReduceScatter" || type == "ShardSlice") {
    body.first_part("input", body.attribute("axis"), "output");
  } else if (type == "AllToAll") {
    const std::string part = body.first_part("input", body.attribute("split_axis"), "part");
    body.repeated(part, body.attribute("concat_axis"), "output");
  } else {
    body.add("Identity", {"input"}, "output");
  }
}

bool has_input(const std::string& type) { return type != "Recv"; }

}  // namespace

void add_fallback_functions(onnx::ModelProto& model) {
  struct Kind {
    int inputs = 1;
    std::set<std::string> attributes;
  };
  std::map<std::string, Kind> kinds;
  for (const auto& node : model.graph().node()) {
    if (node.domain() != kCollectiveDomain || !has_input(node.op_type())) continue;
    Kind& kind = kinds[node.op_type()];
    kind.inputs = std::max(kind.inputs, node.input_size());
    for (const auto& attribute : node.attribute()) kind.attributes.insert(attribute.name());
  }
  for (const auto& [type, kind] : kinds) {
    onnx::FunctionProto& function = *model.add_functions();
    function.set_name(type);
    function.set_domain(kCollectiveDomain);
    function.set_doc_string(
        "Stands in for a collective: right only where its groups have one rank.");
    for (const auto& import : model.opset_import()) {
      if (import.domain().empty()) *function.add_opset_import() = import;
    }
    function.add_input("input");
    for (int i = 1; i < kind.inputs; ++i) function.add_input("after" + std::to_string(i));
    function.add_output("output");
    for (const std::string& attribute : kind.attributes) function.add_attribute(attribute);
    write_body(function);
  }
  auto* entry = model.add_metadata_props();
  entry->set_key("autopar.fallback_functions");
  entry->set_value(
      "the functions of ai.autopar in this file let any runtime load it; what they compute is "
      "WRONG on more than one rank");
}

}  // namespace autopar
