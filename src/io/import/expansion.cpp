#include "io/import/expansion.hpp"

#include <onnx/defs/schema.h>

#include <algorithm>

#include "io/import/proto_op.hpp"

namespace autopar {
namespace {

// Ten times the nodes of a training step of 126 layers.
constexpr std::int64_t kMaxNodes = 500'000;
constexpr std::int64_t kMaxDepth = 64;

struct Extent {
  std::int64_t nodes = 0;   // each call counted as what it calls; at most kMaxNodes + 1
  std::int64_t height = 0;  // of the calls inside, one in the other
};

class Expansion {
 public:
  explicit Expansion(const Functions& functions) : functions_(functions) {}

  Result<Extent> extent_of(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes,
                           int depth) {
    Extent total;
    for (const auto& node : nodes) {
      AUTOPAR_RETURN_IF_ERROR(add(node, depth, total));
    }
    return total;
  }

 private:
  Status add(const onnx::NodeProto& node, int depth, Extent& total) {
    const auto include = [&](const Extent& part, std::int64_t levels) {
      total.nodes = std::min(total.nodes + part.nodes, kMaxNodes + 1);
      total.height = std::max(total.height, part.height + levels);
    };
    include({1, 0}, 0);
    for (const auto& attribute : node.attribute()) {
      if (!attribute.has_g()) continue;
      AUTOPAR_TRY(branch, extent_of(attribute.g().node(), depth));
      include(branch, 0);
    }
    const onnx::FunctionProto* function = called_function(functions_, node);
    if (!function) return Ok{};
    if (!extents_.count(function) && depth < kMaxDepth) {
      AUTOPAR_TRY(body, extent_of(function->node(), depth + 1));
      extents_[function] = body;
    }
    const auto found = extents_.find(function);
    if (found == extents_.end() || found->second.height >= kMaxDepth) {
      return input_error(label(name_of_node(node), node) + ": functions are nested more than " +
                         std::to_string(kMaxDepth) + " deep; do they call themselves?");
    }
    include(found->second, 1);
    return Ok{};
  }

  const Functions& functions_;
  std::map<const onnx::FunctionProto*, Extent> extents_;  // looked up only, never walked
};

}  // namespace

Functions functions_of(const onnx::ModelProto& model) {
  Functions functions;
  for (const auto& function : model.functions()) {
    functions.emplace(function.domain() + "::" + function.name() + "::" + function.overload(),
                      &function);
  }
  return functions;
}

const onnx::FunctionProto* called_function(const Functions& functions,
                                           const onnx::NodeProto& node) {
  if (functions.empty()) return nullptr;
  if (domain_of(node).empty() && onnx::OpSchemaRegistry::Schema(node.op_type())) return nullptr;
  const auto found = functions.find(node.domain() + "::" + node.op_type() + "::" + node.overload());
  return found == functions.end() ? nullptr : found->second;
}

Status check_expansion(const onnx::ModelProto& model, const Functions& functions) {
  AUTOPAR_TRY(extent, Expansion(functions).extent_of(model.graph().node(), 0));
  if (extent.nodes > kMaxNodes) {
    return input_error("the model has more than " + std::to_string(kMaxNodes) +
                       " ops after its functions are inlined");
  }
  return Ok{};
}

}  // namespace autopar
