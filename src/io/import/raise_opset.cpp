#include "io/import/raise_opset.hpp"

#include <onnx/defs/schema.h>

#include <algorithm>
#include <set>

namespace autopar {
namespace {

constexpr std::int64_t kOldest = 13;  // what import takes
constexpr std::int64_t kNewest = 16;  // up to where the list below has been compared

bool is_default(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

// Between opset 13 and 16 these took more types, or an attribute that by default changes nothing.
bool means_the_same(const std::string& type) {
  static const std::set<std::string> types = {"Add",
                                              "CumSum",
                                              "Div",
                                              "GRU",
                                              "GreaterOrEqual",
                                              "Identity",
                                              "If",
                                              "LSTM",
                                              "Loop",
                                              "LeakyRelu",
                                              "LessOrEqual",
                                              "Mul",
                                              "PRelu",
                                              "Pow",
                                              "RNN",
                                              "Relu",
                                              "Reshape",
                                              "Scan",
                                              "ScatterElements",
                                              "ScatterND",
                                              "Shape",
                                              "Sub",
                                              "Where"};
  return types.count(type) != 0;
}

class Raising {
 public:
  Raising(std::int64_t from, std::int64_t into) : from_(from), into_(into) {}

  template <class Nodes>
  Status run(Nodes& nodes) {
    for (auto& node : nodes) {
      AUTOPAR_RETURN_IF_ERROR(raise(node));
      for (auto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) {
          AUTOPAR_RETURN_IF_ERROR(run(*attribute.mutable_g()->mutable_node()));
        }
        for (auto& graph : *attribute.mutable_graphs()) {
          AUTOPAR_RETURN_IF_ERROR(run(*graph.mutable_node()));
        }
      }
    }
    return Ok{};
  }

 private:
  Status raise(onnx::NodeProto& node) const {
    if (!is_default(node.domain())) return Ok{};
    const auto schema = [&](std::int64_t version) {
      return onnx::OpSchemaRegistry::Schema(node.op_type(), static_cast<int>(version), "");
    };
    const onnx::OpSchema *before = schema(from_), *after = schema(into_);
    // Import tells of what the opset lacks.
    if (before == nullptr || after == nullptr ||
        before->since_version() == after->since_version() || means_the_same(node.op_type())) {
      return Ok{};
    }
    // Since 14 it says whether it trains; before, its other outputs said so.
    if (node.op_type() == "BatchNormalization" && (node.output_size() == 1 || from_ >= 14)) {
      return Ok{};
    }
    if (node.op_type() == "RoiAlign") {
      auto& attribute = *node.add_attribute();
      attribute.set_name("coordinate_transformation_mode");
      attribute.set_type(onnx::AttributeProto::STRING);
      attribute.set_s("output_half_pixel");
      return Ok{};
    }
    return input_error("op '" + node.name() + "' (" + node.op_type() +
                       ") means another thing in opset " + std::to_string(into_) +
                       ", which is needed here, than in the model's opset " +
                       std::to_string(from_) + "; export the model again");
  }

  std::int64_t from_, into_;
};

// The opset of ONNX's own domain that something imports; null where it does not.
template <class Opsets>
onnx::OperatorSetIdProto* default_opset(Opsets& opsets) {
  for (auto& opset : opsets) {
    if (is_default(opset.domain())) return &opset;
  }
  return nullptr;
}

}  // namespace

Status raise_opset(onnx::ModelProto& model, std::int64_t least,
                   std::vector<std::string>& warnings) {
  const std::int64_t into = std::min(least, kNewest);
  onnx::OperatorSetIdProto* opset = default_opset(*model.mutable_opset_import());
  if (opset == nullptr || opset->version() < kOldest || opset->version() >= into) return Ok{};
  const std::int64_t from = opset->version();
  AUTOPAR_RETURN_IF_ERROR(Raising(from, into).run(*model.mutable_graph()->mutable_node()));
  for (auto& function : *model.mutable_functions()) {
    onnx::OperatorSetIdProto* own = default_opset(*function.mutable_opset_import());
    if (own == nullptr || own->version() < kOldest || own->version() >= into) continue;
    AUTOPAR_RETURN_IF_ERROR(Raising(own->version(), into).run(*function.mutable_node()));
    own->set_version(into);
  }
  opset->set_version(into);
  warnings.push_back("the model is of opset " + std::to_string(from) + "; taken as one of opset " +
                     std::to_string(into) + ", in which its ops mean the same");
  return Ok{};
}

}  // namespace autopar
