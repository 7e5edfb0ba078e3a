// ONNX Runtime: com.microsoft's AllReduce, AllGather and AllToAll, among all ranks. Source: ONNX
// Runtime, core/graph/contrib_ops/collective_defs.cc and contrib_ops/cuda/collective.
#include "io/dialects/dialects.hpp"

namespace autopar {
namespace {

Status check_size(const ForeignNode& node, std::int64_t ranks) {
  if (!node.has("group_size")) {
    return node.expected("group_size", std::to_string(ranks) + ", the number of ranks",
                         "none, which com.microsoft takes for 1");
  }
  AUTOPAR_TRY(size, node.integer("group_size", 1));
  if (size == ranks) return Ok{};
  return node.expected("group_size",
                       std::to_string(ranks) +
                           ", the number of ranks, since com.microsoft's "
                           "collectives run among all of them",
                       std::to_string(size));
}

Error no_words_for(const onnx::NodeProto& node, const std::string& type) {
  std::string reason, hint = "ops of the domain ai.autopar in its place";
  if (type == "Send" || type == "Recv") {
    reason = "its remote rank is an input, known only when it runs";
    hint = "Send and Recv of the domain ai.autopar, whose groups are pairs of ranks";
  } else if (type.rfind("Nccl", 0) == 0) {
    reason =
        "its group_type names a group that only the training runtime knows, and it takes its "
        "tensors as one buffer";
    hint = "com.microsoft's AllReduce, AllGather and AllToAll, or ops of the domain ai.autopar";
  } else {
    reason = "it computes and communicates in one";
    hint = "the local op, with collectives of com.microsoft or ai.autopar before and after it";
  }
  return input_error(foreign_label(node) + ": " + reason + ", so it is not read; try " + hint);
}

}  // namespace

std::int64_t ranks_said_by_ort(const onnx::NodeProto& node) {
  for (const auto& attribute : node.attribute()) {
    if (attribute.name() == "group_size") return attribute.i();
  }
  return 0;
}

Status translate_ort(onnx::NodeProto& proto, std::int64_t ranks) {
  const std::string type = proto.op_type();
  std::vector<std::string> known;
  if (type == "AllGather") {
    known = {"axis", "group_size"};
  } else if (type == "AllToAll") {
    known = {"group_size"};
  } else if (type != "AllReduce") {
    return no_words_for(proto, type);
  }
  AUTOPAR_TRY(node, ForeignNode::of(proto, known));
  AUTOPAR_TRY(size, node.integer("group_size", 1));
  if (size < 1) return node.expected("group_size", "a number of ranks", std::to_string(size));
  if (ranks < 1) return ranks_unknown(node);
  if (type != "AllReduce") AUTOPAR_RETURN_IF_ERROR(check_size(node, ranks));
  if (type == "AllGather" && !node.has("axis")) {
    // The schema's default is 1, that of the kernel 0.
    return node.expected("axis", "a dimension, since ONNX Runtime has two defaults for it", "none");
  }
  AUTOPAR_TRY(axis, node.integer("axis", 0));
  if (axis < 0) return node.expected("axis", "a dimension counted from 0", std::to_string(axis));
  node.become(type, all_ranks(ranks), ranks);
  if (type == "AllReduce") node.set("reduce_op", std::string("sum"));
  if (type == "AllGather") node.set("axis", axis);
  if (type == "AllToAll") {
    node.set("split_axis", std::int64_t{0});
    node.set("concat_axis", std::int64_t{0});
  }
  return Ok{};
}

}  // namespace autopar
