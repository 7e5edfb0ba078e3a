#include "exec/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "exec/blocks.hpp"
#include "exec/collective_math.hpp"
#include "exec/reduce.hpp"

namespace autopar {

namespace {

constexpr int kMessageTag = 1;  // messages between two ranks meet in their order
constexpr int kSpins = 2000;    // polls before sleeping between them
constexpr const char* kMakesCommunicator = "the making of its group's communicator";
constexpr auto kSleep = std::chrono::microseconds(50);

std::size_t element_size(const CollectiveCall& call) {
  return static_cast<std::size_t>(size_of(call.dtype));
}
std::size_t bytes_of(const CollectiveCall& call, const Shape& shape) {
  return static_cast<std::size_t>(element_count(shape)) * element_size(call);
}

ReduceOp reduce_op_of(const CollectiveCall& call) {
  const auto op = parse_reduce_op(call.reduce_op);
  AUTOPAR_CHECK(op.has_value(), "unknown reduce_op " + call.reduce_op);
  return *op;
}

// Whether the blocks that cut a dimension lie one after the other in memory.
bool is_outermost(const Shape& shape, int axis) {
  for (int d = 0; d < axis; ++d) {
    if (shape[static_cast<std::size_t>(d)] != 1) return false;
  }
  return true;
}

// Calls visit(p, first index) for each of the blocks of `extent` that lie along `axis`.
template <class Visit>
void for_each_block(const Shape& extent, int axis, std::size_t count, const Visit& visit) {
  const auto d = static_cast<std::size_t>(axis);
  Shape offset(extent.size(), 0);
  for (std::size_t p = 0; p < count; ++p) {
    visit(p, offset);
    offset[d] += extent[d];
  }
}

// The `count` blocks of one dimension, one after the other, each dense.
void pack(const CollectiveCall& call, const Shape& shape, int axis, std::size_t count,
          const void* from, char* to) {
  Shape extent = shape;
  extent[static_cast<std::size_t>(axis)] /= static_cast<std::int64_t>(count);
  const std::size_t part = bytes_of(call, extent);
  const Shape zero(shape.size(), 0);
  for_each_block(extent, axis, count, [&](std::size_t p, const Shape& offset) {
    copy_block(extent, element_size(call), from, {shape, offset}, to + p * part, {extent, zero});
  });
}

// The inverse: blocks of `extent`, to be put together along `axis`.
void unpack(const CollectiveCall& call, const Shape& extent, int axis, std::size_t count,
            const char* from, void* to, const Shape& shape) {
  const std::size_t part = bytes_of(call, extent);
  const Shape zero(shape.size(), 0);
  for_each_block(extent, axis, count, [&](std::size_t p, const Shape& offset) {
    copy_block(extent, element_size(call), from + p * part, {extent, zero}, to, {shape, offset});
  });
}

std::vector<const void*> parts_of(const std::string& bytes, std::size_t count, std::size_t part) {
  std::vector<const void*> parts;
  for (std::size_t p = 0; p < count; ++p) parts.push_back(bytes.data() + p * part);
  return parts;
}

}  // namespace

MpiCommunicator::MpiCommunicator(const AutoparMpiTable& mpi, int rank, int size,
                                 Surroundings surroundings)
    : mpi_(mpi), rank_(rank), size_(size), surroundings_(std::move(surroundings)) {}

Status MpiCommunicator::prepare(const std::vector<GroupPartition>& partitions) {
  for (const GroupPartition& partition : partitions) {
    const auto at = std::find(partition.groups.begin(), partition.groups.end(), rank_);
    if (at == partition.groups.end()) continue;  // of another program
    const std::int64_t position = at - partition.groups.begin();
    const auto first = partition.groups.begin() + (position - position % partition.group_size);
    const RankGroup ranks(first, first + partition.group_size);
    // Programs list a group more or less often; what is not done together is no meeting.
    if (groups_.count(ranks) != 0) continue;
    const CallLog::Inside inside(*surroundings_.calls, ranks, kMakesCommunicator);
    AUTOPAR_TRY(group, group_of(ranks));
    static_cast<void>(group);
  }
  return Ok{};
}

Result<AutoparMpiGroup*> MpiCommunicator::group_of(const std::vector<std::int64_t>& ranks) {
  const auto known = groups_.find(ranks);
  if (known != groups_.end()) return known->second;
  const std::vector<int> list(ranks.begin(), ranks.end());
  AutoparMpiGroup* made = mpi_.make_group(list.data(), static_cast<int>(list.size()), 0, error_);
  if (made == nullptr) {
    return runtime_error("rank " + std::to_string(rank_) + ": no communicator for the group " +
                         to_text(Shape(ranks)) + ": " + error_);
  }
  groups_[ranks] = made;
  return made;
}

Status MpiCommunicator::wait(AutoparMpiRequest* request, const CollectiveCall& call) {
  const auto failed = [&](const std::string& why) {
    return runtime_error("rank " + std::to_string(rank_) + " in " + to_text(call) + ": " + why);
  };
  if (request == nullptr) return failed(error_);
  const int spins = surroundings_.oversubscribed ? 0 : kSpins;
  for (int polls = 0;; ++polls) {
    const int state = mpi_.test(request, error_);
    if (state < 0) return failed(error_);
    if (state > 0) return Ok{};
    if (polls < spins) continue;
    if (surroundings_.failed()) return *surroundings_.failure();
    if (polls < spins + 20) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

Status MpiCommunicator::run(const CollectiveCall& call, const void* input, void* output) {
  if (surroundings_.failed()) return *surroundings_.failure();
  const auto* from = static_cast<const char*>(input);
  auto* to = static_cast<char*>(output);
  if (call.group.size() == 1) {
    perform(call, {input}, {output});
    return Ok{};
  }
  const CallLog::Inside inside(*surroundings_.calls, call);
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(call, from, to);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(call, from, to);
    case CollectiveKind::kAllGather:
      return all_gather(call, from, to);
    case CollectiveKind::kAllToAll:
      return all_to_all(call, from, to);
    case CollectiveKind::kBroadcast:
      return broadcast(call, from, to);
    case CollectiveKind::kSend:
      std::memcpy(to, from, bytes_of(call, call.output_shape));
      return wait(mpi_.send(static_cast<int>(call.group[1]), from, bytes_of(call, call.input_shape),
                            kMessageTag, error_),
                  call);
    case CollectiveKind::kRecv:
      return wait(mpi_.receive(static_cast<int>(call.group[0]), to,
                               bytes_of(call, call.output_shape), kMessageTag, error_),
                  call);
    case CollectiveKind::kShardSlice:
    case CollectiveKind::kMakePartial:
      break;
  }
  AUTOPAR_CHECK(false, "no communication: " + to_text(call));
}

Status MpiCommunicator::exchange(const CollectiveCall& call, const std::string& sent,
                                 std::size_t part) {
  AUTOPAR_TRY(group, group_of(call.group));
  received_.resize(part * call.group.size());
  return wait(mpi_.all_to_all(group, sent.data(), received_.data(), part, error_), call);
}

Status MpiCommunicator::all_reduce(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const auto count = static_cast<std::size_t>(element_count(call.input_shape));
  const std::size_t size = element_size(call);
  const std::size_t own = (count + ranks - 1) / ranks;  // the last parts are filled up with zeros
  const std::size_t part = own * size;
  if (count == 0) return Ok{};
  packed_.assign(part * ranks, '\0');
  std::memcpy(packed_.data(), input, count * size);
  AUTOPAR_RETURN_IF_ERROR(exchange(call, packed_, part));
  std::string reduced(part, '\0');
  reduce(reduce_op_of(call), call.dtype, parts_of(received_, ranks, part), own, reduced.data());
  AUTOPAR_TRY(group, group_of(call.group));
  AUTOPAR_RETURN_IF_ERROR(
      wait(mpi_.all_gather(group, reduced.data(), packed_.data(), part, error_), call));
  std::memcpy(output, packed_.data(), count * size);
  return Ok{};
}

Status MpiCommunicator::reduce_scatter(const CollectiveCall& call, const char* input,
                                       char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.output_shape);
  if (part == 0) return Ok{};
  packed_.resize(part * ranks);
  pack(call, call.input_shape, call.axis, ranks, input, packed_.data());
  AUTOPAR_RETURN_IF_ERROR(exchange(call, packed_, part));
  reduce(reduce_op_of(call), call.dtype, parts_of(received_, ranks, part),
         part / element_size(call), output);
  return Ok{};
}

Status MpiCommunicator::all_gather(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.input_shape);
  if (part == 0) return Ok{};
  AUTOPAR_TRY(group, group_of(call.group));
  if (is_outermost(call.output_shape, call.axis)) {
    return wait(mpi_.all_gather(group, input, output, part, error_), call);
  }
  received_.resize(part * ranks);
  AUTOPAR_RETURN_IF_ERROR(
      wait(mpi_.all_gather(group, input, received_.data(), part, error_), call));
  unpack(call, call.input_shape, call.axis, ranks, received_.data(), output, call.output_shape);
  return Ok{};
}

Status MpiCommunicator::all_to_all(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.input_shape) / ranks;
  if (part == 0) return Ok{};
  packed_.resize(part * ranks);
  pack(call, call.input_shape, call.axis, ranks, input, packed_.data());
  AUTOPAR_RETURN_IF_ERROR(exchange(call, packed_, part));
  Shape extent = call.input_shape;
  extent[static_cast<std::size_t>(call.axis)] /= static_cast<std::int64_t>(ranks);
  unpack(call, extent, call.concat_axis, ranks, received_.data(), output, call.output_shape);
  return Ok{};
}

Status MpiCommunicator::broadcast(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t bytes = bytes_of(call, call.input_shape);
  if (bytes == 0) return Ok{};
  AUTOPAR_TRY(group, group_of(call.group));
  if (call.position == call.root) std::memcpy(output, input, bytes);
  return wait(mpi_.broadcast(group, output, bytes, call.root, error_), call);
}

}  // namespace autopar
