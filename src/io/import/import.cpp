// From a file's bytes to an ImportedModel: read, elaborate, normalise, verify.
#include "autopar/import.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "autopar/sha256.hpp"
#include "io/import/elaborate.hpp"
#include "io/import/passes.hpp"
#include "io/onnx_read.hpp"

namespace autopar {
namespace {

Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& path,
                                   const ImportOptions& options) {
  ImportedModel imported;
  imported.path = path;
  imported.sha256 = sha256_hex(bytes);
  AUTOPAR_TRY(file, read_model(bytes));
  imported.ir_version = file.model.ir_version();
  for (const auto& entry : file.model.metadata_props())
    imported.metadata[entry.key()] = entry.value();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  AUTOPAR_TRY(elaboration, elaborate(file, folder, options));
  imported.graph = std::move(elaboration.graph);
  imported.warnings = std::move(elaboration.warnings);
  for (auto& warning : normalise(imported.graph)) imported.warnings.push_back(std::move(warning));
  AUTOPAR_RETURN_IF_ERROR(verify(imported.graph));
  for (const auto& name : elaboration.user_ops) imported.ops_of_user_op[name];
  for (const Op& op : imported.graph.ops)
    imported.ops_of_user_op[op.origin_name].push_back(op.name);
  return imported;
}

}  // namespace

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  const auto in_file = [&](Error error) {
    error.message = path + ": " + error.message;
    return error;
  };
  try {
    auto file = open_file(path);
    if (!file) return in_file(file.error());
    auto imported = import_bytes(file->bytes(), path, options);
    if (!imported && imported.error().code == ErrorCode::kInput) return in_file(imported.error());
    return imported;
  } catch (const std::bad_alloc&) {
    return in_file(input_error("there is not enough memory to read it"));
  } catch (const std::exception& error) {
    return in_file(input_error(error.what()));
  }
}

}  // namespace autopar
