#include "exec/cuda_provider.hpp"

#include <algorithm>
#include <array>
#include <vector>

namespace autopar {

std::string add_cuda_provider(Ort::SessionOptions& options, int gpu) {
  if (gpu < 0) return "there is no GPU";
  const std::vector<std::string> available = Ort::GetAvailableProviders();
  if (std::find(available.begin(), available.end(), "CUDAExecutionProvider") == available.end()) {
    return "this ONNX Runtime has no CUDA provider";
  }
  const OrtApi& api = Ort::GetApi();
  OrtCUDAProviderOptionsV2* cuda = nullptr;
  // TensorFloat-32 would take a thousandth of every product: it is not what the model says.
  const std::string number = std::to_string(gpu);
  const std::array<const char*, 2> keys = {"device_id", "use_tf32"};
  const std::array<const char*, 2> values = {number.c_str(), "0"};
  try {
    Ort::ThrowOnError(api.CreateCUDAProviderOptions(&cuda));
    const Ort::Status chosen(
        api.UpdateCUDAProviderOptions(cuda, keys.data(), values.data(), keys.size()));
    if (!chosen.IsOK()) throw Ort::Exception(chosen.GetErrorMessage(), chosen.GetErrorCode());
    options.AppendExecutionProvider_CUDA_V2(*cuda);
    api.ReleaseCUDAProviderOptions(cuda);
    return "";
  } catch (const Ort::Exception& exception) {
    if (cuda != nullptr) api.ReleaseCUDAProviderOptions(cuda);
    return std::string("its CUDA provider cannot be used: ") + exception.what();
  }
}

}  // namespace autopar
