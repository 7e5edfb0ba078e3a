// What a program that was written by hand leaves out of its collectives.
#include <algorithm>
#include <limits>
#include <set>

#include "partition/collectives.hpp"
#include "partition/program.hpp"
#include "support/counted.hpp"

namespace autopar {
namespace {

std::string type_and_name(const Op& op) { return op.type + " '" + op.name + "'"; }

class Completion {
 public:
  Completion(Graph& program, const Mesh& mesh) : program_(program), mesh_(mesh) {}

  Result<std::vector<std::string>> run() {
    for (Op& op : program_.ops) {
      if (is_collective(op)) AUTOPAR_RETURN_IF_ERROR(complete_attributes(op));
    }
    AUTOPAR_RETURN_IF_ERROR(number());
    order();
    return std::move(warnings_);
  }

 private:
  Status complete_attributes(Op& op) {
    const auto kind = parse_collective_kind(op.type);
    if (!kind || *kind == CollectiveKind::kMakePartial) {
      return collective_error(
          op,
          "is not an op of this domain; there are AllReduce, AllGather, "
          "ReduceScatter, AllToAll, Broadcast, Permute, ShardSlice, Send, Recv");
    }
    const auto groups = op.attributes.find("groups");
    if (groups == op.attributes.end() || !std::holds_alternative<IntList>(groups->second)) {
      return collective_error(op,
                              "needs the attribute groups: the ranks of all groups, one group "
                              "after the other");
    }
    share(std::get<IntList>(groups->second));
    if (is_message(*kind)) op.attributes.try_emplace("group_size", std::int64_t{2});
    if (op.int_attribute("group_size", 0) < 1) {
      return collective_error(op, "needs the attribute group_size: how many ranks a group has");
    }
    const bool reduces =
        *kind == CollectiveKind::kAllReduce || *kind == CollectiveKind::kReduceScatter;
    if (reduces) op.attributes.try_emplace("reduce_op", std::string("sum"));
    if (*kind == CollectiveKind::kBroadcast) op.attributes.try_emplace("root", std::int64_t{0});
    if (*kind == CollectiveKind::kPermute) op.attributes.try_emplace("shift", std::int64_t{1});
    AUTOPAR_RETURN_IF_ERROR(complete_axes(op, *kind));
    drop_unknown_mesh_axes(op);
    return Ok{};
  }

  // Thousands of collectives have few lists.
  void share(IntList& groups) { groups = *lists_.insert(Listed{groups}).first; }

  Status complete_axes(Op& op, CollectiveKind kind) {
    std::vector<const char*> names;
    if (kind == CollectiveKind::kAllToAll) {
      names = {"split_axis", "concat_axis"};
    } else if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
               kind == CollectiveKind::kShardSlice) {
      names = {"axis"};
    }
    if (names.empty()) return Ok{};
    if (!op.has_input(0)) return collective_error(op, "has no input");
    const auto rank = static_cast<std::int64_t>(program_.value(op.inputs[0]).shape.size());
    for (const char* name : names) {
      if (op.attributes.count(name) == 0) {
        return collective_error(op, std::string("needs the attribute ") + name);
      }
      const std::int64_t axis = op.int_attribute(name, 0);
      if (axis < 0 && axis >= -rank) op.attributes[name] = axis + rank;
    }
    return Ok{};
  }

  void drop_unknown_mesh_axes(Op& op) {
    const auto found = op.attributes.find("mesh_axes");
    if (found == op.attributes.end()) return;
    bool known = false;
    if (const auto axes = axes_of(op, mesh_); axes.ok()) {
      known = op.int_attribute("group_size", 0) == axes_size(mesh_, *axes) &&
              op.ints_attribute("groups") == device_groups(mesh_, *axes);
    }
    if (!known) op.attributes.erase(found);
  }

  Status number() {
    std::size_t missing = 0, calls = 0;
    const Op* before = nullptr;  // the last that has a number
    bool strictly = true;        // all ops of the domain, those that exchange nothing too
    std::int64_t last = -1;
    for (const Op& op : program_.ops) {
      if (!is_collective(op)) continue;
      const std::int64_t seq = op.int_attribute("seq", -1);
      strictly &= seq > last;
      last = seq;
      if (!exchanges_data(op)) continue;
      ++calls;
      if (op.attributes.count("seq") == 0) {
        ++missing;
        continue;
      }
      if (before != nullptr && seq <= before->int_attribute("seq", -1)) {
        return collective_error(op, "seq " + std::to_string(seq) + " is not above that of " +
                                        type_and_name(*before) + ", " +
                                        std::to_string(before->int_attribute("seq", -1)) +
                                        ", which comes before it; put the ops in the order of "
                                        "their seq, or leave seq out");
      }
      before = &op;
    }
    if (strictly) return Ok{};
    if (missing > 0) {
      warnings_.push_back(std::to_string(missing) + " of " + counted(calls, "collective") +
                          " had no seq: numbered in the order of the file");
    }
    std::int64_t seq = 0;
    for (Op& op : program_.ops) {
      if (is_collective(op)) op.attributes["seq"] = seq++;
    }
    return Ok{};
  }

  void order() {
    const AddedOrder added = add_order_inputs(program_, OrderBy::kItsOutput);
    if (added.inputs == 0) return;
    warnings_.push_back(std::to_string(added.inputs) + " of " + counted(added.calls, "collective") +
                        " did not wait for the one before, the first " +
                        type_and_name(program_.op(added.first)) +
                        ": inputs that order them were added, in the order of the file");
  }

  struct Listed : IntList {
    bool operator<(const Listed& other) const { return values() < other.values(); }
  };

  Graph& program_;
  const Mesh& mesh_;
  std::set<Listed> lists_;
  std::vector<std::string> warnings_;
};

}  // namespace

Result<std::vector<std::string>> complete_collectives(Graph& program, const Mesh& mesh) {
  return Completion(program, mesh).run();
}

std::int64_t listed_ranks(const Graph& program) {
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max() - 1;  // a file's number
  std::int64_t most = 0;
  for (const Op& op : program.ops) {
    if (!is_collective(op)) continue;
    for (std::int64_t rank : op.ints_attribute("groups")) {
      most = std::max(most, std::min(rank, kLast) + 1);
    }
  }
  return most;
}

}  // namespace autopar
