#include "io/import/infer.hpp"

#include <onnx/defs/data_type_utils.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <memory>
#include <string>

#include "io/import/proto_tensor.hpp"
#include "io/import/shape_check.hpp"

namespace autopar {
namespace {

// The view that ONNX's inference functions have of a node. Data is converted when asked for.
class NodeContext final : public onnx::InferenceContext {
 public:
  NodeContext(const onnx::NodeProto& node, const std::vector<NodeInput>& inputs)
      : node_(node), inputs_(inputs), data_(inputs.size()) {
    outputs.resize(static_cast<std::size_t>(node.output_size()));
  }

  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    for (const auto& attribute : node_.attribute()) {
      if (attribute.name() == name) return &attribute;
    }
    return nullptr;
  }
  std::size_t getNumInputs() const override { return inputs_.size(); }
  const onnx::TypeProto* getInputType(std::size_t index) const override {
    return inputs_.at(index).type;
  }
  const onnx::TensorProto* getInputData(std::size_t index) const override {
    const Tensor* tensor = inputs_.at(index).data;
    if (!tensor || element_count(tensor->shape) > kMaxOperandElements) return nullptr;
    auto& proto = data_[index];
    if (!proto) proto = std::make_unique<onnx::TensorProto>(to_proto(*tensor));
    return proto.get();
  }
  std::size_t getNumOutputs() const override { return outputs.size(); }
  onnx::TypeProto* getOutputType(std::size_t index) override { return &outputs.at(index); }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string&) override {
    throw onnx::InferenceError("subgraphs are not supported");
  }
  const onnx::SparseTensorProto* getInputSparseData(std::size_t) const override { return nullptr; }
  const onnx::TensorShapeProto* getSymbolicInput(std::size_t) const override { return nullptr; }

  std::vector<onnx::TypeProto> outputs;

 private:
  const onnx::NodeProto& node_;
  const std::vector<NodeInput>& inputs_;
  mutable std::vector<std::unique_ptr<onnx::TensorProto>> data_;
};

// ONNX's inference divides by these without looking.
Status check_positive(const onnx::NodeProto& node) {
  static constexpr std::array<const char*, 10> kPositive = {
      "strides",     "dilations",  "kernel_shape",   "group",       "blocksize",
      "num_outputs", "num_groups", "output_padding", "q_num_heads", "kv_num_heads"};
  for (const auto& attribute : node.attribute()) {
    const bool listed = std::any_of(kPositive.begin(), kPositive.end(),
                                    [&](const char* name) { return attribute.name() == name; });
    if (!listed) continue;
    const std::int64_t least = attribute.name() == "output_padding" ? 0 : 1;
    const auto bad = [&](std::int64_t v) { return v < least || v > (std::int64_t{1} << 40); };
    if ((attribute.type() == onnx::AttributeProto::INT && bad(attribute.i())) ||
        std::any_of(attribute.ints().begin(), attribute.ints().end(), bad)) {
      return input_error("attribute '" + attribute.name() +
                         "' is out of range: expected at least " + std::to_string(least));
    }
  }
  return Ok{};
}

onnx::DataType type_string(DType dtype) {
  static const auto kStrings = [] {
    std::array<onnx::DataType, 13> strings{};
    for (std::size_t i = 0; i < strings.size(); ++i) {
      onnx::TypeProto proto;
      proto.mutable_tensor_type()->set_elem_type(onnx_dtype_of(static_cast<DType>(i)));
      strings[i] = onnx::Utils::DataTypeUtils::ToType(proto);
    }
    return strings;
  }();
  return kStrings[static_cast<std::size_t>(dtype)];
}

std::string count_text(int least, int most) {
  if (least == most) return std::to_string(least);
  return most == std::numeric_limits<int>::max()
             ? "at least " + std::to_string(least)
             : std::to_string(least) + " to " + std::to_string(most);
}

Status check_counts(const onnx::OpSchema& schema, const onnx::NodeProto& node) {
  const auto check = [](const char* what, int found, int least, int most) -> Status {
    if (found >= least && found <= most) return Ok{};
    return input_error(std::string("expected ") + count_text(least, most) + " " + what +
                       ", found " + std::to_string(found));
  };
  AUTOPAR_RETURN_IF_ERROR(
      check("inputs", node.input_size(), schema.min_input(), schema.max_input()));
  return check("outputs", node.output_size(), schema.min_output(), schema.max_output());
}

// Without ONNX's "[ShapeInferenceError] " and the like.
std::string plain(const std::string& message) {
  const auto end = message.find("] ");
  return message.empty() || message[0] != '[' || end == std::string::npos ? message
                                                                          : message.substr(end + 2);
}

// Element types of the inputs: each allowed by the schema, and equal where the schema says so.
Status check_input_types(const onnx::OpSchema& schema, const std::vector<NodeInput>& inputs) {
  std::vector<std::pair<const std::string*, DType>> bound;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].type) continue;
    const auto& formals = schema.inputs();
    const auto& formal = formals[std::min(i, formals.size() - 1)];
    const auto dtype = dtype_of_onnx(inputs[i].type->tensor_type().elem_type());
    if (!dtype) return input_error("input " + std::to_string(i) + " has an unsupported type");
    if (!formal.GetTypes().empty() && formal.GetTypes().count(type_string(*dtype)) == 0) {
      return input_error("input " + std::to_string(i) + " (" + formal.GetName() + ") is " +
                         name_of(*dtype) + ", which " + schema.Name() + " of opset version " +
                         std::to_string(schema.since_version()) + " does not take");
    }
    if (!formal.GetIsHomogeneous()) continue;
    for (const auto& [type_name, other] : bound) {
      if (*type_name == formal.GetTypeStr() && other != *dtype) {
        return input_error("input " + std::to_string(i) + " (" + formal.GetName() + ") is " +
                           name_of(*dtype) + " but an earlier input of the same type is " +
                           name_of(other));
      }
    }
    bound.emplace_back(&formal.GetTypeStr(), *dtype);
  }
  return Ok{};
}

void run_inference(const onnx::OpSchema& schema, onnx::InferenceContext& context) {
  if (schema.has_type_and_shape_inference_function()) {
    schema.GetTypeAndShapeInferenceFunction()(context);
  } else if (schema.HasFunction()) {
    onnx::shape_inference::InferShapeForFunctionNode(*schema.GetFunction(),
                                                     onnx::OpSchemaRegistry::Instance(), context);
  } else if (schema.Name() == "GroupNormalization") {
    onnx::propagateShapeAndTypeFromFirstInput(context);
  }
  // Nothing else to go by: an output whose type variable an input binds.
  const auto& formals = schema.outputs();
  for (std::size_t i = 0; i < context.getNumOutputs() && !formals.empty(); ++i) {
    onnx::TypeProto* output = context.getOutputType(i);
    if (output->value_case() != onnx::TypeProto::VALUE_NOT_SET) continue;
    const auto& formal = formals[std::min(i, formals.size() - 1)];
    for (std::size_t j = 0; j < context.getNumInputs() && !schema.inputs().empty(); ++j) {
      const auto& input = schema.inputs()[std::min(j, schema.inputs().size() - 1)];
      if (context.getInputType(j) && input.GetTypeStr() == formal.GetTypeStr()) {
        output->mutable_tensor_type()->set_elem_type(
            context.getInputType(j)->tensor_type().elem_type());
        break;
      }
    }
  }
}

}  // namespace

std::optional<Shape> static_shape(const onnx::TypeProto& type) {
  if (!type.tensor_type().has_shape()) return std::nullopt;
  Shape shape;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    if (!dim.has_dim_value()) return std::nullopt;
    shape.push_back(dim.dim_value());
  }
  return shape;
}

Result<std::vector<onnx::TypeProto>> infer_types(const onnx::OpSchema& schema,
                                                 const onnx::NodeProto& node,
                                                 const std::vector<NodeInput>& inputs) {
  NodeContext context(node, inputs);
  try {
    AUTOPAR_RETURN_IF_ERROR(check_counts(schema, node));
    schema.Verify(node);
    AUTOPAR_RETURN_IF_ERROR(check_positive(node));
    AUTOPAR_RETURN_IF_ERROR(check_input_types(schema, inputs));
    run_inference(schema, context);
    AUTOPAR_RETURN_IF_ERROR(check_shapes(schema, node, inputs, context.outputs));
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the model
  } catch (const std::exception& error) {
    return input_error(plain(error.what()));
  }
  return std::move(context.outputs);
}

}  // namespace autopar
