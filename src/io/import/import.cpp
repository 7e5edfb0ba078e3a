// From a file's bytes to an ImportedModel: read, elaborate, normalise, verify.
#include "autopar/import.hpp"

#include <algorithm>
#include <charconv>
#include <exception>
#include <filesystem>
#include <set>
#include <utility>

#include "autopar/errors.hpp"
#include "autopar/pattern.hpp"
#include "autopar/sha256.hpp"
#include "autopar/training_roles.hpp"
#include "io/dialects/dialects.hpp"
#include "io/export/model_proto.hpp"
#include "io/import/elaborate.hpp"
#include "io/import/external_locations.hpp"
#include "io/import/import_file.hpp"
#include "io/import/passes.hpp"
#include "io/import/proto_tensor.hpp"
#include "io/import/raise_opset.hpp"
#include "io/onnx_read.hpp"
#include "json/parse.hpp"

namespace autopar {
namespace {

constexpr std::int64_t kMostPasses = 1 << 20;

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

// What is to be trained is no data, unless somebody says so.
void take_parameters(ModelFile& file, const std::vector<std::string>& patterns) {
  if (file.data_inputs) return;
  std::set<std::string> held, data;
  for (const auto& initializer : file.model.graph().initializer()) held.insert(initializer.name());
  bool any = false;
  for (const auto& input : file.model.graph().input()) {
    if (held.count(input.name()) != 0) continue;
    const auto dtype = dtype_of_onnx(input.type().tensor_type().elem_type());
    const bool is_trained = dtype && is_floating(*dtype) && any_matches(patterns, input.name());
    any = any || is_trained;
    if (!is_trained) data.insert(input.name());
  }
  if (any) file.data_inputs = std::move(data);
}

// The caller's word on what is data.
Status take_data_inputs(ModelFile& file, const ImportOptions& options) {
  if (!options.data_inputs) {
    take_parameters(file, options.parameters);
    return Ok{};
  }
  std::set<std::string> inputs;
  std::string names;
  for (const auto& input : file.model.graph().input()) {
    inputs.insert(input.name());
    names += (names.empty() ? "" : ", ") + input.name();
  }
  for (const std::string& name : *options.data_inputs) {
    if (inputs.count(name) != 0) continue;
    return input_error("--data-inputs: the model has no input '" + name + "'; it has " + names);
  }
  file.data_inputs.emplace(options.data_inputs->begin(), options.data_inputs->end());
  return Ok{};
}

// The batch is one for all data inputs: where it is symbolic, the symbol is bound, also where else
// it stands.
Result<ImportOptions> with_batch(ModelFile& file, const ImportOptions& options) {
  ImportOptions batched = options;
  if (options.batch == 0) return batched;
  onnx::GraphProto& graph = *file.model.mutable_graph();
  std::set<std::string> held;
  for (const auto& initializer : graph.initializer()) held.insert(initializer.name());
  std::int64_t before = 0;
  std::string of;
  bool any = false;
  for (auto& input : *graph.mutable_input()) {
    const bool is_data = file.data_inputs ? file.data_inputs->count(input.name()) != 0
                                          : held.count(input.name()) == 0;
    if (!is_data || !input.type().has_tensor_type()) continue;
    auto& shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
    if (shape.dim_size() <= static_cast<int>(options.batch_dim)) continue;
    auto& dim = *shape.mutable_dim(static_cast<int>(options.batch_dim));
    any = true;
    if (!dim.has_dim_value()) {
      const std::string positional = input.name() + "." + std::to_string(options.batch_dim);
      const std::string name = dim.dim_param().empty() ? positional : dim.dim_param();
      const auto [at, fresh] = batched.dims.emplace(name, options.batch);
      if (fresh || at->second == options.batch) continue;
      if (at->second == options.whole_batch) {
        at->second = options.batch;
        continue;
      }
      return usage_error("--batch " + std::to_string(options.batch) + " and --dim " + name + "=" +
                         std::to_string(at->second) + " say different sizes of dimension " +
                         std::to_string(options.batch_dim) + " of input '" + input.name() + "'");
    }
    if (before != 0 && dim.dim_value() != before) {
      return usage_error(
          "--batch: dimension " + std::to_string(options.batch_dim) + " is " +
          std::to_string(before) + " in data input '" + of + "' and " +
          std::to_string(dim.dim_value()) + " in '" + input.name() +
          "', so it is not the batch of both; --data-inputs says which inputs are data, "
          "--batch-dim which dimension is the batch");
    }
    before = dim.dim_value();
    of = input.name();
    dim.set_dim_value(options.batch);
  }
  if (!any) {
    return usage_error("--batch: no data input has a dimension " +
                       std::to_string(options.batch_dim));
  }
  // What the file says of shapes holds for the old size.
  if (before != 0 && before != options.batch) {
    graph.clear_value_info();
    for (auto& output : *graph.mutable_output()) {
      if (output.type().has_tensor_type()) {
        output.mutable_type()->mutable_tensor_type()->clear_shape();
      }
    }
  } else {
    batched.batch = 0;  // it is what the file says, or leaves open
  }
  return batched;
}

Result<Elaboration> elaborate_batched(ModelFile& file, const std::string& folder,
                                      const ImportOptions& options) {
  Result<Elaboration> elaboration = elaborate(file, folder, options);
  if (elaboration || options.batch == 0) return elaboration;
  Error error = elaboration.error();
  if (error.code == ErrorCode::kInput) {
    error.message +=
        "; with --batch " + std::to_string(options.batch) +
        " in place of the model's own batch: a constant of this op, or of one before "
        "it, or what value_info says, may be of the old size; export the model with a "
        "symbolic batch, or run it in --micro-batches auto, which states such constants anew";
  }
  return error;
}

// What a training step's file says of its nodes and of how often they run.
struct Phases {
  std::map<std::string, Phase> of_node;
  std::map<std::string, SumsAt> sums_of_node;
  std::int64_t passes = 1;
  std::set<std::string> accumulators;  // inputs that the passes add to
};

Result<Phases> phases_of(const onnx::ModelProto& model) {
  Phases phases;
  for (const auto& node : model.graph().node()) {
    AUTOPAR_TRY(told, told_phase(node));
    if (told.phase) phases.of_node[node.name()] = *told.phase;
    if (told.sums) phases.sums_of_node[node.name()] = *told.sums;
  }
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() != kTrainingKey) continue;
    AUTOPAR_TRY(training, parse_json(entry.value(), kTrainingKey));
    if (!training.is_object()) continue;
    const auto passes = training.find("micro_batches");
    if (passes == training.end()) continue;
    if (!passes->is_number_integer() || *passes < 1 || *passes > kMostPasses) {
      return input_error(std::string(kTrainingKey) + ": micro_batches is " + passes->dump() +
                         ", expected how often a step runs its passes");
    }
    phases.passes = passes->get<std::int64_t>();
    for (const auto& name : training.value("accumulators", nlohmann::json::array())) {
      if (name.is_string()) phases.accumulators.insert(name.get<std::string>());
    }
  }
  return phases;
}

// Before normalisation, whose ops are of the phase of those they are made of.
void set_phases(const Phases& phases, Graph& graph) {
  graph.passes = phases.passes;
  graph.accumulates = !phases.accumulators.empty();
  for (Op& op : graph.ops) {
    const auto found = phases.of_node.find(op.origin_name);
    if (found != phases.of_node.end()) op.phase = found->second;
    const auto sums = phases.sums_of_node.find(op.origin_name);
    if (sums != phases.sums_of_node.end()) op.sums = sums->second;
  }
  const auto adds_up = [&](const std::string& name) {
    return phases.accumulators.count(name) != 0;
  };
  for (Value& value : graph.values) {
    value.accumulates =
        adds_up(value.name) || (is_next(value.name) && adds_up(input_of_next(value.name)));
  }
}

Result<ImportedModel> import_parsed(ModelFile& file, const std::string& path,
                                    const ImportOptions& options) {
  ImportedModel imported;
  imported.path = path;
  register_collective_schemas();
  imported.ir_version = file.model.ir_version();
  AUTOPAR_RETURN_IF_ERROR(take_data_inputs(file, options));
  imported.tells_data = file.data_inputs.has_value();
  for (const auto& entry : file.model.metadata_props())
    imported.metadata[entry.key()] = entry.value();
  std::vector<std::string> warnings;
  AUTOPAR_RETURN_IF_ERROR(raise_opset(file.model, options.least_opset, warnings));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  AUTOPAR_TRY(batched, with_batch(file, options));
  AUTOPAR_TRY(phases, phases_of(file.model));
  AUTOPAR_TRY(elaboration, elaborate_batched(file, folder, batched));
  set_phases(phases, elaboration.graph);
  imported.graph = std::move(elaboration.graph);
  imported.warnings = std::move(warnings);
  for (auto& warning : elaboration.warnings) imported.warnings.push_back(std::move(warning));
  for (auto& warning : normalise(imported.graph)) imported.warnings.push_back(std::move(warning));
  AUTOPAR_RETURN_IF_ERROR(verify(imported.graph));
  AUTOPAR_RETURN_IF_ERROR(check_names(imported.graph));
  auto of_user_op = std::make_shared<OpsOfUserOp>();
  for (const auto& name : elaboration.user_ops) (*of_user_op)[name];
  for (const Op& op : imported.graph.ops) (*of_user_op)[op.origin_name].push_back(op.name);
  imported.ops_of_user_op = std::move(of_user_op);
  return imported;
}

// `import` with the file's name before whatever goes wrong.
template <class Import>
Result<ImportedModel> in_file(const std::string& path, Import import) {
  const auto named = [&](Error error) {
    error.message = path + ": " + error.message;
    return error;
  };
  try {
    Result<ImportedModel> imported = import();
    if (!imported && imported.error().code == ErrorCode::kInput) return named(imported.error());
    return imported;
  } catch (const std::bad_alloc&) {
    return named(resource_error("there is not enough memory to read it"));
  } catch (const std::exception& error) {
    return named(input_error(error.what()));
  }
}

// What somebody has distributed in the words of another runtime is a program, not a model.
Status check_is_model(ModelFile& file) {
  const auto collective = foreign_collective(file.model);
  if (!collective) return Ok{};
  return input_error("is already a program for several ranks, since " + *collective +
                     " exchanges data between them; `autopar show`, `run` and `price` without "
                     "--strategy take it as it is, search and apply need the model without "
                     "collectives");
}

}  // namespace

Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options) {
  return in_file(path, [&]() -> Result<ImportedModel> {
    AUTOPAR_TRY(mapped, open_file(path));
    AUTOPAR_TRY(file, read_model(mapped.bytes()));
    AUTOPAR_RETURN_IF_ERROR(check_external_locations(file.model, path));
    AUTOPAR_RETURN_IF_ERROR(check_is_model(file));
    AUTOPAR_TRY(imported, import_parsed(file, path, options));
    imported.sha256 = sha256_hex(mapped.bytes());
    return std::move(imported);
  });
}

Result<bool> is_training_step(const std::string& path) {
  const auto named = [&](Error error) {
    if (error.message.rfind(path, 0) != 0) error.message = path + ": " + error.message;
    return error;
  };
  const auto mapped = open_file(path);
  if (!mapped) return named(mapped.error());
  const auto file = read_model(mapped->bytes());
  if (!file) return named(file.error());
  const auto& properties = file->model.metadata_props();
  return std::any_of(properties.begin(), properties.end(),
                     [](const auto& entry) { return entry.key() == kTrainingKey; });
}

Result<ImportedModel> import_model_bytes(std::string_view bytes, const std::string& path,
                                         const ImportOptions& options) {
  return in_file(path, [&]() -> Result<ImportedModel> {
    AUTOPAR_TRY(file, read_model(bytes));
    AUTOPAR_TRY(imported, import_parsed(file, path, options));
    imported.sha256 = sha256_hex(bytes);
    return std::move(imported);
  });
}

Result<ImportedModel> import_file(ModelFile file, const std::string& path,
                                  const ImportOptions& options) {
  return in_file(path, [&] { return import_parsed(file, path, options); });
}

}  // namespace autopar
