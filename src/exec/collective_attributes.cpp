#include "exec/collective_attributes.hpp"

#include <algorithm>
#include <set>

#include "exec/reduce.hpp"
#include "exec/tensors.hpp"
#include "support/counted.hpp"

namespace autopar {

const char* axis_attribute(CollectiveKind kind) {
  return kind == CollectiveKind::kAllToAll ? "split_axis" : "axis";
}
bool has_axis(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kShardSlice:
      return true;
    default:
      return false;
  }
}
namespace {

template <class T>
T attribute_or(const Ort::ConstKernelInfo& info, const char* name, T fallback) {
  try {
    return info.GetAttribute<T>(name);
  } catch (const Ort::Exception&) {
    return fallback;
  }
}

}  // namespace

CollectiveAttributes read_attributes(CollectiveKind kind, const Ort::ConstKernelInfo& info) {
  CollectiveAttributes a;
  a.groups = info.GetAttributes<std::int64_t>("groups");
  a.group_size = info.GetAttribute<std::int64_t>("group_size");
  a.seq = attribute_or<std::int64_t>(info, "seq", -1);
  if (has_axis(kind)) a.axis = info.GetAttribute<std::int64_t>(axis_attribute(kind));
  if (kind == CollectiveKind::kAllToAll) {
    a.concat_axis = info.GetAttribute<std::int64_t>("concat_axis");
  }
  if (kind == CollectiveKind::kBroadcast) a.root = attribute_or<std::int64_t>(info, "root", 0);
  if (kind == CollectiveKind::kPermute) a.shift = attribute_or<std::int64_t>(info, "shift", 1);
  if (has_reduction(kind)) a.reduce_op = attribute_or<std::string>(info, "reduce_op", "sum");
  if (is_message(kind)) a.tag = attribute_or<std::int64_t>(info, "tag", 0);
  if (kind == CollectiveKind::kRecv) {
    a.shape = info.GetAttributes<std::int64_t>("shape");
    a.dtype =
        dtype_of(static_cast<ONNXTensorElementDataType>(info.GetAttribute<std::int64_t>("dtype")));
  }
  return a;
}

namespace {

// Pairs of two ranks of the world, no rank twice on one side.
Status verify_pairs(const CollectiveAttributes& a, CollectiveKind kind, int ranks) {
  if (a.group_size != 2 || a.groups.size() % 2 != 0) {
    return input_error("groups " + to_text(a.groups) +
                       " must be pairs of a sender and a receiver, with group_size 2");
  }
  std::set<std::int64_t> sides[2];
  for (std::size_t i = 0; i < a.groups.size(); ++i) {
    if (a.groups[i] >= 0 && a.groups[i] < ranks && sides[i % 2].insert(a.groups[i]).second)
      continue;
    return input_error("groups " + to_text(a.groups) + ": rank " + std::to_string(a.groups[i]) +
                       " must be one of 0.." + std::to_string(ranks - 1) +
                       ", and sender or receiver at most once each");
  }
  if (a.seq < 0) {
    return input_error("the attribute seq (the order of issue, from 0) is missing or negative");
  }
  if (kind == CollectiveKind::kRecv && !a.dtype) {
    return input_error("dtype is no element type that is supported");
  }
  return Ok{};
}

Status verify_all(const CollectiveAttributes& a, int ranks) {
  std::vector<std::int64_t> sorted = a.groups;
  std::sort(sorted.begin(), sorted.end());
  bool partition = static_cast<int>(sorted.size()) == ranks;
  for (std::size_t i = 0; partition && i < sorted.size(); ++i) {
    partition = sorted[i] == static_cast<std::int64_t>(i);
  }
  if (!partition) {
    return input_error("groups " + to_text(a.groups) + " do not hold each of the ranks 0.." +
                       std::to_string(ranks - 1) + " exactly once: is the plan for " +
                       counted(ranks, "rank") + "?");
  }
  return Ok{};
}

// Groups may have ranks of other programs too.
Status verify_own(const CollectiveAttributes& a, const std::vector<std::int64_t>& program,
                  int world) {
  const std::set<std::int64_t> listed(a.groups.begin(), a.groups.end());
  const bool good = listed.size() == a.groups.size() && !listed.empty() && *listed.begin() >= 0 &&
                    *listed.rbegin() < world &&
                    std::all_of(program.begin(), program.end(),
                                [&](std::int64_t rank) { return listed.count(rank) > 0; });
  if (good) return Ok{};
  return input_error("groups " + to_text(a.groups) + " do not hold each of the program's ranks " +
                     to_text(program) + " and of the others at most once");
}

}  // namespace

Status verify(const CollectiveAttributes& a, CollectiveKind kind,
              const std::vector<std::int64_t>& program, int world) {
  if (is_message(kind)) return verify_pairs(a, kind, world);
  if (!program.empty()) {
    AUTOPAR_RETURN_IF_ERROR(verify_own(a, program, world));
  } else if (auto status = verify_all(a, world); !status) {
    return status;
  }
  const auto ranks = static_cast<std::int64_t>(a.groups.size());
  if (a.group_size < 1 || ranks % a.group_size != 0) {
    return input_error("group_size " + std::to_string(a.group_size) + " does not divide the " +
                       std::to_string(ranks) + " ranks");
  }
  if (communicates(kind) && a.seq < 0) {
    return input_error("the attribute seq (the order of issue, from 0) is missing or negative");
  }
  if (kind == CollectiveKind::kBroadcast && (a.root < 0 || a.root >= a.group_size)) {
    return input_error("root " + std::to_string(a.root) + " is no position in a group of " +
                       std::to_string(a.group_size));
  }
  if (has_reduction(kind) && !parse_reduce_op(a.reduce_op)) {
    return input_error("reduce_op '" + a.reduce_op + "' is none of sum, max, min, prod, avg");
  }
  return Ok{};
}

CollectiveCall make_call(CollectiveKind kind, const CollectiveAttributes& a, int rank) {
  CollectiveCall call;
  call.kind = kind;
  call.seq = a.seq;
  call.axis = static_cast<int>(a.axis);
  call.concat_axis = static_cast<int>(a.concat_axis);
  call.root = static_cast<int>(a.root);
  call.shift = a.shift;
  call.reduce_op = a.reduce_op;
  if (is_message(kind)) {
    call.tag = a.tag;
    call.position = kind == CollectiveKind::kSend ? 0 : 1;
    if (kind == CollectiveKind::kRecv) call.dtype = *a.dtype;
    call.output_shape = a.shape;
    for (std::size_t i = static_cast<std::size_t>(call.position); i < a.groups.size(); i += 2) {
      if (a.groups[i] != rank) continue;
      const auto sender = a.groups.begin() + static_cast<std::ptrdiff_t>(i - i % 2);
      call.group.assign(sender, sender + 2);
    }
    return call;
  }
  const auto self = std::find(a.groups.begin(), a.groups.end(), rank) - a.groups.begin();
  const std::int64_t first = self - self % a.group_size;
  call.group.assign(a.groups.begin() + first, a.groups.begin() + first + a.group_size);
  call.position = static_cast<int>(self - first);
  return call;
}

}  // namespace autopar
