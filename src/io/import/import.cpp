// From a file's bytes to an ImportedModel: read, elaborate, normalise, verify.
#include "autopar/import.hpp"

#include <exception>
#include <filesystem>
#include <utility>

#include "autopar/sha256.hpp"
#include "io/export/programs.hpp"
#include "io/import/elaborate.hpp"
#include "io/import/passes.hpp"
#include "io/onnx_read.hpp"

namespace autopar {
namespace {

// Of the lead byte of a code point: how many bytes follow; -1 for none.
int followers(unsigned char lead) {
  if (lead < 0x80) return 0;
  if (lead >= 0xC2 && lead <= 0xDF) return 1;
  if (lead >= 0xE0 && lead <= 0xEF) return 2;
  return lead >= 0xF0 && lead <= 0xF4 ? 3 : -1;
}

bool is_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(i);
    const int more = followers(lead);
    if (more < 0 || text.size() - i <= static_cast<std::size_t>(more)) return false;
    for (int k = 1; k <= more; ++k) {
      if ((byte(i + static_cast<std::size_t>(k)) & 0xC0) != 0x80) return false;
    }
    // Overlong forms, surrogates, beyond U+10FFFF.
    if (more > 1) {
      const unsigned char next = byte(i + 1);
      if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
          (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F)) {
        return false;
      }
    }
    i += static_cast<std::size_t>(more) + 1;
  }
  return true;
}

// Names go into JSON files and into the plan, which hold UTF-8.
Status check_names(const Graph& graph) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (is_utf8(op.name) && is_utf8(op.type) && is_utf8(op.origin_name)) continue;
    return input_error("the name of op " + std::to_string(o) + " is not UTF-8");
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (is_utf8(graph.values[v].name)) continue;
    const Value& value = graph.values[v];
    const std::string producer = value.kind == ValueKind::kActivation
                                     ? " (of op '" + graph.op(value.producer).name + "')"
                                     : "";
    return input_error("the name of value " + std::to_string(v) + producer + " is not UTF-8");
  }
  if (!is_utf8(graph.name)) return input_error("the name of the graph is not UTF-8");
  return Ok{};
}

Result<ImportedModel> import_bytes(std::string_view bytes, const std::string& path,
                                   const ImportOptions& options) {
  ImportedModel imported;
  imported.path = path;
  imported.sha256 = sha256_hex(bytes);
  AUTOPAR_TRY(file, read_model(bytes));
  register_collective_schemas();
  AUTOPAR_RETURN_IF_ERROR(check_known_collectives(file.model));
  imported.ir_version = file.model.ir_version();
  for (const auto& entry : file.model.metadata_props())
    imported.metadata[entry.key()] = entry.value();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  AUTOPAR_TRY(elaboration, elaborate(file, folder, options));
  imported.graph = std::move(elaboration.graph);
  imported.warnings = std::move(elaboration.warnings);
  for (auto& warning : normalise(imported.graph)) imported.warnings.push_back(std::move(warning));
  AUTOPAR_RETURN_IF_ERROR(verify(imported.graph));
  AUTOPAR_RETURN_IF_ERROR(check_names(imported.graph));
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
