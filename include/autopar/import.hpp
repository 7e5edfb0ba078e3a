// Model files in: ONNX or graph.json -> a normalised Graph in which every value has a static shape.
//
//   Result<ImportedModel> model = import_model("gpt2.onnx", {.dims = {{"batch", 32}}});
//   model->graph                         // ops in topological order, Gemm split, shapes folded
//   model->ops_of_user_op->at("fc1")      // {"fc1", "fc1/add"}
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

struct ImportOptions {
  // Sizes of symbolic dimensions by name (`--dim batch=32`).
  std::map<std::string, std::int64_t> dims;
  // Results of constant folding above this size stay ops.
  std::int64_t fold_limit_bytes = std::int64_t{1} << 20;
  // Which output holds the next value of which input: `*` stands for the input's name. Such inputs
  // are parameters (weights, optimizer state), unless the file says that they are data.
  std::string updates = kNextPattern;
  // Which graph inputs are data, where the caller says so; the others are parameters. Wins over
  // what the file says. A name that is no input is an error.
  std::optional<std::vector<std::string>> data_inputs = {};
  // Patterns of what is trained: where neither the caller nor the file says which inputs are data,
  // floating-point inputs of these names are none.
  std::vector<std::string> parameters = {};
  // The extent of dimension `batch_dim` of every data input that has so many dimensions, whether
  // the file says another one or none; 0: as the file says.
  std::int64_t batch = 0;
  // Where `batch` is a part of the batch: the whole. A symbol that `dims` gives this extent is of
  // `batch`.
  std::int64_t whole_batch = 0;
  std::size_t batch_dim = 0;
  // A file of an older opset is taken as one of this opset, with a warning (up to 16; an op that
  // means another thing there is an error).
  std::int64_t least_opset = 0;
};

// The ops of a graph that each op of the file became, by names.
using OpsOfUserOp = std::map<std::string, std::vector<std::string>>;

struct ImportedModel {
  Graph graph;
  std::string path;
  std::string sha256;                           // of the file's bytes
  std::vector<std::string> warnings;            // in the order in which they arose
  std::map<std::string, std::string> metadata;  // the file's metadata_props
  std::int64_t ir_version = 0;                  // 0: the file is graph.json
  bool tells_data = false;  // the file says which of its inputs are data, the others parameters
  // For every op of the file, the ops of `graph` that it became, in graph order; none where it was
  // folded into a constant, was an identity, or did not contribute to an output. Copies share it.
  std::shared_ptr<const OpsOfUserOp> ops_of_user_op = std::make_shared<const OpsOfUserOp>();
};

// Reads an ONNX model (opset 13 to 26) or a graph.json; which one it is shows in the content.
// Weights may be inline, external (the file need not exist) or graph inputs. Errors name the file,
// the op and what to try.
Result<ImportedModel> import_model(const std::string& path, const ImportOptions& options = {});

// Whether ONNX's schema of the op, of its default domain at that opset, allows the type where it
// allows floating-point inputs; true for other domains and for ops that take none.
bool op_takes(const Op& op, std::int64_t opset, DType dtype);

// The same of a file's bytes that are in memory; `path`: where external data lies, and for
// messages.
Result<ImportedModel> import_model_bytes(std::string_view bytes, const std::string& path,
                                         const ImportOptions& options = {});

// Whether a file is a training step, by its metadata_props["autopar.training"]. Reads no more than
// the file itself. Errors as above.
Result<bool> is_training_step(const std::string& path);

// A graph that was changed since it was imported, once more from the start: written as a file in
// memory, held to ONNX's shape inference with the shapes that it has, and imported. `path` as
// above.
Result<ImportedModel> import_graph(const Graph& graph, const std::string& path);

// The initializers of an ONNX file's main graph, in its order, without their data: what the file
// holds as raw bytes is told as ExternalData in the file itself. Other forms are converted. Errors
// name the file and the initializer.
Result<std::vector<Value>> initializers_of(const std::string& path);

}  // namespace autopar
