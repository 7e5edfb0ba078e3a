// Inputs, initializers and outputs of the main graph.
#include <algorithm>
#include <set>
#include <utility>

#include "io/import/elaborator.hpp"
#include "io/import/proto_op.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kOldestOpset = 13;
constexpr std::int64_t kNewestOpset = 26;

// Integers and flags describe shapes, axes and masks; a single number is no weight.
bool is_constant(const TensorData& data) {
  if (data.shape.empty()) return true;
  return data.dtype == DType::kInt64 || data.dtype == DType::kInt32 || data.dtype == DType::kBool;
}

}  // namespace

Elaborator::Elaborator(ModelFile& file, std::string folder, const ImportOptions& options)
    : model_(file.model),
      data_inputs_(file.data_inputs),
      folder_(std::move(folder)),
      options_(options) {}

Result<Elaboration> elaborate(ModelFile& file, const std::string& folder,
                              const ImportOptions& options) {
  return Elaborator(file, folder, options).run();
}

Result<Elaboration> Elaborator::run() {
  onnx::GraphProto& graph = *model_.mutable_graph();
  graph_.name = graph.name();
  AUTOPAR_RETURN_IF_ERROR(read_opsets());
  functions_ = functions_of(model_);
  AUTOPAR_RETURN_IF_ERROR(check_expansion(model_, functions_));
  if (model_.training_info_size() > 0) {
    result_.warnings.push_back("the model's training_info is ignored");
  }
  AUTOPAR_RETURN_IF_ERROR(take_model_names(graph));
  AUTOPAR_RETURN_IF_ERROR(add_initializers(graph, main_));
  AUTOPAR_RETURN_IF_ERROR(add_inputs(graph));
  AUTOPAR_RETURN_IF_ERROR(run_nodes(*graph.mutable_node(), main_));
  AUTOPAR_RETURN_IF_ERROR(add_outputs(graph));
  return std::move(result_);
}

Status Elaborator::read_opsets() {
  for (const auto& opset : model_.opset_import()) {
    main_.opsets[opset.domain() == "ai.onnx" ? "" : opset.domain()] = opset.version();
  }
  const auto found = main_.opsets.find("");
  const std::int64_t version = found == main_.opsets.end() ? 0 : found->second;
  if (version < kOldestOpset || version > kNewestOpset) {
    return input_error("opset version " + std::to_string(version) + " of ONNX is not supported; " +
                       "expected " + std::to_string(kOldestOpset) + " to " +
                       std::to_string(kNewestOpset) +
                       "; convert the model with onnx.version_converter or export it again");
  }
  graph_.opset = version;
  return Ok{};
}

Status Elaborator::add_inputs(const onnx::GraphProto& graph) {
  for (const auto& input : graph.input()) {
    if (input.name().empty()) return input_error("a graph input has no name");
    if (main_.find(input.name()).valid()) continue;  // old style: the default of an initializer
    AUTOPAR_RETURN_IF_ERROR(add_input(input));
  }
  return check_dims_used();
}

Status Elaborator::add_input(const onnx::ValueInfoProto& input) {
  const std::string where = "graph input '" + input.name() + "'";
  if (!input.type().has_tensor_type()) {
    return input_error(where + " is not a tensor; sequences, maps and optionals are not supported");
  }
  const auto dtype = dtype_of_onnx(input.type().tensor_type().elem_type());
  if (!dtype) {
    return input_error(where + ": element type " +
                       onnx_dtype_name(input.type().tensor_type().elem_type()) +
                       " is not supported; expected a float, an integer or bool");
  }
  AUTOPAR_TRY(shape, bound_shape(input));
  Value value;
  value.dtype = *dtype;
  value.shape = shape;
  value.kind = input_kind(input.name());
  graph_.inputs.push_back(add_value(std::move(value), main_, input.name()));
  return Ok{};
}

Result<Shape> Elaborator::bound_shape(const onnx::ValueInfoProto& input) {
  const std::string where = "graph input '" + input.name() + "'";
  if (!input.type().tensor_type().has_shape()) {
    return input_error(where + " has no shape, not even its number of dimensions");
  }
  Shape shape;
  for (const auto& dim : input.type().tensor_type().shape().dim()) {
    const std::string index = std::to_string(shape.size());
    std::int64_t extent = dim.dim_value();
    if (!dim.has_dim_value()) {
      const std::string positional = input.name() + "." + index;
      const std::string name =
          dim.has_dim_param() && !dim.dim_param().empty() ? dim.dim_param() : positional;
      auto found = options_.dims.find(name);
      if (found == options_.dims.end()) found = options_.dims.find(positional);
      if (found == options_.dims.end()) {
        return input_error(where + ": dimension " + index + " is symbolic ('" + name +
                           "'); give its size with --dim " + name + "=SIZE");
      }
      symbols_[found->first] = found->second;
      extent = found->second;
    }
    if (extent < 0) {
      return input_error(where + ": dimension " + index + " is negative (" +
                         std::to_string(extent) + ")");
    }
    shape.push_back(extent);
  }
  if (element_count(shape) >= kMaxElements) {
    return input_error(where + ": shape " + to_text(shape) + " has too many elements");
  }
  return shape;
}

Status Elaborator::check_dims_used() const {
  for (const auto& [name, size] : options_.dims) {
    if (symbols_.count(name)) continue;
    std::string known;
    for (const auto& [symbol, value] : symbols_) known += (known.empty() ? "" : ", ") + symbol;
    return usage_error("--dim " + name + "=" + std::to_string(size) +
                       ": no graph input has a symbolic dimension of that name; symbolic are: " +
                       (known.empty() ? "none" : known));
  }
  return Ok{};
}

ValueKind Elaborator::input_kind(const std::string& name) const {
  if (data_inputs_) return data_inputs_->count(name) ? ValueKind::kInput : ValueKind::kParameter;
  const auto star = options_.updates.find('*');
  if (star == std::string::npos) return ValueKind::kInput;
  std::string updated = options_.updates;
  updated.replace(star, 1, name);
  const auto& outputs = model_.graph().output();
  const bool is_updated = std::any_of(outputs.begin(), outputs.end(),
                                      [&](const auto& output) { return output.name() == updated; });
  return is_updated ? ValueKind::kParameter : ValueKind::kInput;
}

Status Elaborator::add_initializers(onnx::GraphProto& graph, Scope& scope) {
  if (graph.sparse_initializer_size() > 0) {
    return input_error("sparse initializers are not supported ('" +
                       graph.sparse_initializer(0).values().name() + "')");
  }
  for (auto& proto : *graph.mutable_initializer()) {
    const std::string where = "initializer '" + proto.name() + "'";
    if (proto.name().empty()) return input_error("an initializer has no name");
    if (scope.values.count(proto.name())) return input_error(where + " is there twice");
    AUTOPAR_TRY(data, take_tensor(proto, where));
    Value value;
    value.dtype = data.dtype;
    value.shape = data.shape;
    value.kind = is_constant(data) ? ValueKind::kConstant : ValueKind::kParameter;
    value.data = std::move(data.data);
    const bool is_external = std::holds_alternative<ExternalData>(value.data);
    if (is_external && value.kind == ValueKind::kConstant) {
      // Its values may decide shapes. Where the file is not there it is treated as a weight.
      auto tensor = value.bytes() <= options_.fold_limit_bytes
                        ? read_external({value.dtype, value.shape, value.data}, folder_)
                        : std::nullopt;
      if (tensor) value.data = std::move(*tensor);
      if (!tensor) value.kind = ValueKind::kParameter;
    }
    add_value(std::move(value), scope, proto.name());
  }
  return Ok{};
}

Status Elaborator::add_outputs(const onnx::GraphProto& graph) {
  if (graph.output_size() == 0) return input_error("the graph has no outputs");
  std::set<std::string> names;
  for (const auto& output : graph.output()) {
    if (!names.insert(output.name()).second) {
      result_.warnings.push_back("graph output '" + output.name() +
                                 "' is listed more than once; later ones are ignored");
      continue;
    }
    const ValueId id = main_.find(output.name());
    if (!id.valid()) {
      return input_error("graph output '" + output.name() + "' is produced by nothing");
    }
    graph_.outputs.push_back(id);
    check_declared(output, graph_.value(id));
  }
  return Ok{};
}

// The file's own word on an output is not needed; where it is wrong, something else may be, too.
void Elaborator::check_declared(const onnx::ValueInfoProto& output, const Value& value) {
  if (!output.type().has_tensor_type() || !output.type().tensor_type().has_shape()) return;
  Shape declared = value.shape;
  const auto& dims = output.type().tensor_type().shape().dim();
  bool same = dims.size() == static_cast<int>(value.shape.size());
  for (int i = 0; same && i < dims.size(); ++i) {
    if (dims[i].has_dim_value()) declared[static_cast<std::size_t>(i)] = dims[i].dim_value();
  }
  if (same && declared == value.shape) return;
  result_.warnings.push_back("graph output '" + output.name() + "' has the shape " +
                             to_text(value.shape) + "; the file declares another one");
}

}  // namespace autopar
