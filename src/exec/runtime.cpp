#include "exec/runtime.hpp"

#include "exec/library.hpp"

namespace autopar {

namespace {

Result<std::string> open_library() {
  AUTOPAR_TRY(api_base, open_first(library_candidates()));
  const std::string version = api_base->GetVersionString();
  const OrtApi* api = api_base->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    return input_error("the ONNX Runtime library that was found is " + version + ", but 1." +
                       std::to_string(ORT_API_VERSION) +
                       " or newer is needed: run scripts/setup, or set AUTOPAR_ORT to a newer one");
  }
  Ort::InitApi(api);
  return version;
}

}  // namespace

Result<std::string> open_onnx_runtime() {
  static const Result<std::string> opened = open_library();
  return opened;
}

Result<std::string> onnx_runtime_version() { return open_onnx_runtime(); }

}  // namespace autopar
