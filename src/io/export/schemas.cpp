// What ONNX's checker and shape inference know about the ops of ai.autopar.
#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>

#include <mutex>
#include <string>

#include "autopar/partition.hpp"
#include "io/export/model_proto.hpp"

namespace autopar {
namespace {

struct Row {
  const char* type;
  const char* doc;
  std::vector<const char*> required;  // int attributes besides the common ones
  bool reduces = false;
  bool message = false;  // Send, Recv: groups are pairs, mesh_axes may be absent
};

const std::vector<Row>& schema_rows() {
  static const std::vector<Row> table = {
      {"AllReduce", "The reduction over the group.", {}, true, false},
      {"AllGather", "The group's inputs concatenated along axis.", {"axis"}, false, false},
      {"ReduceScatter",
       "Of the reduction, the part at the rank's position.",
       {"axis"},
       true,
       false},
      {"AllToAll",
       "The parts meant for this position, concatenated.",
       {"split_axis", "concat_axis"},
       false,
       false},
      {"Broadcast", "The root's input.", {"root"}, false, false},
      {"Permute",
       "The input of the rank shift positions before, round the group.",
       {"shift"},
       false,
       false},
      {"ShardSlice", "Of its own input, the part at the rank's position.", {"axis"}, false, false},
      {"Send", "To the second rank of the pair; gives its input back.", {}, false, true},
      {"Recv", "From the first rank of the pair; zeros on other ranks.", {}, false, true},
  };
  return table;
}

bool receives(const Row& row) { return row.type == std::string("Recv"); }

void infer_received(onnx::InferenceContext& context) {
  const std::int64_t dtype = onnx::getAttribute(context, "dtype", std::int64_t{0});
  const onnx::AttributeProto* shape = context.getAttribute("shape");
  if (!onnx::TensorProto_DataType_IsValid(static_cast<int>(dtype)) || dtype == 0) {
    fail_type_inference("Recv: dtype ", dtype, " is no element type");
  }
  onnx::updateOutputElemType(context, 0, static_cast<std::int32_t>(dtype));
  auto* output = onnx::getOutputShape(context, 0);
  output->clear_dim();
  for (std::int64_t extent : shape->ints()) {
    if (extent < 0) fail_shape_inference("Recv: shape has the negative extent ", extent);
    output->add_dim()->set_dim_value(extent);
  }
}

void infer(const Row& row, onnx::InferenceContext& context) {
  if (receives(row)) return infer_received(context);
  onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  if (!onnx::hasInputShape(context, 0)) return;
  Shape input;
  for (const auto& dim : onnx::getInputShape(context, 0).dim()) {
    if (!dim.has_dim_value()) return;
    input.push_back(dim.dim_value());
  }
  Op op;
  op.type = row.type;
  op.domain = kCollectiveDomain;
  for (const char* name : row.required) {
    std::int64_t axis = onnx::getAttribute(context, name, std::int64_t{-1});
    if (axis < 0) axis += static_cast<std::int64_t>(input.size());  // from the end
    op.attributes[name] = axis;
  }
  const Result<Shape> shape = collective_output_shape(
      op, onnx::getAttribute(context, "group_size", std::int64_t{-1}), input);
  if (!shape) {
    fail_shape_inference(shape.error().message);
  }
  auto* output = onnx::getOutputShape(context, 0);
  output->clear_dim();
  for (std::int64_t extent : *shape) output->add_dim()->set_dim_value(extent);
}

onnx::OpSchema schema_of(const Row& row) {
  using onnx::AttributeProto;
  using onnx::OpSchema;
  OpSchema schema;
  schema.SetName(row.type).SetDomain(kCollectiveDomain).SinceVersion(1).SetDoc(row.doc);
  schema.Attr("groups", "All groups' ranks, flattened.", AttributeProto::INTS, true);
  // Of what a plan always has, a graph that was written by hand may leave some out.
  schema.Attr("group_size", "Ranks per group.", AttributeProto::INT, !row.message);
  schema.Attr("mesh_axes", "The mesh axes that a group runs along.", AttributeProto::STRINGS,
              false);
  schema.Attr("seq", "Order of issue.", AttributeProto::INT, false);
  for (const char* name : row.required) {
    schema.Attr(name, "A dimension, or a position.", AttributeProto::INT,
                name != std::string("root"));
  }
  if (row.reduces) {
    schema.Attr("reduce_op", "sum, max, min, prod, avg.", AttributeProto::STRING, false);
  }
  if (row.message) {
    schema.Attr("tag", "The same in the Send and the Recv of a message.", AttributeProto::INT,
                std::int64_t{0});
  }
  if (receives(row)) {
    schema.Attr("shape", "Of what arrives.", AttributeProto::INTS, true);
    schema.Attr("dtype", "The element type of what arrives.", AttributeProto::INT, true);
  } else {
    schema.Input(0, "input", "A rank's part.", "T");
  }
  schema.Input(receives(row) ? 0 : 1, "after", "Only orders this op.", "V", OpSchema::Variadic,
               false, 0);
  schema.Output(0, "output", "A rank's result.", "T");
  schema.TypeConstraint("T", OpSchema::all_tensor_types_ir4(), "Any tensor.");
  schema.TypeConstraint("V", OpSchema::all_tensor_types_ir4(), "Any tensor.");
  schema.TypeAndShapeInferenceFunction(
      [&row](onnx::InferenceContext& context) { infer(row, context); });
  return schema;
}

}  // namespace

void register_collective_schemas() {
  static std::once_flag once;
  std::call_once(once, [] {
    onnx::OpSchemaRegistry::DomainToVersionRange::Instance().AddDomainToVersion(kCollectiveDomain,
                                                                                1, 1);
    for (const Row& row : schema_rows()) onnx::RegisterSchema(schema_of(row), 0, true, true);
  });
}

}  // namespace autopar
