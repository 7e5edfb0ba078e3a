// What ONNX's checker and shape inference are told of the ops of the dialects, which it does not
// know.
#include <onnx/defs/schema.h>
#include <onnx/defs/shape_inference.h>

#include <mutex>

#include "io/export/dialects/dialect.hpp"

namespace autopar {
namespace {

using onnx::AttributeProto;
using onnx::OpSchema;

// The output is the input with one dimension times or over the ranks.
void infer(onnx::InferenceContext& context, std::int64_t axis, std::int64_t factor,
           std::int64_t divisor) {
  onnx::propagateElemTypeFromInputToOutput(context, 0, 0);
  if (!onnx::hasInputShape(context, 0)) return;
  onnx::TensorShapeProto shape = onnx::getInputShape(context, 0);
  if (axis < 0 || axis >= shape.dim_size()) fail_shape_inference("no dimension ", axis);
  auto* dim = shape.mutable_dim(static_cast<int>(axis));
  if (dim->has_dim_value()) {
    if (dim->dim_value() % divisor != 0)
      fail_shape_inference("dimension ", axis, " is not divisible");
    dim->set_dim_value(dim->dim_value() / divisor * factor);
  }
  *onnx::getOutputShape(context, 0) = shape;
}

OpSchema unary(const char* name, const char* domain) {
  OpSchema schema;
  schema.SetName(name).SetDomain(domain).SinceVersion(1).SetDoc("A collective.");
  schema.Input(0, "input", "A rank's part.", "T").Output(0, "output", "A rank's result.", "T");
  schema.TypeConstraint("T", OpSchema::all_tensor_types_ir4(), "Any tensor.");
  return schema;
}

OpSchema dist_collective() {
  OpSchema schema = unary("DistCollective", "");
  schema.Attr("collective_operation", "all_reduce, ...", AttributeProto::STRING, true);
  schema.Attr("reduce_op", "none, sum, ...", AttributeProto::STRING, true);
  schema.Attr("root", "-1 where there is none.", AttributeProto::INT, true);
  schema.Attr("groups", "The ranks that take part, in order.", AttributeProto::INTS, true);
  schema.Attr("group_size", "How many.", AttributeProto::INT, true);
  schema.Attr("nb_rank", "How many.", AttributeProto::INT, true);
  schema.TypeAndShapeInferenceFunction([](onnx::InferenceContext& context) {
    const std::string operation =
        onnx::getAttribute(context, "collective_operation", std::string());
    const std::int64_t n = onnx::getAttribute(context, "nb_rank", std::int64_t{1});
    if (operation == "all_reduce" || operation == "broadcast") {
      onnx::propagateShapeAndTypeFromFirstInput(context);
      return;
    }
    infer(context, 0,
          operation == "all_gather"   ? n
          : operation == "all_to_all" ? n
                                      : 1,
          operation == "all_gather" ? 1 : n);
  });
  return schema;
}

OpSchema contrib(const char* name) {
  OpSchema schema = unary(name, "com.microsoft");
  const bool gathers = schema.Name() == "AllGather", reduces = schema.Name() == "AllReduce";
  if (gathers) schema.Attr("axis", "The dimension that is gathered.", AttributeProto::INT, true);
  if (!reduces) schema.Attr("group_size", "All ranks.", AttributeProto::INT, true);
  schema.TypeAndShapeInferenceFunction([gathers](onnx::InferenceContext& context) {
    if (!gathers) {
      onnx::propagateShapeAndTypeFromFirstInput(context);
      return;
    }
    infer(context, onnx::getAttribute(context, "axis", std::int64_t{0}),
          onnx::getAttribute(context, "group_size", std::int64_t{1}), 1);
  });
  return schema;
}

}  // namespace

void register_dialect_schemas() {
  static std::once_flag once;
  std::call_once(once, [] {
    onnx::OpSchemaRegistry::DomainToVersionRange::Instance().AddDomainToVersion("com.microsoft", 1,
                                                                                1);
    onnx::RegisterSchema(dist_collective(), 0, true, true);
    for (const char* name : {"AllReduce", "AllGather", "AllToAll"}) {
      onnx::RegisterSchema(contrib(name), 0, true, true);
    }
  });
}

}  // namespace autopar
