// What names mean while nodes are walked.
#pragma once

#include <onnx/onnx_pb.h>

#include <map>
#include <string>
#include <unordered_map>

#include "autopar/ir.hpp"

namespace autopar {

// The main graph, the body of a function call, or a branch of an `If`.
struct Scope {
  const Scope* parent = nullptr;  // whose names are visible too: for branches only
  std::unordered_map<std::string, ValueId> values;
  // The ops and values of a body are named "<prefix><name>"; of the main graph, as they are.
  std::string prefix;
  // Names that the caller has for values that the body produces.
  std::map<std::string, std::string> outer_names;
  // Attributes that the nodes of a function body refer to; null where the call leaves them out.
  std::map<std::string, const onnx::AttributeProto*> attributes;
  std::map<std::string, std::int64_t> opsets;
  // The user's op that the body belongs to; empty: the nodes are the user's own.
  std::string origin_name;
  std::string origin_type;
  int depth = 0;

  bool is_main() const { return depth == 0; }
  // Null: the name is not there. An invalid id: an optional input that the call leaves out.
  const ValueId* lookup(const std::string& name) const {
    for (const Scope* scope = this; scope; scope = scope->parent) {
      if (auto found = scope->values.find(name); found != scope->values.end()) {
        return &found->second;
      }
    }
    return nullptr;
  }
  ValueId find(const std::string& name) const {
    const ValueId* id = lookup(name);
    return id ? *id : ValueId();
  }
};

// A stable topological order of `nodes[first..]`, given that everything before `first` is there.
// Kahn's algorithm with the smallest index first: O((n + e) log n). Cycles are an error.
using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
Result<std::vector<int>> topological_order(const Nodes& nodes, int first);
// All names that a node reads, also inside its subgraphs (names that these define included).
std::vector<std::string> names_read(const onnx::NodeProto& node);

}  // namespace autopar
