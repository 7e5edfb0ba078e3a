#include <unordered_map>
#include <utility>

#include "io/export/model_proto.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

class ProtoReader {
 public:
  ProtoReader(LeanModel& model, std::string where)
      : model_(model), proto_(*model.proto.mutable_graph()), where_(std::move(where)) {}

  Result<Graph> run(std::int64_t opset) {
    graph_.name = proto_.name();
    graph_.opset = opset;
    for (const auto& input : proto_.input()) {
      AUTOPAR_TRY(value, value_of(input));
      value.kind = ValueKind::kInput;
      AUTOPAR_TRY(id, add(std::move(value)));
      graph_.inputs.push_back(id);
    }
    for (auto& tensor : *proto_.mutable_initializer()) AUTOPAR_RETURN_IF_ERROR(add(tensor));
    for (const auto& info : proto_.value_info()) types_[info.name()] = &info;
    for (const auto& info : proto_.output()) types_[info.name()] = &info;
    for (int n = 0; n < proto_.node_size(); ++n) {
      AUTOPAR_RETURN_IF_ERROR(add(proto_.node(n), model_.groups[static_cast<std::size_t>(n)]));
    }
    for (const auto& output : proto_.output()) {
      const auto found = ids_.find(output.name());
      if (found == ids_.end()) return error("nothing produces output '" + output.name() + "'");
      graph_.outputs.push_back(found->second);
    }
    return std::move(graph_);
  }

 private:
  Error error(const std::string& what) const { return input_error(where_ + ": " + what); }

  Result<Value> value_of(const onnx::ValueInfoProto& info) const {
    Value value;
    value.name = info.name();
    const auto& tensor = info.type().tensor_type();
    const std::optional<DType> dtype = dtype_of_onnx(tensor.elem_type());
    if (!info.type().has_tensor_type() || !dtype || !tensor.has_shape()) {
      return error("value '" + info.name() + "' has no tensor type with a shape");
    }
    value.dtype = *dtype;
    for (const auto& dim : tensor.shape().dim()) {
      if (!dim.has_dim_value() || dim.dim_value() < 0) {
        return error("value '" + info.name() + "' has a dimension that is not static");
      }
      value.shape.push_back(dim.dim_value());
    }
    return value;
  }

  Result<ValueId> add(Value value) {
    const std::string name = value.name;
    const ValueId id(static_cast<std::int64_t>(graph_.values.size()));
    if (!ids_.emplace(name, id).second) return error("'" + name + "' is defined twice");
    return graph_.add_value(std::move(value));
  }

  Status add(onnx::TensorProto& tensor) {
    AUTOPAR_TRY(data, take_tensor(tensor, where_ + ": initializer '" + tensor.name() + "'"));
    Value value{.name = tensor.name(),
                .dtype = data.dtype,
                .shape = data.shape,
                .kind = ValueKind::kConstant,
                .producer = {},
                .data = std::move(data.data)};
    if (value.tensor() == nullptr) value.kind = ValueKind::kParameter;
    AUTOPAR_TRY(id, add(std::move(value)));
    static_cast<void>(id);
    return Ok{};
  }

  Status add(const onnx::NodeProto& node, const IntList& groups) {
    Op op;
    op.name = op.origin_name = node.name();
    op.type = op.origin_type = node.op_type();
    op.domain = node.domain() == "ai.onnx" ? "" : node.domain();
    const std::string where = "op '" + node.name() + "' (" + node.op_type() + ")";
    for (const std::string& name : node.input()) {
      if (name.empty()) {
        op.inputs.emplace_back();
        continue;
      }
      const auto found = ids_.find(name);
      if (found == ids_.end()) {
        return error(where + " reads '" + name + "', which nothing before it produces");
      }
      op.inputs.push_back(found->second);
    }
    for (const std::string& name : node.output()) {
      if (name.empty()) {
        op.outputs.emplace_back();
        continue;
      }
      const auto type = types_.find(name);
      if (type == types_.end()) {
        return error(where + ": its output '" + name + "' has no value_info");
      }
      AUTOPAR_TRY(value, value_of(*type->second));
      AUTOPAR_TRY(id, add(std::move(value)));
      op.outputs.push_back(id);
    }
    for (const auto& attribute : node.attribute()) {
      if (lists_groups(node, attribute)) {
        op.attributes.emplace(attribute.name(), groups);
        continue;
      }
      AUTOPAR_TRY(value, attribute_of(attribute, where));
      op.attributes.emplace(attribute.name(), std::move(value));
    }
    const auto told = told_phase(node);
    if (!told) return error(told.error().message);
    op.phase = told->phase.value_or(op.phase);
    op.sums = told->sums.value_or(op.sums);
    graph_.add_op(std::move(op));
    return Ok{};
  }

  Result<Attribute> attribute_of(const onnx::AttributeProto& proto, const std::string& where) {
    switch (proto.type()) {
      case onnx::AttributeProto::INT:
        return Attribute(std::int64_t{proto.i()});
      case onnx::AttributeProto::FLOAT:
        return Attribute(static_cast<double>(proto.f()));
      case onnx::AttributeProto::STRING:
        return Attribute(proto.s());
      case onnx::AttributeProto::INTS:
        return Attribute(std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end()));
      case onnx::AttributeProto::FLOATS:
        return Attribute(std::vector<double>(proto.floats().begin(), proto.floats().end()));
      case onnx::AttributeProto::STRINGS:
        return Attribute(std::vector<std::string>(proto.strings().begin(), proto.strings().end()));
      case onnx::AttributeProto::TENSOR: {
        onnx::TensorProto copy = proto.t();
        AUTOPAR_TRY(data, take_tensor(copy, where_ + ": " + where));
        if (auto* tensor = std::get_if<Tensor>(&data.data)) return Attribute(std::move(*tensor));
        break;
      }
      default:
        break;
    }
    return error(where + ": attribute '" + proto.name() + "' is of a kind that a plan cannot have");
  }

  LeanModel& model_;
  onnx::GraphProto& proto_;
  const std::string where_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> ids_;
  std::unordered_map<std::string, const onnx::ValueInfoProto*> types_;
};

}  // namespace

Result<ToldPhase> told_phase(const onnx::NodeProto& node) {
  ToldPhase told;
  for (const auto& entry : node.metadata_props()) {
    const auto wrong = [&](const char* expected) {
      return input_error("node '" + node.name() + "': " + entry.key() + " is '" + entry.value() +
                         "', expected " + expected);
    };
    if (entry.key() == kSumsKey) {
      told.sums = parse_sums_at(entry.value());
      if (!told.sums) return wrong("anywhere, before or after");
    } else if (entry.key() == kPhaseKey) {
      told.phase = parse_phase(entry.value());
      if (!told.phase) return wrong("forward, backward or update");
    }
  }
  return told;
}

Result<Graph> graph_of(LeanModel& model, const std::string& where) {
  std::int64_t opset = 0;
  for (const auto& import : model.proto.opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") opset = import.version();
  }
  return ProtoReader(model, where).run(opset);
}

}  // namespace autopar
