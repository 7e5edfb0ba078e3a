// Walks a model once, in order, and builds the graph: every node's shapes are inferred and its
// value is folded, if it is known, before the next node is looked at. So shape arithmetic, `If` on
// a constant condition and calls of model-local functions are resolved where they stand, and no
// pass has to be repeated. Linear in the number of nodes.
#pragma once

#include <string>
#include <vector>

#include "autopar/import.hpp"
#include "io/onnx_read.hpp"

namespace autopar {

// A graph output may still be an input or a constant.
struct Elaboration {
  Graph graph;
  std::vector<std::string> warnings;
  std::vector<std::string> user_ops;  // names of the file's own ops, in its order
};

// `folder`: where external data lies. Takes weights out of `file`.
Result<Elaboration> elaborate(ModelFile& file, const std::string& folder,
                              const ImportOptions& options);

}  // namespace autopar
