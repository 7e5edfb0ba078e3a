// The user's model with its weights elsewhere.
#include <unordered_map>

#include "autopar/export.hpp"
#include "io/export/model_proto.hpp"
#include "io/import/proto_tensor.hpp"

namespace autopar {

Status write_model_with(const std::string& model_path, const std::vector<Value>& initializers,
                        const std::string& path) {
  AUTOPAR_TRY(lean, read_model(model_path));
  std::unordered_map<std::string, onnx::TensorProto*> tensors;
  for (auto& tensor : *lean.proto.mutable_graph()->mutable_initializer()) {
    tensors[tensor.name()] = &tensor;
  }
  for (const Value& value : initializers) {
    const auto found = tensors.find(value.name);
    if (found == tensors.end()) {
      return input_error(model_path + ": has no initializer '" + value.name +
                         "' in its main graph; write the weights as .safetensors");
    }
    onnx::TensorProto& tensor = *found->second;
    const Shape shape(tensor.dims().begin(), tensor.dims().end());
    if (tensor.data_type() != onnx_dtype_of(value.dtype) || shape != value.shape) {
      return input_error(model_path + ": initializer '" + value.name + "' is " +
                         onnx_dtype_name(tensor.data_type()) + to_text(shape) + ", expected " +
                         name_of(value.dtype) + to_text(value.shape));
    }
    const std::string doc = tensor.doc_string();
    tensor = initializer_of(value);
    if (!doc.empty()) tensor.set_doc_string(doc);
  }
  return write_model(lean, path);
}

}  // namespace autopar
