#include <array>

#include "autopar/comm.hpp"

namespace autopar {
namespace {

constexpr std::array kKinds = {CollectiveKind::kAllReduce,     CollectiveKind::kAllGather,
                               CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll,
                               CollectiveKind::kBroadcast,     CollectiveKind::kPermute,
                               CollectiveKind::kShardSlice,    CollectiveKind::kMakePartial,
                               CollectiveKind::kSend,          CollectiveKind::kRecv};

}  // namespace

const char* name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "AllReduce";
    case CollectiveKind::kAllGather:
      return "AllGather";
    case CollectiveKind::kReduceScatter:
      return "ReduceScatter";
    case CollectiveKind::kAllToAll:
      return "AllToAll";
    case CollectiveKind::kBroadcast:
      return "Broadcast";
    case CollectiveKind::kPermute:
      return "Permute";
    case CollectiveKind::kShardSlice:
      return "ShardSlice";
    case CollectiveKind::kMakePartial:
      return "MakePartial";
    case CollectiveKind::kSend:
      return "Send";
    case CollectiveKind::kRecv:
      return "Recv";
  }
  return "";
}

std::optional<CollectiveKind> parse_collective_kind(const std::string& op_type) {
  for (CollectiveKind kind : kKinds) {
    if (op_type == name_of(kind)) return kind;
  }
  return std::nullopt;
}

bool communicates(CollectiveKind kind) {
  return kind != CollectiveKind::kShardSlice && kind != CollectiveKind::kMakePartial;
}

bool is_slice(const Op& op) {
  return is_collective(op) && op.type == name_of(CollectiveKind::kShardSlice);
}

bool exchanges_data(const Op& op) {
  const std::optional<CollectiveKind> kind = parse_collective_kind(op.type);
  return is_collective(op) && kind && communicates(*kind);
}

std::optional<Reduction> reduction_of(const Op& op) {
  const std::string name = op.string_attribute("reduce_op", "sum");
  if (name == "avg") return Reduction::kSum;
  for (Reduction reduction :
       {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd}) {
    if (name == name_of(reduction)) return reduction;
  }
  return std::nullopt;
}

std::string to_text(const Collective& collective, const Mesh& mesh) {
  std::string text = std::string(name_of(collective.kind)) + " {";
  for (std::size_t i = 0; i < collective.axes.size(); ++i) {
    if (i > 0) text += ',';
    text += mesh.axes[static_cast<std::size_t>(collective.axes[i])].name;
  }
  text += "}";
  if (collective.axis >= 0) text += " " + std::to_string(collective.axis);
  if (collective.concat_axis >= 0) text += " " + std::to_string(collective.concat_axis);
  if (collective.reduction != Reduction::kSum) {
    text += std::string(" ") + name_of(collective.reduction);
  }
  return text;
}

double sent_bytes(const Collective& collective, double input_bytes, const Mesh& mesh) {
  return sent_bytes(collective.kind, input_bytes, axes_size(mesh, collective.axes));
}

double sent_bytes(CollectiveKind kind, double input_bytes, std::int64_t group_size) {
  const auto n = static_cast<double>(group_size);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n * input_bytes;
    case CollectiveKind::kAllGather:
      return (n - 1) * input_bytes;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kBroadcast:
      return (n - 1) / n * input_bytes;
    case CollectiveKind::kPermute:
    case CollectiveKind::kSend:
      return input_bytes;
    case CollectiveKind::kShardSlice:
    case CollectiveKind::kMakePartial:
    case CollectiveKind::kRecv:
      return 0;
  }
  return 0;
}

Shape input_shape(const Collective& collective, const Shape& output, const Mesh& mesh) {
  const std::int64_t n = axes_size(mesh, collective.axes);
  const auto axis = static_cast<std::size_t>(collective.axis);
  Shape input = output;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute:
    case CollectiveKind::kMakePartial:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
    case CollectiveKind::kAllGather:
      input[axis] /= n;
      break;
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kShardSlice:
      input[axis] *= n;
      break;
    case CollectiveKind::kAllToAll:
      input[axis] *= n;
      input[static_cast<std::size_t>(collective.concat_axis)] /= n;
      break;
  }
  return input;
}

}  // namespace autopar
