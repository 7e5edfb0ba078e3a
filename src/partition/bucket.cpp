// Many small collectives of one kind become few: their tensors lie one after the other in one.
//
//   a, b: AllReduce(x), AllReduce(y)
//   ->  Split(AllReduce(Concat(Reshape(x), Reshape(y)))), reshaped
//
// Element for element the same is added up in the same order, and moved to the same place.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "partition/program.hpp"

namespace autopar {
namespace {

// Members of one bucket have the same key. `level`: how many collectives that may go into buckets
// there are on the longest way to one. What one member needs from another is of a higher level, so
// that buckets do not wait for each other.
struct Key {
  std::string type, reduce_op;
  DType dtype = DType::kFloat32;
  std::vector<std::string> axes;
  int level = 0;
  auto operator<=>(const Key&) const = default;
};

// A collective as rows that are exchanged: what it reads and makes, each of so many rows.
struct RowCounts {
  std::int64_t in = 1, out = 1;
};

class Buckets {
 public:
  Buckets(Draft& draft, Bytes bytes)
      : draft_(draft), graph_(draft.plan.program), bytes_(bytes), uses_(uses_of(graph_)) {}

  void run() {
    if (end_of_forward(graph_) == graph_.ops.size()) return;
    find_late();
    find_levels();
    fill();
    if (buckets_.empty()) return;
    std::vector<std::pair<std::size_t, Op>> ops;  // with where they would like to stand
    std::vector<char> gone(graph_.ops.size());
    for (const auto& bucket : buckets_) {
      for (std::size_t member : bucket) gone[member] = 1;
    }
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      if (gone[o] == 0) ops.emplace_back(o, graph_.ops[o]);
    }
    for (const auto& bucket : buckets_) join(bucket, ops);
    std::stable_sort(ops.begin(), ops.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    put_in_order(std::move(ops));
  }

 private:
  // Only the update, or what moves or hands on data for it, reads what these ops make.
  void find_late() {
    is_late_.assign(graph_.ops.size(), 0);
    for (std::size_t o = graph_.ops.size(); o-- > 0;) {
      const Op& op = graph_.ops[o];
      const bool hands_on = is_identity(op) && op.sums == SumsAt::kBefore;
      is_late_[o] = op.phase == Phase::kUpdate || ((is_collective(op) || hands_on) && all_late(op));
    }
  }

  bool all_late(const Op& op) const {
    return std::all_of(op.outputs.begin(), op.outputs.end(), [&](ValueId output) {
      if (!output.valid()) return true;
      const auto& uses = uses_[output.index()];
      return std::all_of(uses.begin(), uses.end(),
                         [&](const Use& use) { return is_late_[use.op.index()] != 0; });
    });
  }

  std::optional<RowCounts> rows_of(const Op& op) const {
    const std::int64_t size = op.int_attribute("group_size", 1);
    const bool along_first = op.int_attribute("axis", 0) == 0;
    if (op.type == name_of(CollectiveKind::kAllReduce)) return RowCounts{1, 1};
    if (op.type == name_of(CollectiveKind::kReduceScatter) && along_first) {
      return RowCounts{size, 1};
    }
    if (op.type == name_of(CollectiveKind::kAllGather) && along_first) return RowCounts{1, size};
    return std::nullopt;
  }

  bool may_join(const Op& op) const {
    if (!is_collective(op) || !all_late(op) || !rows_of(op)) return false;
    const bool sums = op.string_attribute("reduce_op", "sum") == "sum";
    const Value& input = graph_.value(op.inputs[0]);
    return sums && input.kind == ValueKind::kActivation && input.bytes() < bytes_ &&
           element_count(input.shape) > 0;
  }

  void find_levels() {
    levels_.assign(graph_.ops.size(), 0);
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      for (const ValueId input : graph_.ops[o].inputs) {
        if (!input.valid() || !graph_.value(input).producer.valid()) continue;
        const std::size_t producer = graph_.value(input).producer.index();
        levels_[o] = std::max(levels_[o], levels_[producer] + may_join(graph_.ops[producer]));
      }
    }
  }

  // In the order of the program, each until the next one would make it too large.
  void fill() {
    struct Open {
      std::vector<std::size_t> members;
      Bytes bytes = 0;
    };
    std::map<Key, Open> open;
    const auto close = [&](Open& bucket) {
      if (bucket.members.size() > 1) buckets_.push_back(bucket.members);
      bucket = {};
    };
    for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
      const Op& op = graph_.ops[o];
      if (!may_join(op)) continue;
      const auto axes = op.attributes.find("mesh_axes");
      AUTOPAR_CHECK(axes != op.attributes.end(), "buckets need a lowered program");
      const Value& input = graph_.value(op.inputs[0]);
      Open& bucket = open[Key{op.type, op.string_attribute("reduce_op", ""), input.dtype,
                              std::get<std::vector<std::string>>(axes->second), levels_[o]}];
      if (bucket.bytes + input.bytes() > bytes_) close(bucket);
      bucket.members.push_back(o);
      bucket.bytes += input.bytes();
    }
    for (auto& [key, bucket] : open) close(bucket);
    std::sort(buckets_.begin(), buckets_.end());
  }

  ValueId add_value(const std::string& stem, DType dtype, Shape shape) {
    return graph_.add_value({.name = draft_.value_names.unique(stem),
                             .dtype = dtype,
                             .shape = std::move(shape),
                             .producer = {},
                             .data = {}});
  }

  ValueId ints(const std::string& stem, const std::vector<std::int64_t>& numbers) {
    return graph_.add_value({.name = draft_.value_names.unique(stem),
                             .dtype = DType::kInt64,
                             .shape = {static_cast<std::int64_t>(numbers.size())},
                             .kind = ValueKind::kConstant,
                             .producer = {},
                             .data = int64_tensor({std::ssize(numbers)}, numbers)});
  }

  Op op_of(const std::string& stem, const char* type, Phase phase, std::vector<ValueId> inputs,
           std::vector<ValueId> outputs) {
    return {.name = draft_.op_names.unique(stem + "/" + type),
            .type = type,
            .domain = "",
            .inputs = std::move(inputs),
            .outputs = std::move(outputs),
            .attributes = {},
            .phase = phase};
  }

  // Appends the ops of a bucket, which would like to stand where its first member stood.
  void join(const std::vector<std::size_t>& members, std::vector<std::pair<std::size_t, Op>>& ops) {
    const std::size_t at = members.front();
    const Op first = graph_.ops[at];
    const RowCounts rows = *rows_of(first);
    const std::string stem = first.name + "/bucket";
    const DType dtype = graph_.value(first.inputs[0]).dtype;
    std::vector<ValueId> flat, parts;
    std::vector<std::int64_t> widths;
    std::int64_t width = 0;
    for (std::size_t member : members) {
      const Op op = graph_.ops[member];
      const std::int64_t own = element_count(graph_.value(op.inputs[0]).shape) / rows.in;
      const ValueId row = add_value(op.name + "/row", dtype, {rows.in, own});
      const ValueId shape = ints(op.name + "/row/shape", {rows.in, own});
      ops.emplace_back(at,
                       op_of(op.name + "/row", "Reshape", op.phase, {op.inputs[0], shape}, {row}));
      flat.push_back(row);
      const ValueId part = add_value(op.name + "/part", dtype, {rows.out, own});
      const Shape whole = graph_.value(op.outputs[0]).shape;
      const ValueId back = ints(op.name + "/part/shape", whole);
      ops.emplace_back(at, op_of(op.name + "/part", "Reshape", op.phase, {part, back}, op.outputs));
      parts.push_back(part);
      widths.push_back(own);
      width += own;
    }
    const ValueId joint = add_value(stem, dtype, {rows.in, width});
    ops.emplace_back(at, op_of(stem, "Concat", first.phase, flat, {joint}));
    ops.back().second.attributes["axis"] = std::int64_t{1};
    Op exchange = first;
    exchange.name = draft_.op_names.unique(stem);
    exchange.inputs = {joint};
    exchange.outputs = {add_value(stem + "/made", dtype, {rows.out, width})};
    const ValueId made = exchange.outputs[0];
    ops.emplace_back(at, std::move(exchange));
    ops.emplace_back(
        at, op_of(stem, "Split", first.phase, {made, ints(stem + "/widths", widths)}, parts));
    ops.back().second.attributes["axis"] = std::int64_t{1};
  }

  // Each op as soon as what it reads is there; of several that could come, the first.
  void put_in_order(std::vector<std::pair<std::size_t, Op>> ops) {
    std::vector<std::int64_t> producer(graph_.values.size(), -1);
    for (std::size_t o = 0; o < ops.size(); ++o) {
      for (const ValueId output : ops[o].second.outputs) {
        if (output.valid()) producer[output.index()] = static_cast<std::int64_t>(o);
      }
    }
    std::vector<std::vector<std::size_t>> readers(ops.size());
    std::vector<std::size_t> missing(ops.size());
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t o = 0; o < ops.size(); ++o) {
      for (const ValueId input : ops[o].second.inputs) {
        if (!input.valid() || producer[input.index()] < 0) continue;
        readers[static_cast<std::size_t>(producer[input.index()])].push_back(o);
        ++missing[o];
      }
      if (missing[o] == 0) ready.push(o);
    }
    graph_.ops.clear();
    for (Value& value : graph_.values) value.producer = OpId();
    while (!ready.empty()) {
      const std::size_t next = ready.top();
      ready.pop();
      graph_.add_op(std::move(ops[next].second));
      for (std::size_t reader : readers[next]) {
        if (--missing[reader] == 0) ready.push(reader);
      }
    }
    AUTOPAR_CHECK(graph_.ops.size() == ops.size(), "buckets of collectives wait for each other");
  }

  Draft& draft_;
  Graph& graph_;
  const Bytes bytes_;
  const std::vector<std::vector<Use>> uses_;
  std::vector<char> is_late_;  // by op
  std::vector<int> levels_;    // by op
  std::vector<std::vector<std::size_t>> buckets_;
};

}  // namespace

void join_collectives(Draft& draft, Bytes bucket_bytes) {
  if (bucket_bytes > 0) Buckets(draft, bucket_bytes).run();
}

}  // namespace autopar
