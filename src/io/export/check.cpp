#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <exception>

#include "autopar/partition.hpp"
#include "io/export/model_proto.hpp"

namespace autopar {
namespace {

// The checker looks for external files unless the location starts with '#'; here they are not
// beside the model yet, and may be absent.
class HiddenLocations {
 public:
  explicit HiddenLocations(onnx::GraphProto& graph) : graph_(graph) {
    each([](std::string& location) { location.insert(0, 1, '#'); });
  }
  ~HiddenLocations() {
    each([](std::string& location) { location.erase(0, 1); });
  }
  HiddenLocations(const HiddenLocations&) = delete;
  HiddenLocations& operator=(const HiddenLocations&) = delete;

 private:
  template <class Change>
  void each(Change change) {
    for (auto& tensor : *graph_.mutable_initializer()) {
      for (auto& entry : *tensor.mutable_external_data()) {
        if (entry.key() == "location") change(*entry.mutable_value());
      }
    }
  }
  onnx::GraphProto& graph_;
};

// What ONNX knows, and a stand-in for ops that it does not: those may take and give anything, as
// their value_info says. An op without a schema would silence the inference of all that follow.
class SchemasAndStandIn final : public onnx::ISchemaRegistry {
 public:
  SchemasAndStandIn() {
    using onnx::OpSchema;
    stand_in_.SetName("Foreign").SinceVersion(1).AllowUncheckedAttributes();
    stand_in_.Input(0, "inputs", "Any.", "I", OpSchema::Variadic, false, 0);
    stand_in_.Output(0, "outputs", "Any.", "O", OpSchema::Variadic, false, 0);
    stand_in_.TypeConstraint("I", OpSchema::all_tensor_types_ir4(), "Any tensor.");
    stand_in_.TypeConstraint("O", OpSchema::all_tensor_types_ir4(), "Any tensor.");
    stand_in_.Finalize();
  }
  const onnx::OpSchema* GetSchema(const std::string& type, const int version,
                                  const std::string& domain) const override {
    const auto* known = onnx::OpSchemaRegistry::Instance()->GetSchema(type, version, domain);
    return known != nullptr || domain.empty() ? known : &stand_in_;
  }

 private:
  onnx::OpSchema stand_in_;
};

// The checker passes what it does not know of other domains than ONNX's.
Status check_collectives_known(const onnx::GraphProto& graph, const std::string& where) {
  for (const auto& node : graph.node()) {
    if (node.domain() != kCollectiveDomain) continue;
    if (onnx::OpSchemaRegistry::Schema(node.op_type(), 1, node.domain()) != nullptr) continue;
    return input_error(where + ": op '" + node.name() + "': " + kCollectiveDomain + " has no op " +
                       node.op_type());
  }
  return Ok{};
}

}  // namespace

Status check_onnx(onnx::ModelProto& model, const std::string& where) {
  register_collective_schemas();
  AUTOPAR_RETURN_IF_ERROR(check_collectives_known(model.graph(), where));
  static const SchemasAndStandIn schemas;
  const int known = model.graph().value_info_size();
  try {
    {
      const HiddenLocations hidden(*model.mutable_graph());
      onnx::checker::check_model(model, /*full_check=*/false,
                                 /*skip_opset_compatibility_check=*/false,
                                 /*check_custom_domain=*/false);
    }
    const onnx::ShapeInferenceOptions strict{/*check_type=*/true, /*strict_mode=*/1,
                                             /*data_prop=*/false};
    onnx::shape_inference::InferShapes(model, &schemas, strict);
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the model
  } catch (const std::exception& exception) {
    std::string why = exception.what();
    why.erase(why.find_last_not_of(" \n") + 1);
    return input_error(where + ": ONNX refuses the graph: " + why);
  }
  auto* infos = model.mutable_graph()->mutable_value_info();
  if (infos->size() > known) infos->DeleteSubrange(known, infos->size() - known);
  return Ok{};
}

}  // namespace autopar
