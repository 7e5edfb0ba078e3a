// Whether two files hold one program: node by node as they are, so that nothing of what runs can
// differ from what was proven.
#include <algorithm>
#include <filesystem>

#include "autopar/program_bytes.hpp"
#include "io/export/model_proto.hpp"

namespace autopar {
namespace {

std::string name_of(const onnx::NodeProto& node) {
  return node.op_type() + " '" + node.name() + "'";
}

// The same file of another folder is the same data to its own program.
void drop_folders(onnx::GraphProto& graph) {
  for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
    for (auto& entry : *tensor.mutable_external_data()) {
      if (entry.key() != "location") continue;
      entry.set_value(std::filesystem::path(entry.value()).filename().string());
    }
  }
}

template <class Message>
bool same(const Message& a, const Message& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

std::string difference_of_nodes(const LeanModel& found, const LeanModel& expected) {
  const auto& nodes = found.proto.graph().node();
  const auto& others = expected.proto.graph().node();
  for (int n = 0; n < std::min(nodes.size(), others.size()); ++n) {
    const auto at = static_cast<std::size_t>(n);
    const bool alike = same(nodes[n], others[n]) && found.groups[at] == expected.groups[at];
    if (alike) continue;
    const std::string name = name_of(nodes[n]);
    const std::string other = name_of(others[n]);
    return name == other ? name + " differs" : name + " stands in the place of " + other;
  }
  if (nodes.size() == others.size()) return "";
  return "it has " + std::to_string(nodes.size()) + " ops, expected " +
         std::to_string(others.size());
}

std::string difference_of(LeanModel& found, LeanModel& expected) {
  const std::string nodes = difference_of_nodes(found, expected);
  if (!nodes.empty()) return nodes;
  for (LeanModel* model : {&found, &expected}) {
    drop_folders(*model->proto.mutable_graph());
    model->proto.mutable_graph()->clear_node();
  }
  const auto& weights = found.proto.graph().initializer();
  const auto& others = expected.proto.graph().initializer();
  for (int w = 0; w < std::min(weights.size(), others.size()); ++w) {
    if (!same(weights[w], others[w])) return "initializer '" + weights[w].name() + "' differs";
  }
  if (same(found.proto, expected.proto)) return "";
  return "its inputs, outputs, initializers or metadata_props differ";
}

}  // namespace

Result<std::string> difference_of_programs(const std::string& path, const std::string& expected) {
  AUTOPAR_TRY(model, read_model(path));
  AUTOPAR_TRY(other, read_model(expected));
  return difference_of(model, other);
}

}  // namespace autopar
