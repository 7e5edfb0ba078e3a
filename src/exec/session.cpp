#include "exec/session.hpp"

#include <onnxruntime_session_options_config_keys.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "autopar/errors.hpp"
#include "exec/request.hpp"

namespace autopar {

namespace {

// ONNX Runtime prints nothing: what goes wrong is in the errors that it returns.
constexpr OrtLoggingLevel kLogLevel = ORT_LOGGING_LEVEL_FATAL;

// The same values with copies of the vectors: ONNX Runtime's BatchNormalization in training mode
// writes the next statistics over those it is fed, which other ranks and the reference share.
class OwnVectors {
 public:
  explicit OwnVectors(const std::vector<Ort::Value>& values) {
    copies_.reserve(values.size());  // views point into them
    for (const Ort::Value& value : values) {
      const auto type = value.GetTensorTypeAndShapeInfo();
      const auto dtype = dtype_of(type.GetElementType());
      AUTOPAR_CHECK(dtype.has_value(), "tensor of an unsupported type");
      const Shape shape = type.GetShape();
      const void* data = value.GetTensorRawData();
      if (shape.size() == 1) data = copies_.emplace_back(copy_of(value)).bytes.data();
      values_.push_back(view_of(*dtype, shape, data));
    }
  }
  const std::vector<Ort::Value>& values() const { return values_; }

 private:
  std::vector<Tensor> copies_;
  std::vector<Ort::Value> values_;
};

// ONNX Runtime's codes do not tell what its words do; the last two are the system's.
bool is_out_of_memory(const std::string& message) {
  for (const char* words : {"bad_alloc", "bad allocation", "Failed to allocate memory",
                            "Cannot allocate memory", "No space left on device"}) {
    if (message.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Error failure_of(const std::string& what, const std::exception& exception, ErrorCode otherwise) {
  const std::string message = exception.what();
  const bool is_memory =
      error_of(exception).code == ErrorCode::kResource || is_out_of_memory(message);
  const bool is_missing = message.find("Could not find an implementation") != std::string::npos;
  const bool is_unknown = message.find("is not a registered function/op") != std::string::npos;
  return {
      is_memory ? ErrorCode::kResource : otherwise,
      what + message +
          (is_unknown   ? "; ONNX Runtime has no such op, so nothing with it can be executed. "
                          "`autopar verify` proves the plan without that"
           : is_missing ? "; ONNX Runtime has no kernel for that op and element type here: of "
                          "bfloat16 on CPUs it has few. `autopar verify` proves the plan; plans "
                          "of --precision fp32, fp16 or mixed-fp16 can be run"
                        : "")};
}

Ort::Env make_environment(int threads) {
  Ort::ThreadingOptions options;
  options.SetGlobalIntraOpNumThreads(threads).SetGlobalInterOpNumThreads(1).SetGlobalSpinControl(0);
  return Ort::Env(options, kLogLevel, "autopar");
}

Ort::SessionOptions session_options(bool optimize) {
  Ort::SessionOptions options;
  options.DisablePerSessionThreads();
  options.SetExecutionMode(ORT_SEQUENTIAL);
  options.SetGraphOptimizationLevel(optimize ? ORT_ENABLE_ALL : ORT_DISABLE_ALL);
  options.SetLogSeverityLevel(kLogLevel);
  options.AddConfigEntry("session.disable_prepacking", "1");
  return options;
}

Ort::Session open_model(Ort::Env& environment, const std::string& path, const std::string* bytes,
                        Ort::SessionOptions& options) {
  if (bytes == nullptr) return Ort::Session(environment, path.c_str(), options);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  options.AddConfigEntry(kOrtSessionOptionsModelExternalInitializersFileFolderPath,
                         folder.empty() ? "." : folder.c_str());
  return Ort::Session(environment, bytes->data(), bytes->size(), options);
}

std::vector<Ort::Value> run_session(Ort::Session& session, const Ort::RunOptions& options,
                                    const std::vector<Declared>& inputs,
                                    const std::vector<Ort::Value>& values,
                                    const std::vector<Declared>& outputs) {
  std::vector<const char*> input_names;
  for (const Declared& input : inputs) input_names.push_back(input.name.c_str());
  std::vector<const char*> output_names;
  for (const Declared& output : outputs) output_names.push_back(output.name.c_str());
  const OwnVectors fed(values);
  return session.Run(options, input_names.data(), fed.values().data(), values.size(),
                     output_names.data(), output_names.size());
}

namespace {

bool is_alike(const Ort::Value& a, const Ort::Value& b) {
  if (!a.IsTensor() || !b.IsTensor()) return false;
  const auto one = a.GetTensorTypeAndShapeInfo(), other = b.GetTensorTypeAndShapeInfo();
  return one.GetElementType() == other.GetElementType() && one.GetShape() == other.GetShape();
}

// Before the next of several steps: results that `updates` names take the place of their inputs
// in `values`, which are in the order of `inputs`, where they are alike. The others stay.
void feed_back(const std::vector<Declared>& inputs, const std::vector<Declared>& outputs,
               const std::string& updates, std::vector<Ort::Value>& results,
               std::vector<Ort::Value>& values) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string update = update_of(inputs[i].name, updates);
    const auto at = std::find_if(outputs.begin(), outputs.end(),
                                 [&](const Declared& output) { return output.name == update; });
    if (at == outputs.end()) continue;
    Ort::Value& result = results[static_cast<std::size_t>(at - outputs.begin())];
    if (is_alike(result, values[i])) values[i] = std::move(result);
  }
}

// Whether a model with an input so declared, where -1 is any extent, takes that shape.
bool goes_with(const Shape& shape, const Shape& declared) {
  return shape.size() == declared.size() &&
         std::equal(shape.begin(), shape.end(), declared.begin(),
                    [](std::int64_t a, std::int64_t b) { return b < 0 || a == b; });
}

}  // namespace

Result<Reference> run_model(Ort::Env& environment, const RunRequest& request,
                            const std::map<std::string, Tensor>& inputs) {
  const std::string& path = request.model_path;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return input_error(path + ": there is no such file; it is the model to compare with");
  }
  const char* doing = "load the unsharded model";
  try {
    Ort::SessionOptions options = session_options(request.optimize);
    Ort::Session session = open_model(environment, path, request.model_bytes.get(), options);
    const std::vector<Declared> declared = inputs_of(session);
    std::vector<Ort::Value> values;
    for (const Declared& input : declared) {
      const auto given = inputs.find(input.name);
      if (given == inputs.end()) {
        return input_error(path + ": the model has the input '" + input.name +
                           "', which the plan lacks: is it the model that the plan was made from?");
      }
      const Tensor& tensor = given->second;
      if (!goes_with(tensor.shape, input.shape)) {
        return input_error(
            path + ": has input '" + input.name + "' as " + to_text(input.shape) +
            ", and the plan reads " + to_text(tensor.shape) +
            ", as after search --batch: the unsharded model does not run so. Export it with that "
            "shape, or with a free dimension (-1) there");
      }
      values.push_back(view_of(tensor.dtype, tensor.shape, tensor.bytes.data()));
    }
    const std::vector<Declared> outputs = outputs_of(session);
    Reference reference;
    doing = "run the unsharded model on these inputs (given data, else made from the seed)";
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Ort::Value> results;
    for (int step = 0; step < request.steps; ++step) {
      if (step > 0) feed_back(declared, outputs, request.updates, results, values);
      results = run_session(session, Ort::RunOptions(), declared, values, outputs);
    }
    reference.wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!dtype_of(outputs[i].type)) {
        return input_error(path + ": output '" + outputs[i].name +
                           "' is no tensor of a supported type");
      }
      reference.outputs[outputs[i].name] = copy_of(results[i]);
      results[i] = Ort::Value(nullptr);
    }
    return reference;
  } catch (const Ort::Exception& exception) {
    return failure_of(path + ": ONNX Runtime cannot " + doing + ": ", exception, ErrorCode::kInput);
  }
}

}  // namespace autopar
