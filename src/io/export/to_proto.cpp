#include <onnx/checker.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <set>
#include <utility>

#include "io/export/model_proto.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {
namespace {

void set_type(const Value& value, onnx::ValueInfoProto& proto) {
  proto.set_name(value.name);
  auto* tensor = proto.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(onnx_dtype_of(value.dtype));
  auto* shape = tensor->mutable_shape();  // there even for rank 0
  for (std::int64_t extent : value.shape) shape->add_dim()->set_dim_value(extent);
}

struct AttributeWriter {
  onnx::AttributeProto& proto;

  void operator()(std::int64_t value) const {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(value);
  }
  void operator()(double value) const {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(static_cast<float>(value));
  }
  void operator()(const std::string& value) const {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(value);
  }
  void operator()(const IntList& list) const {
    proto.set_type(onnx::AttributeProto::INTS);
    proto.mutable_ints()->Add(list.values().begin(), list.values().end());
  }
  void operator()(const std::vector<double>& values) const {
    proto.set_type(onnx::AttributeProto::FLOATS);
    for (double value : values) proto.add_floats(static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) const {
    proto.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
  }
  void operator()(const Tensor& value) const {
    proto.set_type(onnx::AttributeProto::TENSOR);
    *proto.mutable_t() = to_proto(value);
  }
};

void add_node(const Graph& graph, const Op& op, LeanModel& model) {
  onnx::NodeProto* node = model.proto.mutable_graph()->add_node();
  IntList& groups = model.groups.emplace_back();
  node->set_name(op.name);
  node->set_op_type(op.type);
  if (!op.domain.empty()) node->set_domain(op.domain);
  const auto name = [&](ValueId v) { return v.valid() ? graph.value(v).name : std::string(); };
  for (ValueId input : op.inputs) node->add_input(name(input));
  for (ValueId output : op.outputs) node->add_output(name(output));
  for (const auto& [key, value] : op.attributes) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(key);
    const auto* list = std::get_if<IntList>(&value);
    if (list != nullptr) attribute->set_type(onnx::AttributeProto::INTS);
    if (list != nullptr && lists_groups(*node, *attribute)) {
      groups = *list;
      continue;
    }
    std::visit(AttributeWriter{*attribute}, value);
  }
  if (!op.domain.empty()) return;
  const auto tell = [node](const char* key, const char* value) {
    auto* entry = node->add_metadata_props();
    entry->set_key(key);
    entry->set_value(value);
  };
  if (op.phase != Phase::kForward) tell(kPhaseKey, name_of(op.phase));
  if (op.sums != SumsAt::kAnywhere) tell(kSumsKey, name_of(op.sums));
}

bool is_valid_in(const onnx::NodeProto& node, int version) {
  const auto* schema = onnx::OpSchemaRegistry::Schema(node.op_type(), version, node.domain());
  if (schema == nullptr) return false;
  try {
    schema->Verify(node);
  } catch (const onnx::checker::ValidationError&) {
    return false;
  }
  return true;
}

// Graphs do not say the versions of other domains than ONNX's main one: the oldest in which all its
// ops are valid. 1 for domains that ONNX does not know.
int version_of(const std::string& domain, const onnx::GraphProto& graph) {
  const auto& known = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto range = known.find(domain);
  if (range == known.end()) return 1;
  for (int version = 1; version < range->second.second; ++version) {
    const bool fits = std::all_of(graph.node().begin(), graph.node().end(), [&](const auto& node) {
      return node.domain() != domain || is_valid_in(node, version);
    });
    if (fits) return version;
  }
  return range->second.second;
}

// Inline data beyond this cannot be written: protobuf counts bytes with 31 bits.
constexpr Bytes kProtobufBytes = (Bytes{1} << 31) - (Bytes{1} << 20);

Status check_size(const Graph& graph) {
  Bytes inline_bytes = 0;
  for (const Value& value : graph.values) {
    if (value.tensor() != nullptr) inline_bytes += value.bytes();
  }
  if (inline_bytes < kProtobufBytes) return Ok{};
  return input_error("the weights inside the model take " + std::to_string(inline_bytes) +
                     " bytes, an ONNX file can hold less than 2147483648; store them as external "
                     "data (onnx.save(..., save_as_external_data=True)) and import that model");
}

}  // namespace

bool lists_groups(const onnx::NodeProto& node, const onnx::AttributeProto& attribute) {
  return node.domain() == kCollectiveDomain && attribute.name() == "groups" &&
         attribute.type() == onnx::AttributeProto::INTS;
}

onnx::TensorProto initializer_of(const Value& value) {
  onnx::TensorProto proto;
  if (const Tensor* tensor = value.tensor()) {
    proto = to_proto(*tensor);
  } else {
    const auto& external = std::get<ExternalData>(value.data);
    proto.set_data_type(onnx_dtype_of(value.dtype));
    for (std::int64_t extent : value.shape) proto.add_dims(extent);
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& text) {
      auto* entry = proto.add_external_data();
      entry->set_key(key);
      entry->set_value(text);
    };
    add("location", external.location);
    add("offset", std::to_string(external.offset));
    if (external.length >= 0) add("length", std::to_string(external.length));
  }
  proto.set_name(value.name);
  return proto;
}

Result<LeanModel> lean_model_of(const Graph& graph) {
  AUTOPAR_RETURN_IF_ERROR(check_size(graph));
  LeanModel lean;
  onnx::ModelProto& model = lean.proto;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("autopar");
  model.set_producer_version(AUTOPAR_VERSION);
  std::set<std::string> domains;
  for (const Op& op : graph.ops) {
    if (!op.domain.empty()) domains.insert(op.domain);
  }
  onnx::GraphProto& proto = *model.mutable_graph();
  proto.set_name(graph.name.empty() ? "graph" : graph.name);
  std::vector<char> at_boundary(graph.values.size());
  for (ValueId input : graph.inputs) {
    at_boundary[input.index()] = 1;
    set_type(graph.value(input), *proto.add_input());
  }
  for (ValueId output : graph.outputs) {
    at_boundary[output.index()] = 1;
    set_type(graph.value(output), *proto.add_output());
  }
  std::vector<char> is_input(graph.values.size());
  for (ValueId input : graph.inputs) is_input[input.index()] = 1;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.has_data() && !is_input[v]) {
      *proto.add_initializer() = initializer_of(value);
    } else if (!at_boundary[v] && value.producer.valid()) {
      set_type(value, *proto.add_value_info());
    }
  }
  for (const Op& op : graph.ops) add_node(graph, op, lean);
  auto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(graph.opset);
  for (const std::string& domain : domains) {
    opset = model.add_opset_import();
    opset->set_domain(domain);
    opset->set_version(version_of(domain, proto));
  }
  return lean;
}

}  // namespace autopar
