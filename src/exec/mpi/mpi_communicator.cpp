#include "exec/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "exec/blocks.hpp"
#include "exec/collective_math.hpp"
#include "exec/reduce.hpp"

namespace autopar {

namespace {

constexpr int kMessageTag = 1;  // messages between two ranks meet in their order
constexpr int kPostedTag = 2;   // and so do those that nobody waits for
constexpr int kRingTag = 3;     // and those of Permute
constexpr int kSpins = 2000;    // polls before sleeping between them
constexpr const char* kMakesCommunicator = "the making of its group's communicator";
constexpr auto kSleep = std::chrono::microseconds(50);

std::size_t bytes_of(const CollectiveCall& call, const Shape& shape) {
  return static_cast<std::size_t>(element_count(shape)) * element_size(call);
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

MpiCommunicator::~MpiCommunicator() {
  if (!posted_.empty()) give_up_buffers();
}

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
    if (surroundings_.failed()) {
      give_up_buffers();
      return *surroundings_.failure();
    }
    if (polls < spins + 20) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSleep);
    }
  }
}

void MpiCommunicator::give_up_buffers() {
  static std::vector<std::unique_ptr<Buffers>>& given_up =
      *new std::vector<std::unique_ptr<Buffers>>();  // also while the process ends
  for (Posted& posted : posted_) given_up.push_back(std::move(posted.buffers));
  posted_.clear();
  given_up.push_back(std::exchange(buffers_, std::make_unique<Buffers>()));
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
    case CollectiveKind::kPermute:
      return permute(call, from, to);
    case CollectiveKind::kSend:
      return send(call, from, to);
    case CollectiveKind::kRecv:
      return receive(call, to, kMessageTag);
    case CollectiveKind::kShardSlice:
    case CollectiveKind::kMakePartial:
      break;
  }
  AUTOPAR_CHECK(false, "no communication: " + to_text(call));
}

Status MpiCommunicator::exchange(const CollectiveCall& call, std::size_t part) {
  AUTOPAR_TRY(group, group_of(call.group));
  buffers_->received.resize(part * call.group.size());
  return wait(
      mpi_.all_to_all(group, buffers_->packed.data(), buffers_->received.data(), part, error_),
      call);
}

Status MpiCommunicator::gather(const CollectiveCall& call, const std::string& part) {
  AUTOPAR_TRY(group, group_of(call.group));
  buffers_->received.resize(part.size() * call.group.size());
  return wait(mpi_.all_gather(group, part.data(), buffers_->received.data(), part.size(), error_),
              call);
}

Status MpiCommunicator::all_reduce(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const auto count = static_cast<std::size_t>(element_count(call.input_shape));
  const std::size_t size = element_size(call);
  const std::size_t own = (count + ranks - 1) / ranks;  // the last parts are filled up with zeros
  const std::size_t part = own * size;
  if (count == 0) return Ok{};
  buffers_->packed.assign(part * ranks, '\0');
  std::memcpy(buffers_->packed.data(), input, count * size);
  AUTOPAR_RETURN_IF_ERROR(exchange(call, part));
  buffers_->reduced.resize(part);
  reduce(reduce_op_of(call), call.dtype, parts_of(buffers_->received, ranks, part), own,
         buffers_->reduced.data());
  AUTOPAR_RETURN_IF_ERROR(gather(call, buffers_->reduced));
  std::memcpy(output, buffers_->received.data(), count * size);
  return Ok{};
}

Status MpiCommunicator::reduce_scatter(const CollectiveCall& call, const char* input,
                                       char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.output_shape);
  if (part == 0) return Ok{};
  buffers_->packed.resize(part * ranks);
  pack(call, call.input_shape, call.axis, ranks, input, buffers_->packed.data());
  AUTOPAR_RETURN_IF_ERROR(exchange(call, part));
  reduce(reduce_op_of(call), call.dtype, parts_of(buffers_->received, ranks, part),
         part / element_size(call), output);
  return Ok{};
}

Status MpiCommunicator::all_gather(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.input_shape);
  if (part == 0) return Ok{};
  buffers_->packed.assign(input, part);
  AUTOPAR_RETURN_IF_ERROR(gather(call, buffers_->packed));
  if (is_outermost(call.output_shape, call.axis)) {
    std::memcpy(output, buffers_->received.data(), part * ranks);
  } else {
    unpack(call, call.input_shape, call.axis, ranks, buffers_->received.data(), output,
           call.output_shape);
  }
  return Ok{};
}

Status MpiCommunicator::all_to_all(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t ranks = call.group.size();
  const std::size_t part = bytes_of(call, call.input_shape) / ranks;
  if (part == 0) return Ok{};
  buffers_->packed.resize(part * ranks);
  pack(call, call.input_shape, call.axis, ranks, input, buffers_->packed.data());
  AUTOPAR_RETURN_IF_ERROR(exchange(call, part));
  Shape extent = call.input_shape;
  extent[static_cast<std::size_t>(call.axis)] /= static_cast<std::int64_t>(ranks);
  unpack(call, extent, call.concat_axis, ranks, buffers_->received.data(), output,
         call.output_shape);
  return Ok{};
}

Status MpiCommunicator::broadcast(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t bytes = bytes_of(call, call.input_shape);
  if (bytes == 0) return Ok{};
  AUTOPAR_TRY(group, group_of(call.group));
  buffers_->received.resize(bytes);
  if (call.position == call.root) std::memcpy(buffers_->received.data(), input, bytes);
  AUTOPAR_RETURN_IF_ERROR(
      wait(mpi_.broadcast(group, buffers_->received.data(), bytes, call.root, error_), call));
  std::memcpy(output, buffers_->received.data(), bytes);
  return Ok{};
}

// The receive is there before anything is sent, so that no rank of the ring waits for another's.
Status MpiCommunicator::permute(const CollectiveCall& call, const char* input, char* output) {
  const std::size_t bytes = bytes_of(call, call.input_shape);
  const int source = source_of(call);
  if (bytes == 0) return Ok{};
  if (source == call.position) {
    std::memcpy(output, input, bytes);
    return Ok{};
  }
  const auto ranks = static_cast<int>(call.group.size());
  const auto target = static_cast<std::size_t>((2 * call.position - source + ranks) % ranks);
  buffers_->received.resize(bytes);
  buffers_->packed.assign(input, bytes);
  AutoparMpiRequest* coming =
      mpi_.receive(static_cast<int>(call.group[static_cast<std::size_t>(source)]),
                   buffers_->received.data(), bytes, kRingTag, error_);
  AutoparMpiRequest* going = mpi_.send(static_cast<int>(call.group[target]),
                                       buffers_->packed.data(), bytes, kRingTag, error_);
  AUTOPAR_RETURN_IF_ERROR(wait(coming, call));
  AUTOPAR_RETURN_IF_ERROR(wait(going, call));
  std::memcpy(output, buffers_->received.data(), bytes);
  return Ok{};
}

// What is sent is the output as well, so that who needs it comes after.
Status MpiCommunicator::send(const CollectiveCall& call, const char* input, char* output) {
  std::memcpy(output, input, bytes_of(call, call.output_shape));
  buffers_->packed.assign(input, bytes_of(call, call.input_shape));
  return wait(mpi_.send(static_cast<int>(call.group[1]), buffers_->packed.data(),
                        buffers_->packed.size(), kMessageTag, error_),
              call);
}

Status MpiCommunicator::receive(const CollectiveCall& call, char* output, int tag) {
  buffers_->received.resize(bytes_of(call, call.output_shape));
  AUTOPAR_RETURN_IF_ERROR(
      wait(mpi_.receive(static_cast<int>(call.group[0]), buffers_->received.data(),
                        buffers_->received.size(), tag, error_),
           call));
  std::memcpy(output, buffers_->received.data(), buffers_->received.size());
  return Ok{};
}

// A message that has been taken goes when the next one is posted.
Status MpiCommunicator::post(const CollectiveCall& call, const void* input) {
  if (surroundings_.failed()) return *surroundings_.failure();
  const CallLog::Inside inside(*surroundings_.calls, call);
  for (std::size_t i = 0; i < posted_.size();) {
    const int state = mpi_.test(posted_[i].request, error_);
    if (state == 0) {
      ++i;
      continue;
    }
    const std::unique_ptr<Buffers> gone = std::move(posted_[i].buffers);
    const std::string call_text = to_text(posted_[i].call);
    posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
    if (state < 0) {
      return runtime_error("rank " + std::to_string(rank_) + " in " + call_text + ": " + error_);
    }
  }
  Posted& message = posted_.emplace_back();
  message.call = call;
  message.buffers = std::make_unique<Buffers>();
  std::string& bytes = message.buffers->packed;
  bytes.assign(static_cast<const char*>(input), bytes_of(call, call.input_shape));
  message.request =
      mpi_.send(static_cast<int>(call.group[1]), bytes.data(), bytes.size(), kPostedTag, error_);
  if (message.request != nullptr) return Ok{};
  posted_.pop_back();
  return runtime_error("rank " + std::to_string(rank_) + " in " + to_text(call) + ": " + error_);
}

Status MpiCommunicator::take(const CollectiveCall& call, void* output) {
  if (surroundings_.failed()) return *surroundings_.failure();
  const CallLog::Inside inside(*surroundings_.calls, call);
  return receive(call, static_cast<char*>(output), kPostedTag);
}

Status MpiCommunicator::settle() {
  while (!posted_.empty()) {
    const CollectiveCall call = posted_.front().call;
    const CallLog::Inside inside(*surroundings_.calls, call);
    AUTOPAR_RETURN_IF_ERROR(wait(posted_.front().request, call));
    posted_.erase(posted_.begin());
  }
  return Ok{};
}

}  // namespace autopar
