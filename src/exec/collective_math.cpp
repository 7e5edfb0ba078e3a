#include "exec/collective_math.hpp"

#include <algorithm>
#include <cstring>

#include "exec/blocks.hpp"
#include "exec/reduce.hpp"

namespace autopar {

namespace {

// Of the output; where input and output are alike.
std::size_t buffer_bytes(const CollectiveCall& call) {
  return static_cast<std::size_t>(element_count(call.output_shape)) * element_size(call);
}

std::vector<const void*> advanced(const std::vector<const void*>& pointers, std::size_t bytes) {
  std::vector<const void*> result;
  result.reserve(pointers.size());
  for (const void* p : pointers) result.push_back(static_cast<const char*>(p) + bytes);
  return result;
}

void all_reduce(const CollectiveCall& call, const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs) {
  const auto count = static_cast<std::size_t>(element_count(call.input_shape));
  const auto position = static_cast<std::size_t>(call.position);
  const std::size_t begin = count * position / inputs.size();
  const std::size_t end = count * (position + 1) / inputs.size();
  if (begin == end) return;
  const std::size_t offset = begin * element_size(call);
  char* own = static_cast<char*>(outputs[position]) + offset;
  reduce(reduce_op_of(call), call.dtype, advanced(inputs, offset), end - begin, own);
  for (std::size_t p = 0; p < outputs.size(); ++p) {
    if (p == position) continue;
    std::memcpy(static_cast<char*>(outputs[p]) + offset, own, (end - begin) * element_size(call));
  }
}

void reduce_scatter(const CollectiveCall& call, const std::vector<const void*>& inputs,
                    const std::vector<void*>& outputs) {
  const auto axis = static_cast<std::size_t>(call.axis);
  std::size_t outer = 1;
  std::size_t run = 1;  // elements of one contiguous run of the part
  for (std::size_t d = 0; d < call.output_shape.size(); ++d) {
    (d < axis ? outer : run) *= static_cast<std::size_t>(call.output_shape[d]);
  }
  if (outer * run == 0) return;
  const auto position = static_cast<std::size_t>(call.position);
  const std::size_t run_bytes = run * element_size(call);
  char* own = static_cast<char*>(outputs[position]);
  for (std::size_t o = 0; o < outer; ++o) {
    const std::size_t offset = (o * inputs.size() + position) * run_bytes;
    reduce(reduce_op_of(call), call.dtype, advanced(inputs, offset), run, own + o * run_bytes);
  }
}

void all_gather(const CollectiveCall& call, const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs) {
  const auto axis = static_cast<std::size_t>(call.axis);
  const Shape zero(call.input_shape.size(), 0);
  Shape to = zero;
  for (const void* input : inputs) {
    copy_block(call.input_shape, element_size(call), input, {call.input_shape, zero},
               outputs[static_cast<std::size_t>(call.position)], {call.output_shape, to});
    to[axis] += call.input_shape[axis];
  }
}

void all_to_all(const CollectiveCall& call, const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs) {
  const auto split = static_cast<std::size_t>(call.axis);
  const auto concat = static_cast<std::size_t>(call.concat_axis);
  Shape extent = call.input_shape;
  extent[split] /= static_cast<std::int64_t>(inputs.size());
  Shape from(extent.size(), 0);
  from[split] = call.position * extent[split];
  Shape to(extent.size(), 0);
  for (const void* input : inputs) {
    copy_block(extent, element_size(call), input, {call.input_shape, from},
               outputs[static_cast<std::size_t>(call.position)], {call.output_shape, to});
    to[concat] += extent[concat];
  }
}

void shard_slice(const CollectiveCall& call, const void* input, void* output) {
  Shape from(call.input_shape.size(), 0);
  const auto axis = static_cast<std::size_t>(call.axis);
  from[axis] = call.position * call.output_shape[axis];
  copy_block(call.output_shape, element_size(call), input, {call.input_shape, from}, output,
             {call.output_shape, Shape(from.size(), 0)});
}

Result<std::size_t> dimension(const char* attribute, std::int64_t axis, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  if (axis < -rank || axis >= rank) {
    return input_error(std::string(attribute) + " " + std::to_string(axis) +
                       " is no dimension of its input " + to_text(shape));
  }
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

// A dimension of -1 (not known before the run) stays -1.
Status divide_dimension(Shape& shape, std::size_t d, std::int64_t group_size) {
  if (shape[d] < 0) return Ok{};
  if (shape[d] % group_size != 0) {
    return input_error("dimension " + std::to_string(d) + " of its input " + to_text(shape) +
                       " is not divisible by the group size " + std::to_string(group_size));
  }
  shape[d] /= group_size;
  return Ok{};
}

// A dimension below 0 is not known yet.
Status multiply_dimension(Shape& shape, std::size_t d, std::int64_t group_size) {
  const std::int64_t extent = shape[d];
  if (extent < 0 || !__builtin_mul_overflow(extent, group_size, &shape[d])) return Ok{};
  return input_error("dimension " + std::to_string(d) + " of " + std::to_string(extent) +
                     ", in each of " + std::to_string(group_size) +
                     " ranks, is more than a tensor can have in all");
}

}  // namespace

ReduceOp reduce_op_of(const CollectiveCall& call) {
  const auto op = parse_reduce_op(call.reduce_op);
  AUTOPAR_CHECK(op.has_value(), "unknown reduce_op " + call.reduce_op);
  return *op;
}

Result<Shape> output_shape_of(CollectiveKind kind, const Shape& input, std::int64_t group_size,
                              std::int64_t axis, std::int64_t concat_axis) {
  Shape output = input;
  switch (kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute:
      return output;
    case CollectiveKind::kAllGather: {
      AUTOPAR_TRY(d, dimension("axis", axis, input));
      AUTOPAR_RETURN_IF_ERROR(multiply_dimension(output, d, group_size));
      return output;
    }
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kShardSlice: {
      AUTOPAR_TRY(d, dimension("axis", axis, input));
      AUTOPAR_RETURN_IF_ERROR(divide_dimension(output, d, group_size));
      return output;
    }
    case CollectiveKind::kAllToAll: {
      AUTOPAR_TRY(split, dimension("split_axis", axis, input));
      AUTOPAR_TRY(concat, dimension("concat_axis", concat_axis, input));
      AUTOPAR_RETURN_IF_ERROR(divide_dimension(output, split, group_size));
      AUTOPAR_RETURN_IF_ERROR(multiply_dimension(output, concat, group_size));
      return output;
    }
    case CollectiveKind::kSend:
      return output;
    case CollectiveKind::kRecv:  // its output's shape is an attribute
    case CollectiveKind::kMakePartial:
      break;
  }
  return input_error("the op is not part of a rewritten graph");
}

int source_of(const CollectiveCall& call) {
  const auto ranks = static_cast<std::int64_t>(call.group.size());
  return static_cast<int>(((call.position - call.shift) % ranks + ranks) % ranks);
}

void perform(const CollectiveCall& call, const std::vector<const void*>& inputs,
             const std::vector<void*>& outputs) {
  const auto position = static_cast<std::size_t>(call.position);
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(call, inputs, outputs);
    case CollectiveKind::kAllGather:
      return all_gather(call, inputs, outputs);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(call, inputs, outputs);
    case CollectiveKind::kAllToAll:
      return all_to_all(call, inputs, outputs);
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kPermute: {
      const bool ring = call.kind == CollectiveKind::kPermute;
      const int from = ring ? source_of(call) : call.root;
      const std::size_t bytes = buffer_bytes(call);
      if (bytes > 0) std::memcpy(outputs[position], inputs[static_cast<std::size_t>(from)], bytes);
      return;
    }
    case CollectiveKind::kShardSlice:
      return shard_slice(call, inputs[position], outputs[position]);
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv: {
      const std::size_t bytes = buffer_bytes(call);
      if (bytes > 0) std::memcpy(outputs[position], inputs[0], bytes);
      return;
    }
    case CollectiveKind::kMakePartial:
      break;
  }
  AUTOPAR_CHECK(false, "no such op in a rewritten graph: " + to_text(call));
}

void leave_alone(const CollectiveCall& call, const void* input, void* output) {
  const std::size_t bytes = buffer_bytes(call);
  if (bytes == 0) return;
  if (input == nullptr) {
    std::memset(output, 0, bytes);
  } else {
    std::memcpy(output, input, bytes);
  }
}

double sent_bytes(const CollectiveCall& call) {
  if (!communicates(call.kind)) return 0;
  Mesh group;
  group.axes.push_back({"group", static_cast<std::int64_t>(call.group.size()), 0, 1});
  Collective collective;
  collective.kind = call.kind;
  collective.axes = {0};
  const double bytes = static_cast<double>(element_count(call.input_shape)) *
                       static_cast<double>(size_of(call.dtype));
  return sent_bytes(collective, bytes, group);
}

std::string to_text(const CollectiveCall& call) {
  std::string ranks;
  for (std::int64_t rank : call.group) ranks += (ranks.empty() ? "" : ",") + std::to_string(rank);
  return std::string(name_of(call.kind)) + " '" + call.op_name + "' (seq " +
         std::to_string(call.seq) + ", group [" + ranks + "], " + name_of(call.dtype) +
         to_text(call.kind == CollectiveKind::kRecv ? call.output_shape : call.input_shape) + ")";
}

}  // namespace autopar
