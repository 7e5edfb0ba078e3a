// TensorRT: DistCollective works along dimension 0, among the ranks that its `groups` lists, or all
// where it lists none. Source: the operator page DistCollective of TensorRT's documentation and the
// graphs of `polygraphy multi-device shard`.
#include <algorithm>
#include <cctype>
#include <limits>
#include <set>

#include "io/dialects/dialects.hpp"

namespace autopar {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string list_of(const std::vector<std::int64_t>& values) {
  std::string text;
  for (std::int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return "[" + text + "]";
}

// Those that take part, in order.
Result<std::vector<std::int64_t>> group_of(const ForeignNode& node, std::int64_t ranks) {
  AUTOPAR_TRY(group, node.integers("groups"));
  const bool listed = !group.empty();
  if (!listed) {
    if (ranks < 1) return ranks_unknown(node);
    group = all_ranks(ranks);
  }
  const auto n = static_cast<std::int64_t>(group.size());
  const std::set<std::int64_t> members(group.begin(), group.end());
  const bool good = static_cast<std::int64_t>(members.size()) == n && *members.begin() >= 0 &&
                    (ranks < 1 || *members.rbegin() < ranks);
  if (!good) {
    return node.expected("groups",
                         "ranks from 0 to " + std::to_string(std::max<std::int64_t>(ranks, 1) - 1) +
                             ", each at most once",
                         list_of(group));
  }
  const std::string count =
      std::to_string(n) + (listed ? ", as many as groups lists" : ", the number of ranks");
  AUTOPAR_TRY(nb_rank, node.integer("nb_rank", n));
  if (nb_rank != n) return node.expected("nb_rank", count, std::to_string(nb_rank));
  AUTOPAR_TRY(size, node.integer("group_size", n));
  const bool unused = !listed && size <= 0;  // "no groups"
  if (size != n && !unused) return node.expected("group_size", count, std::to_string(size));
  return group;
}

Result<std::string> reduce_op_of(const ForeignNode& node, bool reduces) {
  AUTOPAR_TRY(text, node.text("reduce_op", "none"));
  const std::string reduce_op = lower(text);
  static const std::set<std::string> known = {"sum", "prod", "max", "min", "avg"};
  if (reduces ? known.count(reduce_op) > 0 : reduce_op == "none") return reduce_op;
  return node.expected("reduce_op",
                       reduces ? "sum, prod, max, min or avg" : "none, since nothing is reduced",
                       "'" + text + "'");
}

// A position in the group. Whether TensorRT means that or a rank is not said, so that both have to
// be the same.
Result<std::int64_t> root_of(const ForeignNode& node, const std::vector<std::int64_t>& group) {
  AUTOPAR_TRY(root, node.integer("root", -1));
  if (root < 0 || root >= static_cast<std::int64_t>(group.size())) {
    return node.expected("root", "from 0 to " + std::to_string(group.size() - 1),
                         std::to_string(root));
  }
  if (group[static_cast<std::size_t>(root)] == root) return root;
  return node.refuse("root " + std::to_string(root) +
                         " is one rank as a rank, another as a place "
                         "in groups " +
                         list_of(group),
                     "groups in which both are the same, or an op of the domain ai.autopar");
}

Status check_no_root(const ForeignNode& node) {
  AUTOPAR_TRY(root, node.integer("root", -1));
  if (root == -1) return Ok{};
  return node.expected("root", "-1, since it has none", std::to_string(root));
}

}  // namespace

std::int64_t ranks_said_by_trt(const onnx::NodeProto& node) {
  std::int64_t ranks = 0;
  for (const auto& attribute : node.attribute()) {
    const std::string& name = attribute.name();
    if (name == "nb_rank" || name == "group_size")
      ranks = std::max<std::int64_t>(ranks, attribute.i());
    if (name != "groups") continue;
    constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max() - 1;
    for (std::int64_t rank : attribute.ints()) ranks = std::max(ranks, std::min(rank, kLast) + 1);
  }
  return ranks;
}

Status translate_trt(onnx::NodeProto& proto, std::int64_t ranks) {
  AUTOPAR_TRY(node, ForeignNode::of(proto, {"collective_operation", "reduce_op", "root", "groups",
                                            "group_size", "nb_rank"}));
  if (!proto.domain().empty() && proto.domain() != "ai.onnx") {
    return node.refuse("TensorRT has it in ONNX's own domain; what it is in another is not known",
                       "the op without a domain");
  }
  AUTOPAR_TRY(text, node.text("collective_operation", ""));
  const std::string operation = lower(text);
  AUTOPAR_TRY(group, group_of(node, ranks));
  const auto n = static_cast<std::int64_t>(group.size());
  const bool reduces =
      operation == "all_reduce" || operation == "reduce_scatter" || operation == "reduce";
  AUTOPAR_TRY(reduce_op, reduce_op_of(node, reduces));
  const bool moves = operation == "all_gather" || operation == "all_to_all";
  if (moves || (reduces && operation != "reduce")) {
    AUTOPAR_RETURN_IF_ERROR(check_no_root(node));
  }
  if (operation == "all_reduce") {
    node.become("AllReduce", group, n);
    node.set("reduce_op", reduce_op);
  } else if (operation == "all_gather") {
    node.become("AllGather", group, n);
    node.set("axis", std::int64_t{0});
  } else if (operation == "reduce_scatter") {
    node.become("ReduceScatter", group, n);
    node.set("axis", std::int64_t{0});
    node.set("reduce_op", reduce_op);
  } else if (operation == "all_to_all") {
    node.become("AllToAll", group, n);
    node.set("split_axis", std::int64_t{0});
    node.set("concat_axis", std::int64_t{0});
  } else if (operation == "broadcast") {
    AUTOPAR_TRY(root, root_of(node, group));
    node.become("Broadcast", group, n);
    node.set("root", root);
  } else if (operation == "reduce") {
    return node.refuse("only the root has a result, and ai.autopar has no such op", "all_reduce");
  } else if (operation == "gather") {
    return node.refuse("only the root has a result, and ai.autopar has no such op", "all_gather");
  } else if (operation == "scatter") {
    return node.refuse("ai.autopar has no such op",
                       "broadcast and a slice, or reduce_scatter with max of what all ranks have "
                       "alike");
  } else {
    return node.expected("collective_operation",
                         "all_reduce, all_gather, reduce_scatter, all_to_all or broadcast",
                         "'" + text + "'");
  }
  return Ok{};
}

}  // namespace autopar
