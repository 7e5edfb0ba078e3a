#include "io/import/infer.hpp"

#include <onnx/defs/data_type_utils.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "io/import/proto_tensor.hpp"
#include "ops/equation.hpp"
#include "ops/table.hpp"

namespace autopar {
namespace {

// Operands whose values decide shapes have a few elements; larger data is not handed out.
constexpr std::int64_t kMaxOperandElements = 4096;

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

// ONNX lets a Reshape pass whose constant target holds another number of elements.
Status check_reshape(const onnx::NodeProto& node, const std::vector<NodeInput>& inputs,
                     const onnx::TypeProto& output) {
  if (node.op_type() != "Reshape" || inputs.empty() || !inputs[0].type) return Ok{};
  const auto from = static_shape(*inputs[0].type), to = static_shape(output);
  if (!from || !to || element_count(*from) == element_count(*to)) return Ok{};
  return input_error("cannot give " + to_text(*from) + " the shape " + to_text(*to) +
                     ", which has another number of elements");
}

// ONNX looks at the data of a scatter alone.
Status check_scatter(const onnx::NodeProto& node, const std::vector<NodeInput>& inputs) {
  const bool by_rows = node.op_type() == "ScatterND";
  if ((!by_rows && node.op_type() != "ScatterElements") || inputs.size() < 3) return Ok{};
  std::array<std::optional<Shape>, 3> shapes;
  for (std::size_t i = 0; i < 3; ++i) {
    if (inputs[i].type != nullptr) shapes[i] = static_shape(*inputs[i].type);
    if (!shapes[i]) return Ok{};
  }
  const auto& [data, indices, updates] = shapes;
  Shape expected = *indices;
  if (by_rows) {
    const std::int64_t depth = indices->empty() ? 0 : indices->back();
    if (depth < 1 || depth > static_cast<std::int64_t>(data->size())) {
      return input_error("its indices " + to_text(*indices) + " into " + to_text(*data) +
                         " expect 1 to " + std::to_string(data->size()) +
                         " numbers in their last dimension");
    }
    expected.pop_back();
    expected.insert(expected.end(), data->begin() + depth, data->end());
  }
  if (*updates == expected) return Ok{};
  return input_error("its updates are " + to_text(*updates) + "; for " + to_text(*data) +
                     " and indices " + to_text(*indices) + " expected " + to_text(expected));
}

std::int64_t int_of(const onnx::NodeProto& node, const std::string& name, std::int64_t otherwise) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return attribute.i();
  }
  return otherwise;
}

std::vector<std::int64_t> ints_of(const onnx::NodeProto& node, const std::string& name) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == name) return {attribute.ints().begin(), attribute.ints().end()};
  }
  return {};
}

// The largest number where the product is larger.
std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<std::int64_t>::max()
                                                : product;
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

// The shapes of a node's inputs, held against patterns of words, one for each dimension:
//   channels          the same size wherever the word stands
//   group*channels    a product; words that name an attribute have its value, numbers their own
//   channels?         that, or 1
//   _                 any size
//   d...              what is left, called d0, d1, ...; without a name any sizes
//   # channels        that, or one number
class ShapeCheck {
 public:
  ShapeCheck(const onnx::OpSchema& schema, const onnx::NodeProto& node,
             const std::vector<NodeInput>& inputs, const std::vector<onnx::TypeProto>& outputs)
      : schema_(schema), node_(node), inputs_(inputs), outputs_(outputs) {}

  const onnx::NodeProto& node() const { return node_; }
  std::int64_t version() const { return schema_.since_version(); }
  // Of an input whose numbers are known.
  std::optional<std::vector<std::int64_t>> ints(std::size_t port) const {
    const Tensor* tensor = port < inputs_.size() ? inputs_[port].data : nullptr;
    if (tensor == nullptr || element_count(tensor->shape) > kMaxOperandElements) {
      return std::nullopt;
    }
    return int_values(*tensor);
  }
  std::optional<Shape> output() const {
    return outputs_.empty() ? std::nullopt : static_shape(outputs_.front());
  }
  std::optional<Shape> shape(std::size_t port) const {
    if (port >= inputs_.size() || inputs_[port].type == nullptr) return std::nullopt;
    return static_shape(*inputs_[port].type);
  }
  std::string name_of_input(std::size_t port) const {
    const auto& formals = schema_.inputs();
    return "input " + std::to_string(port) + " (" +
           formals[std::min(port, formals.size() - 1)].GetName() + ")";
  }
  void set(const std::string& word, std::int64_t value, const std::string& reason) {
    sizes_[word] = {value, {reason}};
  }
  void set_rest(const std::string& word, std::size_t count) { rests_[word] = count; }

  Status match(std::size_t port, const std::string& pattern) {
    const auto found = shape(port);
    if (!found) return Ok{};
    std::vector<std::string> words = split_at(pattern, ' ');
    const bool or_number = !words.empty() && words.front() == "#";
    if (or_number) words.erase(words.begin());
    if (or_number && found->size() <= 1 && element_count(*found) == 1) return Ok{};
    name_rest(found->size(), words);
    if (words.size() != found->size()) {
      return input_error("its " + name_of_input(port) + " is " + to_text(*found) + ", of " +
                         std::to_string(found->size()) + " dimensions; expected " +
                         expected_rank(pattern, words.size()));
    }
    for (std::size_t d = 0; d < words.size(); ++d) {
      AUTOPAR_RETURN_IF_ERROR(match_dim(port, d, (*found)[d], words[d]));
    }
    return Ok{};
  }

 private:
  struct Size {
    std::int64_t value = 1;
    std::vector<std::string> reasons;
  };

  // The words of "d..." in place of it: as many as there were before, or as are left.
  void name_rest(std::size_t rank, std::vector<std::string>& words) {
    if (words.empty() || words.back().find("...") == std::string::npos) return;
    const std::string word = words.back().substr(0, words.back().size() - 3);
    words.pop_back();
    std::size_t count = rank > words.size() ? rank - words.size() : 0;
    if (!word.empty()) count = rests_.emplace(word, count).first->second;
    for (std::size_t i = 0; i < count; ++i) {
      words.push_back(word.empty() ? "_" : word + std::to_string(i));
    }
  }

  static std::string expected_rank(const std::string& pattern, std::size_t count) {
    if (pattern == "#") return "one number";
    if (pattern.rfind("# ", 0) == 0)
      return "one number, or " + expected_rank(pattern.substr(2), count);
    const bool open = pattern.find(" ...") != std::string::npos;
    return std::string(open ? "at least " : "") + std::to_string(count) + ": " + pattern;
  }

  std::optional<Size> size_of(const std::string& word) const {
    if (word[0] >= '0' && word[0] <= '9') return Size{std::stoll(word), {}};
    if (const auto found = sizes_.find(word); found != sizes_.end()) return found->second;
    const auto attribute = schema_.attributes().find(word);
    if (attribute == schema_.attributes().end()) return std::nullopt;
    const auto& standard = attribute->second.default_value;
    const std::int64_t value = int_of(node_, word, standard.has_i() ? standard.i() : 0);
    if (value == 0) return std::nullopt;  // nothing is said
    return Size{value, {word + " is " + std::to_string(value)}};
  }

  Status match_dim(std::size_t port, std::size_t d, std::int64_t found, std::string word) {
    if (word == "_") return Ok{};
    const bool may_be_one = word.back() == '?';
    if (may_be_one) word.pop_back();
    if (may_be_one && found == 1) return Ok{};
    const std::string where = "dimension " + std::to_string(d) + " of ";
    const std::string is = " is " + std::to_string(found);
    Size product;
    std::string unknown;
    for (const std::string& factor : split_at(word, '*')) {
      const auto size = size_of(factor);
      if (!size) {
        unknown = factor;
        continue;
      }
      product.value = times(product.value, size->value);
      for (const std::string& reason : size->reasons) {
        if (std::count(product.reasons.begin(), product.reasons.end(), reason) == 0) {
          product.reasons.push_back(reason);
        }
      }
    }
    if (!unknown.empty() && product.value > 0 && found % product.value == 0) {
      std::vector<std::string> reasons = {where + name_of_input(port) + is};
      reasons.insert(reasons.end(), product.reasons.begin(), product.reasons.end());
      sizes_[unknown] = {found / product.value, std::move(reasons)};
      return Ok{};
    }
    if (unknown.empty() && found == product.value) return Ok{};
    std::string message = where + "its " + name_of_input(port) + is + "; expected ";
    message += (unknown.empty() ? "" : "a multiple of ") + std::to_string(product.value);
    message += (may_be_one && product.value != 1 ? " or 1 (" : " (") + word + ")";
    for (std::size_t i = 0; i < product.reasons.size(); ++i) {
      message += (i == 0 ? ", since " : " and ") + product.reasons[i];
    }
    return input_error(message);
  }

  const onnx::OpSchema& schema_;
  const onnx::NodeProto& node_;
  const std::vector<NodeInput>& inputs_;
  const std::vector<onnx::TypeProto>& outputs_;
  std::map<std::string, Size> sizes_;
  std::map<std::string, std::size_t> rests_;
};

Status match_all(ShapeCheck& check, const std::vector<std::string>& patterns) {
  for (std::size_t port = 0; port < patterns.size(); ++port) {
    if (!patterns[port].empty()) AUTOPAR_RETURN_IF_ERROR(check.match(port, patterns[port]));
  }
  return Ok{};
}

// The last `rank` of the words, each of which may be 1: what broadcasts to them.
std::string broadcast_to(const std::vector<std::string>& words, std::size_t rank) {
  std::string pattern;
  for (std::size_t d = words.size() - std::min(rank, words.size()); d < words.size(); ++d) {
    pattern += (pattern.empty() ? "" : " ") + words[d] + "?";
  }
  return pattern;
}

std::vector<std::string> numbered(const std::string& word, std::size_t count) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < count; ++i) words.push_back(word + std::to_string(i));
  return words;
}

// Where an op's axis lies, for ops whose axis ONNX takes as it is.
Result<std::size_t> axis_in_range(const ShapeCheck& check, std::int64_t otherwise) {
  const Shape data = check.shape(0).value_or(Shape{});
  const std::int64_t axis = int_of(check.node(), "axis", otherwise);
  if (const auto d = normal_axis(axis, data.size())) return *d;
  const std::int64_t rank = static_cast<std::int64_t>(data.size());
  return input_error("attribute 'axis' is " + std::to_string(axis) + "; expected " +
                     std::to_string(-rank) + " to " + std::to_string(rank - 1) + ", since its " +
                     check.name_of_input(0) + " is " + to_text(data));
}

Status check_axis(ShapeCheck& check) {
  AUTOPAR_TRY(axis, axis_in_range(check, -1));
  static_cast<void>(axis);
  return Ok{};
}

// Kernels have the extents that the attribute says, where it is there, and fit into the image.
Status check_kernel(ShapeCheck& check, std::size_t image,
                    const std::vector<std::string>& patterns) {
  const auto kernel = ints_of(check.node(), "kernel_shape");
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    check.set("kernel" + std::to_string(i), kernel[i], "kernel_shape is " + to_text(kernel));
  }
  const auto shape = check.shape(image), output = check.output();
  if (shape && shape->size() > 2) check.set_rest("kernel", shape->size() - 2);
  AUTOPAR_RETURN_IF_ERROR(match_all(check, patterns));
  if (!shape || !output || element_count(*shape) == 0) return Ok{};
  for (std::size_t d = 2; d < output->size(); ++d) {
    if ((*output)[d] > 0) continue;
    return input_error("dimension " + std::to_string(d) + " of its " + check.name_of_input(image) +
                       " is " + std::to_string((*shape)[d]) +
                       "; expected, with the padding, at least the extent of the kernel");
  }
  return Ok{};
}

Status check_conv(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "group*features"});
}

Status check_conv_transpose(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*channels features kernel...", "group*features"});
}

Status check_conv_integer(ShapeCheck& check) {
  return check_kernel(
      check, 0,
      {"batch group*channels ...", "group*features channels kernel...", "#", "# group*features"});
}

Status check_quantised_conv(ShapeCheck& check) {
  return check_kernel(check, 0,
                      {"batch group*channels ...", "#", "#", "group*features channels kernel...",
                       "# group*features", "# group*features", "#", "#", "group*features"});
}

Status check_deformable(ShapeCheck& check) {
  const auto output = check.output();
  if (output && output->size() == 4) {
    check.set("rows", (*output)[2], "its output is " + to_text(*output));
    check.set("columns", (*output)[3], "its output is " + to_text(*output));
  }
  return check_kernel(check, 0,
                      {"batch group*channels height width", "group*features channels kernel...",
                       "batch offset_group*2*kernel0*kernel1 rows columns", "group*features",
                       "batch offset_group*kernel0*kernel1 rows columns"});
}

Status check_recurrent(ShapeCheck& check, const std::string& gates) {
  bool both = false;
  for (const auto& attribute : check.node().attribute()) {
    both = both || (attribute.name() == "direction" && attribute.s() == "bidirectional");
  }
  check.set("directions", both ? 2 : 1, both ? "it is bidirectional" : "it has one direction");
  const bool batch_first = int_of(check.node(), "layout", 0) != 0;
  const std::string state =
      batch_first ? "batch directions hidden_size" : "directions batch hidden_size";
  return match_all(check, {batch_first ? "batch time inputs" : "time batch inputs",
                           "directions " + gates + "*hidden_size inputs",
                           "directions " + gates + "*hidden_size hidden_size",
                           "directions 2*" + gates + "*hidden_size", "batch", state, state,
                           "directions 3*hidden_size"});
}

Status check_rnn(ShapeCheck& check) { return check_recurrent(check, "1"); }
Status check_gru(ShapeCheck& check) { return check_recurrent(check, "3"); }
Status check_lstm(ShapeCheck& check) { return check_recurrent(check, "4"); }

// Scale and bias broadcast to the dimensions that they are aligned with.
Status check_layer(ShapeCheck& check) {
  const auto data = check.shape(0);
  if (!data) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(check_axis(check));
  AUTOPAR_RETURN_IF_ERROR(check.match(0, "d..."));
  for (const std::size_t port : {std::size_t{1}, std::size_t{2}}) {
    const auto shape = check.shape(port);
    if (!shape) continue;
    AUTOPAR_RETURN_IF_ERROR(
        check.match(port, broadcast_to(numbered("d", data->size()), shape->size())));
  }
  return Ok{};
}

Status check_gemm(ShapeCheck& check) {
  const bool a = int_of(check.node(), "transA", 0) != 0, b = int_of(check.node(), "transB", 0) != 0;
  const auto c = check.shape(2);
  return match_all(check, {a ? "inner rows" : "rows inner", b ? "columns inner" : "inner columns",
                           c ? broadcast_to({"rows", "columns"}, c->size()) : ""});
}

// The mask broadcasts to [batch, heads, queries, total]; since opset 24 it may end earlier.
Status check_attention_mask(ShapeCheck& check, std::int64_t keys) {
  const auto mask = check.shape(3);
  if (!mask) return Ok{};
  const auto past = check.shape(4);
  const std::int64_t total = keys + (past && past->size() == 4 ? (*past)[2] : 0);
  check.set("total", total, "there are " + std::to_string(total) + " keys with those of the past");
  std::vector<std::string> words = {"batch", "q_num_heads", "queries", "total"};
  std::string pattern = broadcast_to(words, mask->size());
  if (check.version() >= 24 && !mask->empty() && mask->back() < total) {
    pattern = pattern.substr(0, pattern.size() - std::string("total?").size()) + "_";
  }
  return check.match(3, pattern);
}

Status check_attention(ShapeCheck& check) {
  const auto query = check.shape(0), key = check.shape(1);
  if (!query || !key) return Ok{};
  const bool flat = query->size() == 3;
  const std::size_t token_dim = flat ? 1 : 2;
  if (flat) {
    AUTOPAR_RETURN_IF_ERROR(
        match_all(check, {"batch queries q_num_heads*head", "batch keys kv_num_heads*head",
                          "batch keys kv_num_heads*value"}));
  } else {
    AUTOPAR_RETURN_IF_ERROR(match_all(
        check,
        {"batch heads queries head", "batch kv_heads keys head", "batch kv_heads keys value"}));
  }
  const std::int64_t heads = flat ? int_of(check.node(), "q_num_heads", 0) : (*query)[1];
  const std::int64_t groups = flat ? int_of(check.node(), "kv_num_heads", 0) : (*key)[1];
  if (heads < 1 || groups < 1 || heads % groups != 0) {
    return input_error("its queries have " + std::to_string(heads) +
                       " heads; expected a multiple of the " + std::to_string(groups) +
                       " heads of its keys and values");
  }
  check.set("q_num_heads", heads, "its queries have " + std::to_string(heads) + " heads");
  check.set("kv_heads", groups, "its keys have " + std::to_string(groups) + " heads");
  AUTOPAR_RETURN_IF_ERROR(match_all(
      check, {"", "", "", "", "batch kv_heads past head", "batch kv_heads past value", "batch"}));
  return check_attention_mask(check, (*key)[token_dim]);
}

// Caches are looked up by the position of a token, or have a row for each.
Status check_rotary(ShapeCheck& check) {
  const auto data = check.shape(0);
  if (!data || data->empty()) return Ok{};
  const std::int64_t turned = int_of(check.node(), "rotary_embedding_dim", 0);
  std::string head = "2*half";
  if (turned != 0) {
    check.set("half", turned / 2, "rotary_embedding_dim is " + std::to_string(turned));
    head = "head";
  }
  const bool flat = data->size() == 3;
  if (!flat && turned > data->back()) {
    return input_error("attribute 'rotary_embedding_dim' is " + std::to_string(turned) +
                       "; expected at most dimension 3 of its " + check.name_of_input(0) + ", " +
                       std::to_string(data->back()));
  }
  if (flat && int_of(check.node(), "num_heads", 0) < 1) {
    return input_error("attribute 'num_heads' is out of range: expected at least 1, since its " +
                       check.name_of_input(0) + " has 3 dimensions");
  }
  const std::string cache = check.shape(3) ? "positions half" : "batch tokens half";
  return match_all(check, {flat ? "batch tokens num_heads*" + head : "batch heads tokens " + head,
                           cache, cache, "batch tokens"});
}

// A scale for the whole tensor, for each slice of one axis, or for each block along it.
Status check_scales(ShapeCheck& check) {
  const auto data = check.shape(0), scale = check.shape(1);
  if (!data || !scale) return Ok{};
  const std::int64_t block = int_of(check.node(), "block_size", 0);
  const bool one = scale->size() <= 1 && element_count(*scale) == 1;
  if (block == 0 && one) return check.match(2, "#");
  AUTOPAR_TRY(axis, axis_in_range(check, 1));
  const std::string along = "d" + std::to_string(axis);
  AUTOPAR_RETURN_IF_ERROR(check.match(0, "d..."));
  if (block == 0) return match_all(check, {"", along, along});
  if (block < 0) return input_error("attribute 'block_size' is out of range: expected at least 0");
  const std::int64_t blocks = (*data)[axis] / block + ((*data)[axis] % block != 0 ? 1 : 0);
  check.set(along, blocks,
            "there are " + std::to_string(blocks) + " blocks of " + std::to_string(block) +
                " in dimension " + std::to_string(axis));
  return match_all(check, {"", "d...", "d..."});
}

// Every letter is of one size wherever it stands; 1 is broadcast.
Status check_einsum(ShapeCheck& check) {
  std::string text;
  for (const auto& attribute : check.node().attribute()) {
    if (attribute.name() == "equation") text = attribute.s();
  }
  const std::size_t count = static_cast<std::size_t>(check.node().input_size());
  const auto equation = parse_equation(text, count);
  if (!equation || equation->inputs.size() != count) return Ok{};  // as ONNX finds it
  for (std::size_t port = 0; port < count; ++port) {
    const auto shape = check.shape(port);
    const std::string& letters = equation->inputs[port];
    const std::size_t gap = letters.find('.');
    if (!shape || (gap == std::string::npos && letters.size() != shape->size()) ||
        letters.size() > shape->size() + 1) {
      continue;
    }
    std::string pattern;
    for (std::size_t i = 0; i < letters.size(); ++i) {
      if (i == gap) {
        for (std::size_t d = letters.size() - 1; d < shape->size(); ++d) pattern += " _";
      } else {
        pattern += std::string(" ") + letters[i] + "?";
      }
    }
    AUTOPAR_RETURN_IF_ERROR(check.match(port, pattern.empty() ? pattern : pattern.substr(1)));
  }
  return Ok{};
}

// Indices that look up one element each: of the data's rank, and no larger beside the axis.
Status check_elements(ShapeCheck& check) {
  const auto data = check.shape(0), indices = check.shape(1);
  if (!data || !indices) return Ok{};
  AUTOPAR_TRY(axis, axis_in_range(check, 0));
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"d...", ""}));
  if (indices->size() != data->size()) return check.match(1, "d...");
  for (std::size_t d = 0; d < data->size(); ++d) {
    if (d == axis || (*indices)[d] <= (*data)[d]) continue;
    return input_error("dimension " + std::to_string(d) + " of its " + check.name_of_input(1) +
                       " is " + std::to_string((*indices)[d]) + "; expected at most " +
                       std::to_string((*data)[d]) + ", since its " + check.name_of_input(0) +
                       " is " + to_text(*data));
  }
  return Ok{};
}

Status check_gather_nd(ShapeCheck& check) {
  const auto data = check.shape(0);
  const std::int64_t count = int_of(check.node(), "batch_dims", 0);
  if (!data) return Ok{};
  if (count < 0 || count >= static_cast<std::int64_t>(data->size())) {
    return input_error("attribute 'batch_dims' is " + std::to_string(count) +
                       "; expected 0 or more, and less than the " + std::to_string(data->size()) +
                       " dimensions of its " + check.name_of_input(0));
  }
  std::string batches;
  for (std::int64_t d = 0; d < count; ++d) {
    batches += "batch" + std::to_string(d) + " ";
  }
  return match_all(check, {batches + "...", batches + "..."});
}

Status check_reversed(ShapeCheck& check) {
  const bool batch_first = int_of(check.node(), "batch_axis", 1) == 0;
  return match_all(check, {batch_first ? "batch time ..." : "time batch ...", "batch"});
}

Status check_prelu(ShapeCheck& check) {
  const auto data = check.shape(0), slope = check.shape(1);
  if (!data || !slope) return Ok{};
  return match_all(check, {"d...", broadcast_to(numbered("d", data->size()), slope->size())});
}

Status check_group_normalisation(ShapeCheck& check) {
  const std::string scale = check.version() < 21 ? "num_groups" : "num_groups*width";
  return match_all(check, {"batch num_groups*width ...", "# " + scale, "# " + scale});
}

// ONNX lets the numbers of an axis order more or fewer axes than there are.
Status check_transpose(ShapeCheck& check) {
  const auto data = check.shape(0);
  const auto order = ints_of(check.node(), "perm");
  if (!data || order.empty() || order.size() == data->size()) return Ok{};
  return input_error("attribute 'perm' is " + to_text(order) + "; expected " +
                     std::to_string(data->size()) + " numbers, since its " +
                     check.name_of_input(0) + " is " + to_text(*data));
}

// Equal parts of which the last one may be smaller, but is there.
Status check_split(ShapeCheck& check) {
  const auto data = check.shape(0);
  const std::int64_t parts = int_of(check.node(), "num_outputs", 0);
  if (!data || parts < 1) return check.match(1, "parts");
  AUTOPAR_TRY(axis, axis_in_range(check, 0));
  const std::int64_t outputs = check.node().output_size();
  if (parts < outputs) {
    return input_error("attribute 'num_outputs' is " + std::to_string(parts) +
                       "; expected its number of outputs, " + std::to_string(outputs));
  }
  const std::int64_t extent = (*data)[axis], part = (extent + parts - 1) / parts;
  if (extent == 0 || (parts <= extent && part * (outputs - 1) < extent)) return Ok{};
  return input_error("attribute 'num_outputs' is " + std::to_string(parts) + ", and dimension " +
                     std::to_string(axis) + " of its " + check.name_of_input(0) + " is " +
                     std::to_string(extent) + ", which does not make so many parts of " +
                     std::to_string(part));
}

// Zero points and scales of products: one number, or one for each row of A or column of B.
Status check_product(ShapeCheck& check, std::size_t b, const std::vector<std::size_t>& of_a,
                     const std::vector<std::size_t>& of_b) {
  const auto left = check.shape(0), right = check.shape(b);
  if (!left || !right || left->size() < 2 || right->size() < 2) return Ok{};
  const auto match_vectors = [&](const std::vector<std::size_t>& ports, const char* word,
                                 std::int64_t extent, std::size_t of) -> Status {
    check.set(word, extent, "its " + check.name_of_input(of) + " has " + std::to_string(extent));
    for (const std::size_t port : ports) {
      const auto shape = check.shape(port);
      if (!shape || shape->size() > 1) continue;
      AUTOPAR_RETURN_IF_ERROR(check.match(port, std::string("# ") + word));
    }
    return Ok{};
  };
  AUTOPAR_RETURN_IF_ERROR(match_vectors(of_a, "rows", (*left)[left->size() - 2], 0));
  return match_vectors(of_b, "columns", right->back(), b);
}

Status check_integer_product(ShapeCheck& check) { return check_product(check, 1, {2}, {3}); }

Status check_quantised_product(ShapeCheck& check) {
  return check_product(check, 3, {1, 2, 6, 7}, {4, 5});
}

// One affine matrix for each image of the size that is given: [N, C, H, W] or [N, C, D, H, W].
Status check_affine(ShapeCheck& check) {
  const auto size = check.ints(1);
  if (!size || (size->size() != 4 && size->size() != 5)) return check.match(1, "_");
  check.set("batch", size->front(), "size is " + to_text(*size));
  return check.match(0, size->size() == 4 ? "batch 2 3" : "batch 3 4");
}

// Columns are the places of a block in the padded image.
Status check_columns(ShapeCheck& check) {
  const auto image = check.ints(1), block = check.ints(2);
  if (!image || !block || image->size() != block->size()) return Ok{};
  const std::size_t dims = image->size();
  const auto of_dims = [&](const char* name, std::size_t count, std::int64_t otherwise) {
    auto numbers = ints_of(check.node(), name);
    return numbers.size() == count ? numbers : std::vector<std::int64_t>(count, otherwise);
  };
  const auto strides = of_dims("strides", dims, 1), dilations = of_dims("dilations", dims, 1);
  const auto pads = of_dims("pads", 2 * dims, 0);
  std::int64_t elements = 1, places = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::array numbers = {(*image)[d], (*block)[d], pads[d], pads[d + dims], dilations[d]};
    const bool possible = std::all_of(numbers.begin(), numbers.end(), [](std::int64_t number) {
      return number >= 0 && number < (std::int64_t{1} << 30);
    });
    const std::int64_t span = possible ? dilations[d] * ((*block)[d] - 1) + 1 : 0;
    const std::int64_t room = possible ? (*image)[d] + pads[d] + pads[d + dims] - span : -1;
    if (room < 0 || (*block)[d] < 1) {
      return input_error("its block_shape is " + to_text(*block) +
                         "; expected one that fits into the padded image of image_shape " +
                         to_text(*image));
    }
    elements = times(elements, (*block)[d]);
    places = times(places, room / strides[d] + 1);
  }
  check.set("block", elements, "block_shape is " + to_text(*block));
  check.set("places", places,
            "image_shape is " + to_text(*image) + ", block_shape " + to_text(*block));
  return check.match(0, "batch block*channels places");
}

Status check_cumulative(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"_ ...", "#"}));
  const auto data = check.shape(0);
  const auto axis = check.ints(1);
  if (!data || !axis || axis->size() != 1 || normal_axis(axis->front(), data->size())) return Ok{};
  return input_error("its " + check.name_of_input(1) + " is " + std::to_string(axis->front()) +
                     "; expected a dimension of its " + check.name_of_input(0) + ", " +
                     to_text(*data));
}

// A reflection has what is inside, without the edge.
Status check_pad(ShapeCheck& check) {
  AUTOPAR_RETURN_IF_ERROR(match_all(check, {"...", "_", "#", "_"}));
  const auto data = check.shape(0);
  const auto pads = check.ints(1);
  if (!data || !pads || check.shape(3) || pads->size() != 2 * data->size()) return Ok{};
  bool reflects = false;
  for (const auto& attribute : check.node().attribute()) {
    reflects = reflects || (attribute.name() == "mode" && attribute.s() == "reflect");
  }
  for (std::size_t i = 0; i < pads->size() && reflects; ++i) {
    const std::int64_t extent = (*data)[i % data->size()];
    if ((*pads)[i] < std::max<std::int64_t>(extent, 1)) continue;
    return input_error("its " + check.name_of_input(1) + " is " + to_text(*pads) +
                       "; expected less than dimension " + std::to_string(i % data->size()) +
                       " of its " + check.name_of_input(0) + ", " + std::to_string(extent) +
                       ", which is reflected");
  }
  return Ok{};
}

// No more is written than there is room for.
Status check_tensor_scatter(ShapeCheck& check) {
  const auto cache = check.shape(0), update = check.shape(1);
  if (!cache || !update || cache->size() != update->size()) return Ok{};
  AUTOPAR_TRY(axis, axis_in_range(check, -2));
  if ((*update)[axis] <= (*cache)[axis]) return Ok{};
  return input_error("dimension " + std::to_string(axis) + " of its " + check.name_of_input(1) +
                     " is " + std::to_string((*update)[axis]) + "; expected at most " +
                     std::to_string((*cache)[axis]) + ", since its " + check.name_of_input(0) +
                     " is " + to_text(*cache));
}

// A window that lies in the padding alone has no elements.
Status check_pool(ShapeCheck& check) {
  const auto kernel = ints_of(check.node(), "kernel_shape"), pads = ints_of(check.node(), "pads");
  for (std::size_t i = 0; i < pads.size() && !kernel.empty(); ++i) {
    if (pads[i] < kernel[i % kernel.size()]) continue;
    return input_error("attribute 'pads' is " + to_text(pads) +
                       "; expected less than kernel_shape " + to_text(kernel) + " everywhere");
  }
  return Ok{};
}

using CheckFunction = Status (*)(ShapeCheck&);

// What ONNX's inference does not compare. Ops whose inputs have one pattern each need no function.
const std::map<std::string_view, std::vector<std::string>>& patterns_of_ops() {
  static const std::map<std::string_view, std::vector<std::string>> patterns = {
      {"BatchNormalization",
       {"batch channels ...", "channels", "channels", "channels", "channels"}},
      {"CenterCropPad", {"...", "_"}},
      {"Clip", {"...", "#", "#"}},
      {"DepthToSpace", {"batch blocksize*blocksize*channels height width"}},
      {"InstanceNormalization", {"batch channels _ ...", "channels", "channels"}},
      {"MaxRoiPool", {"batch channels height width", "regions 5"}},
      {"MaxUnpool", {"d...", "d..."}},
      {"NegativeLogLikelihoodLoss", {"batch classes d...", "batch d...", "classes"}},
      {"ReduceL1", {"...", "_"}},
      {"ReduceL2", {"...", "_"}},
      {"ReduceLogSum", {"...", "_"}},
      {"ReduceLogSumExp", {"...", "_"}},
      {"ReduceMax", {"...", "_"}},
      {"ReduceMean", {"...", "_"}},
      {"ReduceMin", {"...", "_"}},
      {"ReduceProd", {"...", "_"}},
      {"ReduceSum", {"...", "_"}},
      {"ReduceSumSquare", {"...", "_"}},
      {"Reshape", {"...", "_"}},
      {"Slice", {"...", "slices", "slices", "slices", "slices"}},
      {"SoftmaxCrossEntropyLoss", {"batch classes d...", "batch d...", "classes"}},
      {"SpaceToDepth", {"batch channels blocksize*height blocksize*width"}},
      {"Squeeze", {"...", "_"}},
      {"Trilu", {"...", "#"}},
      {"Unsqueeze", {"...", "# _"}},
  };
  return patterns;
}

const std::map<std::string_view, CheckFunction>& checks_of_ops() {
  static const std::map<std::string_view, CheckFunction> checks = {
      {"AffineGrid", check_affine},
      {"Attention", check_attention},
      {"AveragePool", check_pool},
      {"Col2Im", check_columns},
      {"Conv", check_conv},
      {"ConvInteger", check_conv_integer},
      {"ConvTranspose", check_conv_transpose},
      {"CumProd", check_cumulative},
      {"CumSum", check_cumulative},
      {"DeformConv", check_deformable},
      {"DequantizeLinear", check_scales},
      {"Einsum", check_einsum},
      {"GRU", check_gru},
      {"GatherElements", check_elements},
      {"GatherND", check_gather_nd},
      {"Gemm", check_gemm},
      {"GroupNormalization", check_group_normalisation},
      {"LSTM", check_lstm},
      {"LayerNormalization", check_layer},
      {"LpNormalization", check_axis},
      {"LpPool", check_pool},
      {"MatMulInteger", check_integer_product},
      {"MaxPool", check_pool},
      {"PRelu", check_prelu},
      {"Pad", check_pad},
      {"QLinearConv", check_quantised_conv},
      {"QLinearMatMul", check_quantised_product},
      {"QuantizeLinear", check_scales},
      {"RMSNormalization", check_layer},
      {"RNN", check_rnn},
      {"ReverseSequence", check_reversed},
      {"RotaryEmbedding", check_rotary},
      {"ScatterElements", check_elements},
      {"Split", check_split},
      {"TensorScatter", check_tensor_scatter},
      {"Transpose", check_transpose},
  };
  return checks;
}

Status check_shapes(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                    const std::vector<NodeInput>& inputs,
                    const std::vector<onnx::TypeProto>& outputs) {
  if (!schema.domain().empty()) return Ok{};
  ShapeCheck check(schema, node, inputs, outputs);
  if (const auto found = patterns_of_ops().find(node.op_type()); found != patterns_of_ops().end()) {
    return match_all(check, found->second);
  }
  const auto found = checks_of_ops().find(node.op_type());
  return found == checks_of_ops().end() ? Status(Ok{}) : found->second(check);
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
    AUTOPAR_RETURN_IF_ERROR(check_scatter(node, inputs));
    if (!context.outputs.empty()) {
      AUTOPAR_RETURN_IF_ERROR(check_reshape(node, inputs, context.outputs[0]));
    }
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the model
  } catch (const std::exception& error) {
    return input_error(plain(error.what()));
  }
  return std::move(context.outputs);
}

}  // namespace autopar
