#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <exception>

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

}  // namespace

Status check_onnx(onnx::ModelProto& model, const std::string& where) {
  register_collective_schemas();
  const int known = model.graph().value_info_size();
  try {
    {
      const HiddenLocations hidden(*model.mutable_graph());
      onnx::checker::check_model(model, /*full_check=*/false,
                                 /*skip_opset_compatibility_check=*/false,
                                 /*check_custom_domain=*/true);
    }
    const onnx::ShapeInferenceOptions strict{/*check_type=*/true, /*strict_mode=*/1,
                                             /*data_prop=*/false};
    onnx::shape_inference::InferShapes(model, onnx::OpSchemaRegistry::Instance(), strict);
  } catch (const std::bad_alloc&) {
    throw;  // no fault of the model
  } catch (const std::exception& exception) {
    return input_error(where + ": ONNX refuses the graph: " + exception.what());
  }
  auto* infos = model.mutable_graph()->mutable_value_info();
  if (infos->size() > known) infos->DeleteSubrange(known, infos->size() - known);
  return Ok{};
}

}  // namespace autopar
