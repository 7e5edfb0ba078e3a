// Of a plan's one program, those of its ranks. A ShardSlice becomes the rank's own Slice, of a
// weight in the file the slice itself, so that a rank's file holds what the rank needs.
#include <algorithm>
#include <utility>

#include "io/export/dialects/dialect.hpp"

namespace autopar {
namespace {

bool is_message(const Op& op) { return op.type == "Send" || op.type == "Recv"; }

// Part `position` of `parts` equal ones along `axis`.
Tensor part_of(const Tensor& tensor, std::size_t axis, std::int64_t parts, std::int64_t position) {
  Tensor part{tensor.dtype, tensor.shape, {}};
  part.shape[axis] /= parts;
  const Shape inner(part.shape.begin() + static_cast<std::ptrdiff_t>(axis), part.shape.end());
  const auto run = static_cast<std::size_t>(element_count(inner) * size_of(tensor.dtype));
  part.bytes.reserve(tensor.bytes.size() / static_cast<std::size_t>(parts));
  const std::size_t stride = run * static_cast<std::size_t>(parts);
  for (std::size_t at = run * static_cast<std::size_t>(position); at < tensor.bytes.size();
       at += stride) {
    part.bytes.append(tensor.bytes, at, run);
  }
  return part;
}

// Whether what is sliced lies in one piece.
bool is_contiguous(const Shape& shape, std::int64_t axis) {
  return std::all_of(shape.begin(), shape.begin() + axis, [](std::int64_t d) { return d == 1; });
}

// Which values all ranks have alike, given that every exchange is among all of them.
std::vector<char> alike(const Plan& plan) {
  const Graph& program = plan.program;
  std::vector<char> same(program.values.size(), 1);
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    same[program.inputs[i].index()] = is_replicated(plan.inputs[i].spec);
  }
  for (const Op& op : program.ops) {
    bool result = std::all_of(op.inputs.begin(), op.inputs.end(),
                              [&](ValueId v) { return !v.valid() || same[v.index()]; });
    if (is_collective(op)) {
      result = op.type == "AllReduce" || op.type == "AllGather" || op.type == "Broadcast";
    }
    for (ValueId output : op.outputs) {
      if (output.valid()) same[output.index()] = result;
    }
  }
  return same;
}

}  // namespace

Result<Places> Places::of(const Op& op, std::int64_t world_size) {
  Places places;
  const auto groups = op.attributes.find("groups");
  if (groups != op.attributes.end()) {
    if (const auto* list = std::get_if<IntList>(&groups->second)) places.groups_ = *list;
  }
  places.group_size_ = op.int_attribute("group_size", 0);
  places.place_.assign(static_cast<std::size_t>(world_size), -1);
  const std::vector<std::int64_t>& ranks = places.groups_.values();
  bool good = places.group_size_ > 0 && world_size % places.group_size_ == 0 &&
              static_cast<std::int64_t>(ranks.size()) == world_size;
  for (std::size_t i = 0; good && i < ranks.size(); ++i) {
    good = ranks[i] >= 0 && ranks[i] < world_size &&
           places.place_[static_cast<std::size_t>(ranks[i])] < 0;
    if (good) places.place_[static_cast<std::size_t>(ranks[i])] = static_cast<std::int64_t>(i);
  }
  if (good) return places;
  return input_error("op '" + op.name + "' (" + op.type + "): expected each of the " +
                     std::to_string(world_size) + " ranks in exactly one group of equal groups");
}

std::vector<std::int64_t> Places::ranks_with(std::int64_t rank) const {
  const auto begin = groups_.values().begin() + group_of(rank) * group_size_;
  return {begin, begin + group_size_};
}

bool Places::in_order() const {
  return is_world() && std::is_sorted(groups_.values().begin(), groups_.values().end());
}

Result<const Places*> PlaceTable::of(const Op& op) {
  const auto groups = op.attributes.find("groups");
  const auto* list =
      groups == op.attributes.end() ? nullptr : std::get_if<IntList>(&groups->second);
  const IntList ranks = list == nullptr ? IntList() : *list;
  const std::pair key(static_cast<const void*>(&ranks.values()), op.int_attribute("group_size", 0));
  auto known = known_.find(key);
  if (known == known_.end()) {
    AUTOPAR_TRY(places, Places::of(op, world_size_));
    known = known_.emplace(key, std::pair(ranks, std::move(places))).first;
  }
  return &known->second.second;
}

Error why_not(const char* dialect, const Op& op, const std::string& reason,
              const std::string& hint) {
  return input_error("op '" + op.name + "' (" + op.type + ") is not representable in the dialect " +
                     dialect + ": " + reason + "; try " + hint);
}

std::int64_t unordered_collectives(const Graph& program) {
  std::vector<std::int64_t> last(program.values.size(), -1);  // among what a value is made from
  std::int64_t count = 0, issued = 0;
  for (const Op& op : program.ops) {
    const bool exchanges = is_collective(op) && !is_slice(op);
    std::int64_t latest = -1;
    for (std::size_t i = 0; i < (is_collective(op) ? 1 : op.inputs.size()); ++i) {
      if (op.has_input(i)) latest = std::max(latest, last[op.inputs[i].index()]);
    }
    if (exchanges) {
      if (latest != issued - 1) ++count;
      latest = issued++;
    }
    for (ValueId output : op.outputs) {
      if (output.valid()) last[output.index()] = latest;
    }
  }
  return count;
}

Result<RankPrograms> RankPrograms::of(const Plan& plan, const DialectRow& dialect) {
  RankPrograms programs(plan, dialect);
  AUTOPAR_RETURN_IF_ERROR(programs.look());
  return programs;
}

// Two ranks have one program where they are in the same group of every exchange and at the same
// position of every ShardSlice. O(ranks * different groups).
Status RankPrograms::look() {
  const Graph& program = plan_->program;
  std::vector<const Places*> of_groups, of_positions;
  const auto add = [](std::vector<const Places*>& list, const Places* places) {
    if (std::find(list.begin(), list.end(), places) == list.end()) list.push_back(places);
  };
  bool among_all = true;
  for (const Op& op : program.ops) {
    if (!is_collective(op)) continue;
    if (is_message(op)) {
      return why_not(dialect_->name, op,
                     dialect_->runtime + std::string(" has no messages between two ranks"),
                     "a plan without stages");
    }
    AUTOPAR_TRY(places, places_.of(op));
    among_all = among_all && places->is_world();
    add(is_slice(op) ? of_positions : of_groups, places);
  }
  if (dialect_->scatters && among_all) {
    const std::vector<char> same = alike(*plan_);
    scatters_ = std::all_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
      if (!is_slice(op)) return true;
      const Value& source = program.value(op.inputs[0]);
      return !source.has_data() && same[op.inputs[0].index()] && trt_exchanges(source.dtype);
    });
  }
  std::map<std::vector<std::int64_t>, std::size_t> class_of;
  for (std::int64_t rank = 0; rank < plan_->mesh.size(); ++rank) {
    std::vector<std::int64_t> key;
    for (const Places* places : of_groups) key.push_back(places->group_of(rank));
    for (const Places* places : of_positions) {
      key.push_back(scatters_ ? places->group_of(rank) : places->position_of(rank));
    }
    const auto [found, added] = class_of.try_emplace(key, classes_.size());
    if (added) classes_.emplace_back();
    classes_[found->second].push_back(rank);
  }
  return Ok{};
}

Result<Graph> RankPrograms::program(std::int64_t rank) {
  const Graph& source = plan_->program;
  Graph program;
  program.name = source.name;
  program.opset = source.opset;
  program.inputs = source.inputs;
  program.outputs = source.outputs;
  Names values, ops;
  for (const Value& value : source.values) {
    values.take(value.name);
    Value copy = {.name = value.name, .dtype = value.dtype, .shape = value.shape};
    copy.kind = value.kind;
    program.values.push_back(std::move(copy));
  }
  for (const Op& op : source.ops) ops.take(op.name);
  for (const Op& op : source.ops) {
    if (is_collective(op)) {
      AUTOPAR_RETURN_IF_ERROR(rewrite(op, rank, program, values, ops));
    } else {
      program.add_op(op);
    }
  }
  // Weights of which only slices are read stay away.
  const auto need = [&](ValueId v) {
    if (!v.valid() || v.index() >= source.values.size()) return;
    if (!program.value(v).has_data()) program.value(v).data = source.value(v).data;
  };
  for (const Op& op : program.ops) std::for_each(op.inputs.begin(), op.inputs.end(), need);
  std::for_each(program.outputs.begin(), program.outputs.end(), need);
  return program;
}

Status RankPrograms::rewrite(const Op& op, std::int64_t rank, Graph& program, Names& values,
                             Names& ops) {
  AUTOPAR_TRY(places, places_.of(op));
  if (is_slice(op) && !scatters_ && take_slice(op, *places, rank, program)) return Ok{};
  Steps steps(program, values, ops, op);
  const RankCollective collective{op, *places, rank};
  if (!is_slice(op)) {
    AUTOPAR_RETURN_IF_ERROR(dialect_->say(collective, steps));
  } else if (scatters_) {
    AUTOPAR_RETURN_IF_ERROR(scatter_in_trt(collective, steps));
  } else {
    steps.part(op.int_attribute("axis", 0), places->group_size(), places->position_of(rank));
  }
  steps.finish();
  return Ok{};
}

bool RankPrograms::take_slice(const Op& op, const Places& places, std::int64_t rank,
                              Graph& program) const {
  const ValueId from = op.inputs[0], to = op.outputs[0];
  const auto leaves = [&](ValueId v) {
    return std::find(program.outputs.begin(), program.outputs.end(), v) != program.outputs.end();
  };
  const Value& cut = program.value(from);  // itself a slice
  const Value& source = cut.has_data() ? cut : plan_->program.value(from);
  if (!source.has_data() || leaves(to)) return false;
  const std::int64_t axis = op.int_attribute("axis", 0);
  const std::int64_t parts = places.group_size(), position = places.position_of(rank);
  Value& slice = program.value(to);
  if (const Tensor* tensor = source.tensor()) {
    slice.data = part_of(*tensor, static_cast<std::size_t>(axis), parts, position);
  } else if (is_contiguous(source.shape, axis)) {
    ExternalData external = std::get<ExternalData>(source.data);
    external.length = slice.bytes();
    external.offset += position * slice.bytes();
    slice.data = external;
  } else {
    return false;
  }
  slice.kind = source.kind;
  return true;
}

}  // namespace autopar
