#include "exec/cuda_provider.hpp"

#include <algorithm>
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
  const std::string number = std::to_string(gpu);
  const char* key = "device_id";
  const char* value = number.c_str();
  try {
    Ort::ThrowOnError(api.CreateCUDAProviderOptions(&cuda));
    const Ort::Status chosen(api.UpdateCUDAProviderOptions(cuda, &key, &value, 1));
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
