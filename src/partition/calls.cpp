#include "partition/calls.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace autopar {
namespace {

const char* const kReduceOps[] = {"sum", "max", "min", "prod", "avg"};

std::string in_program(const ProgramOnRanks& program, const std::string& message) {
  return program.name.empty() ? message : program.name + ": " + message;
}

// The first ranks of a group or of several, for messages.
std::string ranks_text(const std::int64_t* begin, std::int64_t count) {
  constexpr std::int64_t kMost = 8;
  std::string text = "[";
  for (std::int64_t i = 0; i < std::min(count, kMost); ++i) {
    text += (i ? "," : "") + std::to_string(begin[i]);
  }
  return text + (count > kMost ? ",...]" : "]");
}

class ProgramCheck {
 public:
  ProgramCheck(const ProgramOnRanks& program, std::int64_t world_size)
      : program_(program), graph_(*program.program), runs_(static_cast<std::size_t>(world_size)) {
    for (std::int64_t rank : program.ranks) runs_[static_cast<std::size_t>(rank)] = 1;
  }

  Result<Calls> run() {
    Calls calls;
    calls.program = &program_;
    for (const Op& op : graph_.ops) {
      // The last collective that the op waits for, by its number; -1: none.
      std::int64_t waits_for = -1;
      for (ValueId input : op.inputs) {
        if (input.valid()) waits_for = std::max(waits_for, last_of(input));
      }
      if (is_collective(op)) {
        AUTOPAR_TRY(collective, check(op));
        if (communicates(collective.kind)) {
          AUTOPAR_RETURN_IF_ERROR(check_order(calls, collective, waits_for));
          waits_for = static_cast<std::int64_t>(calls.collectives.size());
          calls.collectives.push_back(std::move(collective));
        }
      }
      for (ValueId output : op.outputs) {
        if (output.valid()) last_of(output) = waits_for;
      }
    }
    return calls;
  }

 private:
  std::int64_t& last_of(ValueId v) {
    if (last_.empty()) last_.assign(graph_.values.size(), -1);
    return last_[v.index()];
  }

  Result<CollectiveOfProgram> check(const Op& op) {
    const auto kind = parse_collective_kind(op.type);
    if (!kind) return collective_error(op, "is not an op of this domain");
    if (*kind == CollectiveKind::kMakePartial) return collective_error(op, "is not lowered");
    if (op.outputs.size() != 1 || !op.has_output(0)) {
      return collective_error(op,
                              "expected one output, found " + std::to_string(op.outputs.size()));
    }
    CollectiveOfProgram found;
    found.op = &op;
    found.kind = *kind;
    found.group_size = op.int_attribute("group_size", is_message(*kind) ? 2 : -1);
    found.seq = op.int_attribute("seq", -1);
    const auto groups = op.attributes.find("groups");
    const auto* list =
        groups == op.attributes.end() ? nullptr : std::get_if<IntList>(&groups->second);
    if (list == nullptr) return collective_error(op, "has no attribute groups");
    found.groups = &list->values();
    AUTOPAR_TRY(spans, check_groups(found));
    found.spans = spans;
    AUTOPAR_RETURN_IF_ERROR(check_attributes(found));
    AUTOPAR_RETURN_IF_ERROR(check_type(found));
    return found;
  }

  // Whether some groups hold ranks of other programs.
  Result<bool> check_groups(const CollectiveOfProgram& c) {
    if (c.group_size < 1) {
      return collective_error(*c.op, "group_size is missing or less than 1");
    }
    const bool message = is_message(c.kind);
    const auto key = std::make_pair(c.groups, message ? -2 : c.group_size);
    if (const auto seen = spans_.find(key); seen != spans_.end()) return seen->second;
    if (message && c.group_size != 2) {
      return collective_error(*c.op, "group_size must be 2, a sender and a receiver; found " +
                                         std::to_string(c.group_size));
    }
    const auto count = static_cast<std::int64_t>(c.groups->size());
    if (count % c.group_size != 0) {
      return collective_error(*c.op, "group_size " + std::to_string(c.group_size) +
                                         " does not divide the " + std::to_string(count) +
                                         " ranks that its groups list");
    }
    AUTOPAR_TRY(spans, message ? check_pairs(c) : check_partition(c));
    spans_.emplace(key, spans);
    return spans;
  }

  Status check_range(const CollectiveOfProgram& c) {
    for (std::int64_t rank : *c.groups) {
      if (rank >= 0 && rank < static_cast<std::int64_t>(runs_.size())) continue;
      return collective_error(*c.op, "its groups list rank " + std::to_string(rank) +
                                         "; expected ranks from 0 to " +
                                         std::to_string(runs_.size() - 1));
    }
    return Ok{};
  }

  Result<bool> check_partition(const CollectiveOfProgram& c) {
    AUTOPAR_RETURN_IF_ERROR(check_range(c));
    std::vector<char> listed(runs_.size());
    bool spans = false;
    for (std::size_t i = 0; i < c.groups->size(); ++i) {
      const auto rank = static_cast<std::size_t>((*c.groups)[i]);
      if (std::exchange(listed[rank], char{1}) != 0) {
        return collective_error(*c.op, "its groups list rank " + std::to_string(rank) +
                                           " twice, the second time in the group " +
                                           group_text(c, i) +
                                           "; every rank must be in exactly one group");
      }
    }
    const auto size = static_cast<std::size_t>(c.group_size);
    for (std::size_t g = 0; g < c.groups->size(); g += size) {
      std::size_t own = 0;
      for (std::size_t i = g; i < g + size; ++i) {
        own += runs_[static_cast<std::size_t>((*c.groups)[i])] != 0 ? 1 : 0;
      }
      spans |= own != size;
    }
    for (std::int64_t rank : program_.ranks) {
      if (listed[static_cast<std::size_t>(rank)] != 0) continue;
      return collective_error(*c.op, "rank " + std::to_string(rank) +
                                         " runs it, but is in none of its groups; every rank must "
                                         "be in exactly one group");
    }
    return spans;
  }

  Result<bool> check_pairs(const CollectiveOfProgram& c) {
    AUTOPAR_RETURN_IF_ERROR(check_range(c));
    std::array<std::vector<char>, 2> listed = {std::vector<char>(runs_.size()),
                                               std::vector<char>(runs_.size())};
    for (std::size_t i = 0; i < c.groups->size(); ++i) {
      const auto rank = static_cast<std::size_t>((*c.groups)[i]);
      const char* role = i % 2 == 0 ? "sender" : "receiver";
      if (std::exchange(listed[i % 2][rank], char{1}) != 0) {
        return collective_error(*c.op, "rank " + std::to_string(rank) + " is the " + role +
                                           " of two pairs; write two ops");
      }
      if (i % 2 == 1 && (*c.groups)[i - 1] == (*c.groups)[i]) {
        return collective_error(*c.op, "rank " + std::to_string(rank) + " sends to itself");
      }
    }
    return true;
  }

  static std::string group_text(const CollectiveOfProgram& c, std::size_t place) {
    const auto size = static_cast<std::size_t>(c.group_size);
    return ranks_text(c.groups->data() + place / size * size, c.group_size);
  }

  static Status check_attributes(const CollectiveOfProgram& c) {
    if (communicates(c.kind) && c.seq < 0) {
      return collective_error(*c.op,
                              "the attribute seq (the order of issue, from 0) is missing or "
                              "negative");
    }
    if (has_reduction(c.kind)) {
      const std::string reduce_op = c.op->string_attribute("reduce_op", "sum");
      if (std::find(std::begin(kReduceOps), std::end(kReduceOps), reduce_op) ==
          std::end(kReduceOps)) {
        return collective_error(
            *c.op, "reduce_op '" + reduce_op + "' is none of sum, max, min, prod, avg");
      }
    }
    const std::int64_t root = c.op->int_attribute("root", 0);
    if (c.kind == CollectiveKind::kBroadcast && (root < 0 || root >= c.group_size)) {
      return collective_error(*c.op, "root " + std::to_string(root) +
                                         " is no position in a group of " +
                                         std::to_string(c.group_size));
    }
    return Ok{};
  }

  Status check_type(CollectiveOfProgram& c) const {
    AUTOPAR_TRY(type, collective_output_type(graph_, *c.op, c.group_size));
    const Value& output = graph_.value(c.op->outputs[0]);
    const TensorType found{output.dtype, output.shape};
    if (type != found) {
      return collective_error(*c.op, "with group_size " + std::to_string(c.group_size) + " gives " +
                                         to_text(type) + ", but its output '" + output.name +
                                         "' is " + to_text(found));
    }
    c.input = type;
    if (c.kind != CollectiveKind::kRecv) {
      const Value& input = graph_.value(c.op->inputs[0]);
      c.input = {input.dtype, input.shape};
    }
    return Ok{};
  }

  static Status check_order(const Calls& calls, const CollectiveOfProgram& c,
                            std::int64_t waits_for) {
    if (calls.collectives.empty()) return Ok{};
    const CollectiveOfProgram& before = calls.collectives.back();
    if (waits_for + 1 != static_cast<std::int64_t>(calls.collectives.size())) {
      return collective_error(*c.op, "does not wait for " + to_text(before) +
                                         ", the collective before it: neither its data nor its "
                                         "order inputs come from there, so a rank may run the two "
                                         "in either order");
    }
    if (c.seq <= before.seq) {
      return collective_error(*c.op, "seq " + std::to_string(c.seq) + " must be above that of " +
                                         to_text(before) + ", which it waits for");
    }
    return Ok{};
  }

  const ProgramOnRanks& program_;
  const Graph& graph_;
  std::vector<char> runs_;          // by rank of the world
  std::vector<std::int64_t> last_;  // by value: the last collective on the way to it
  // Lists of groups that were found good, looked up, never walked. Thousands of collectives share
  // a few lists.
  std::map<std::pair<const std::vector<std::int64_t>*, std::int64_t>, bool> spans_;
};

}  // namespace

Result<Calls> calls_of(const ProgramOnRanks& program, std::int64_t world_size) {
  Result<Calls> calls = ProgramCheck(program, world_size).run();
  if (!calls) return input_error(in_program(program, calls.error().message));
  return calls;
}

std::string to_text(const CollectiveOfProgram& c) {
  return c.op->type + " '" + c.op->name + "' (seq " + std::to_string(c.seq) + ")";
}

std::string difference_of(const CollectiveOfProgram& one, const CollectiveOfProgram& other,
                          std::int64_t other_rank) {
  const auto differs = [&](const std::string& name, const std::string& a, const std::string& b) {
    return name + " " + a + ", but rank " + std::to_string(other_rank) + " has " + name + " " + b +
           " in " + to_text(other);
  };
  if (one.op->int_attribute("tag", 0) != other.op->int_attribute("tag", 0)) {
    return differs("tag", std::to_string(one.op->int_attribute("tag", 0)),
                   std::to_string(other.op->int_attribute("tag", 0)));
  }
  if (one.input.dtype != other.input.dtype) {
    return differs("dtype", name_of(one.input.dtype), name_of(other.input.dtype));
  }
  if (one.input.shape != other.input.shape) {
    return differs("shape", to_text(one.input.shape), to_text(other.input.shape));
  }
  if (is_message(one.kind)) return "";
  const auto split = [](const Op& op) {
    return op.int_attribute(op.type == "AllToAll" ? "split_axis" : "axis", -1);
  };
  if (split(*one.op) != split(*other.op)) {
    return differs("axis", std::to_string(split(*one.op)), std::to_string(split(*other.op)));
  }
  for (const char* name : {"concat_axis", "root", "shift"}) {
    const std::int64_t fallback = std::string(name) == "concat_axis" ? -1 : 0;
    const std::int64_t a = one.op->int_attribute(name, fallback);
    const std::int64_t b = other.op->int_attribute(name, fallback);
    if (a != b) return differs(name, std::to_string(a), std::to_string(b));
  }
  if (!has_reduction(one.kind)) return "";
  const std::string a = one.op->string_attribute("reduce_op", "sum");
  const std::string b = other.op->string_attribute("reduce_op", "sum");
  return a == b ? "" : differs("reduce_op", a, b);
}

}  // namespace autopar
