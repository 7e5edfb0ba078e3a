// The import of a model that has been read, and perhaps changed, already.
#pragma once

#include "autopar/import.hpp"
#include "io/onnx_read.hpp"

namespace autopar {

// As import_model, of what was read from `path`. The SHA-256 is left out.
Result<ImportedModel> import_file(ModelFile file, const std::string& path,
                                  const ImportOptions& options);

}  // namespace autopar
