#include "exec/nccl/communicator.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

#include "exec/collective_math.hpp"
#include "exec/reduce.hpp"
#include "support/counted.hpp"

namespace autopar {

namespace {

constexpr Seconds kForBetterWords = 0.5;

bool needs_widening(const CollectiveCall& call) {
  return has_reduction(call.kind) && !reduces(call.dtype);
}

// 16-bit integers as 32-bit ones. Sums and products of those, cut back, are those of 16 bits: both
// wrap.
template <class Narrow>
std::vector<std::int32_t> widened(const void* values, std::size_t count) {
  const Narrow* from = static_cast<const Narrow*>(values);
  return std::vector<std::int32_t>(from, from + count);
}

template <class Narrow>
void narrow(const std::vector<std::int32_t>& values, int divisor, void* to) {
  Narrow* out = static_cast<Narrow*>(to);
  for (std::size_t i = 0; i < values.size(); ++i) {
    out[i] = static_cast<Narrow>(static_cast<Narrow>(values[i]) / divisor);
  }
}

// What the threads give for a bool: 0 or 1.
void make_bools(void* values, std::size_t count) {
  auto* bytes = static_cast<unsigned char*>(values);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const NcclWorld& world, const GpuLibraries& libraries,
                                   const Gpu& gpu)
    : world_(world),
      libraries_(libraries),
      gpu_(gpu),
      stop_(world.failure),
      end_(gpu_),
      input_(gpu_),
      output_(gpu_),
      blocks_(gpu_) {}

Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::create(const NcclWorld& world) {
  AUTOPAR_TRY(libraries, open_gpu_libraries());
  AUTOPAR_TRY(gpu, Gpu::open(libraries, world.local_rank));
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(world, libraries, gpu));
  AUTOPAR_RETURN_IF_ERROR(communicator->open());
  return communicator;
}

Status NcclCommunicator::open() {
  AUTOPAR_RETURN_IF_ERROR(gpu_.make_current());
  AUTOPAR_TRY(stream, gpu_.make_stream());
  stream_ = stream;
  AUTOPAR_TRY(comms, NcclComms::create(libraries_, world_, stop_));
  comms_ = std::move(comms);
  messages_ = std::make_unique<GpuMessages>(libraries_, gpu_, *comms_);
  return Ok{};
}

// Communicators go before the memory: cudaFree waits for what is still on the device.
NcclCommunicator::~NcclCommunicator() {
  static_cast<void>(gpu_.make_current());
  if (messages_ && !stop_.is_set_anywhere()) {
    const auto waited = wait_until([&] { return messages_->all_arrived(); }, world_.timeout, stop_);
    if (!waited || *waited != Waited::kDone) stop_.set("a message did not arrive");
  }
  if (comms_ && stop_.is_set()) comms_->abort();
  comms_.reset();
  messages_.reset();
  if (stream_ != nullptr) gpu_.cuda().destroy_stream(stream_);
}

Status NcclCommunicator::prepare(const std::vector<GroupPartition>& partitions) {
  std::vector<std::vector<std::int64_t>> groups, pairs;
  for (const GroupPartition& partition : partitions) {
    for (auto first = partition.groups.begin(); first < partition.groups.end();
         first += partition.group_size) {
      (partition.of_messages ? pairs : groups).emplace_back(first, first + partition.group_size);
    }
  }
  AUTOPAR_RETURN_IF_ERROR(open_groups(CommUse::kCollectives, groups));
  return prepare_messages(pairs);
}

// A communicator for each pair: what one rank posts to another comes in order, whatever others do.
// NCCL connects two ranks at their first message, for which both of them wait: ranks that would
// first send to each other would wait for ever. So a byte goes over each pair here, in one order of
// the pairs for all ranks.
Status NcclCommunicator::prepare_messages(const std::vector<std::vector<std::int64_t>>& pairs) {
  AUTOPAR_RETURN_IF_ERROR(open_groups(CommUse::kMessages, pairs));
  for (const auto& pair : std::set(pairs.begin(), pairs.end())) {
    CollectiveCall first;
    first.op_name = "the first message of a pair";
    first.dtype = DType::kUInt8;
    first.input_shape = first.output_shape = {1};
    first.group = pair;
    const auto self = std::find(pair.begin(), pair.end(), world_.rank);
    if (self == pair.end() || pair.size() != 2) continue;
    first.position = static_cast<int>(self - pair.begin());
    first.kind = first.position == 0 ? CollectiveKind::kSend : CollectiveKind::kRecv;
    char byte = 0;
    AUTOPAR_RETURN_IF_ERROR(run(first, &byte, &byte));
  }
  return Ok{};
}

Status NcclCommunicator::open_groups(CommUse use,
                                     const std::vector<std::vector<std::int64_t>>& groups) {
  AUTOPAR_RETURN_IF_ERROR(gpu_.make_current());
  auto status = comms_->open_groups(use, groups);
  if (!status) {
    stop_.set(status.error().message);
    comms_->abort();
  }
  return status;
}

Status NcclCommunicator::run(const CollectiveCall& call, const void* input, void* output) {
  const auto status = [&]() -> Status {
    if (stop_.is_set_anywhere()) return runtime_error("stopped: " + stop_.reason());
    AUTOPAR_RETURN_IF_ERROR(gpu_.make_current());
    // A Send of before may have failed since.
    if (auto arrived = messages_->all_arrived(); !arrived) return arrived.error();
    if (buffer_bytes(call.output_shape, call.dtype) == 0) return Ok{};
    if (is_message(call.kind)) return run_message(call, input, output);
    if (call.stream == nullptr) {
      return needs_widening(call) ? run_widened(call, input, output)
                                  : run_in_host_memory(call, input, output);
    }
    if (needs_widening(call)) return run_widened_from_device(call, input, output);
    return run_on_device(call, input, output, static_cast<cudaStream_t>(call.stream));
  }();
  return status ? status : give_up(call, status.error());
}

// What comes back is copied only after the wait: a copy to host memory waits in the driver, where a
// rank that never comes could not be noticed.
Status NcclCommunicator::run_in_host_memory(const CollectiveCall& call, const void* input,
                                            void* output) {
  const std::size_t input_bytes = buffer_bytes(call.input_shape, call.dtype);
  const std::size_t output_bytes = buffer_bytes(call.output_shape, call.dtype);
  if (call.group.size() == 1) {
    std::memcpy(output, input, output_bytes);
  } else {
    AUTOPAR_TRY(device_input, input_.reserve(input_bytes));
    AUTOPAR_TRY(device_output, output_.reserve(output_bytes));
    AUTOPAR_RETURN_IF_ERROR(
        gpu_.copy(device_input, input, input_bytes, cudaMemcpyHostToDevice, stream_));
    AUTOPAR_RETURN_IF_ERROR(run_on_device(call, device_input, device_output, stream_));
    AUTOPAR_RETURN_IF_ERROR(
        gpu_.copy(output, device_output, output_bytes, cudaMemcpyDeviceToHost, stream_));
    AUTOPAR_RETURN_IF_ERROR(finish(nullptr, stream_));
  }
  if (call.dtype == DType::kBool && has_reduction(call.kind)) make_bools(output, output_bytes);
  return Ok{};
}

Status NcclCommunicator::run_widened(const CollectiveCall& call, const void* input, void* output) {
  const bool is_signed = call.dtype == DType::kInt16;
  const auto count = static_cast<std::size_t>(element_count(call.input_shape));
  const std::vector<std::int32_t> wide_input =
      is_signed ? widened<std::int16_t>(input, count) : widened<std::uint16_t>(input, count);
  std::vector<std::int32_t> wide_output(static_cast<std::size_t>(element_count(call.output_shape)));
  CollectiveCall wide = call;
  wide.dtype = DType::kInt32;
  // The sum wraps at 16 bits before it is divided.
  const bool average = call.reduce_op == "avg";
  if (average) wide.reduce_op = "sum";
  AUTOPAR_RETURN_IF_ERROR(run_in_host_memory(wide, wide_input.data(), wide_output.data()));
  const int divisor = average ? static_cast<int>(call.group.size()) : 1;
  if (is_signed) {
    narrow<std::int16_t>(wide_output, divisor, output);
  } else {
    narrow<std::uint16_t>(wide_output, divisor, output);
  }
  return Ok{};
}

// No kernel of ours widens on the device.
Status NcclCommunicator::run_widened_from_device(const CollectiveCall& call, const void* input,
                                                 void* output) {
  const auto stream = static_cast<cudaStream_t>(call.stream);
  std::string host_input(buffer_bytes(call.input_shape, call.dtype), '\0');
  std::string host_output(buffer_bytes(call.output_shape, call.dtype), '\0');
  AUTOPAR_RETURN_IF_ERROR(
      gpu_.copy(host_input.data(), input, host_input.size(), cudaMemcpyDeviceToHost, stream));
  AUTOPAR_RETURN_IF_ERROR(finish(nullptr, stream));
  AUTOPAR_RETURN_IF_ERROR(run_widened(call, host_input.data(), host_output.data()));
  AUTOPAR_RETURN_IF_ERROR(
      gpu_.copy(output, host_output.data(), host_output.size(), cudaMemcpyHostToDevice, stream));
  return finish(nullptr, stream);
}

Status NcclCommunicator::run_on_device(const CollectiveCall& call, const void* input, void* output,
                                       cudaStream_t stream) {
  if (call.group.size() == 1) {
    AUTOPAR_RETURN_IF_ERROR(gpu_.copy(output, input, buffer_bytes(call.output_shape, call.dtype),
                                      cudaMemcpyDeviceToDevice, stream));
    return finish(nullptr, stream);
  }
  const ncclComm_t comm = comms_->find(CommUse::kCollectives, call.group);
  if (comm == nullptr) {
    return input_error("no communicator was prepared for the group " + to_text(call.group));
  }
  AUTOPAR_TRY(issued,
              issue({libraries_, gpu_, *comms_, blocks_}, call, comm, input, output, stream));
  AUTOPAR_RETURN_IF_ERROR(ended_well(issued));
  return finish(comm, stream);
}

// Whether this rank is the sender or the receiver; groups of messages are pairs.
Result<ncclComm_t> NcclCommunicator::comm_of_pair(const CollectiveCall& call, int place) const {
  if (call.group.size() != 2 || call.position != place) return ncclComm_t{nullptr};
  const ncclComm_t comm = comms_->find(CommUse::kMessages, call.group);
  if (comm != nullptr) return comm;
  return input_error("no communicator was prepared for the pair " + to_text(call.group));
}

Status NcclCommunicator::run_message(const CollectiveCall& call, const void* input, void* output) {
  const bool on_device = call.stream != nullptr;
  const auto stream = on_device ? static_cast<cudaStream_t>(call.stream) : stream_;
  const std::size_t bytes = buffer_bytes(call.output_shape, call.dtype);
  if (call.kind == CollectiveKind::kSend) {
    AUTOPAR_TRY(comm, comm_of_pair(call, 0));
    if (comm != nullptr) {
      AUTOPAR_TRY(room, messages_->room(bytes));
      AUTOPAR_RETURN_IF_ERROR(
          gpu_.copy(room, input, bytes,
                    on_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice, stream));
      AUTOPAR_RETURN_IF_ERROR(finish(nullptr, stream));
      AUTOPAR_TRY(sent, messages_->send(comm, 1, bytes));
      AUTOPAR_RETURN_IF_ERROR(ended_well(sent));
    }
    if (on_device) {
      AUTOPAR_RETURN_IF_ERROR(gpu_.copy(output, input, bytes, cudaMemcpyDeviceToDevice, stream));
      return finish(nullptr, stream);
    }
    if (output != input) std::memcpy(output, input, bytes);
    return Ok{};
  }
  AUTOPAR_TRY(comm, comm_of_pair(call, 1));
  if (comm == nullptr) {
    if (on_device) {
      AUTOPAR_RETURN_IF_ERROR(gpu_.fill_with_zeros(output, bytes, stream));
      return finish(nullptr, stream);
    }
    std::memset(output, 0, bytes);
    return Ok{};
  }
  void* to = output;
  if (!on_device) {
    AUTOPAR_TRY(memory, output_.reserve(bytes));
    to = memory;
  }
  AUTOPAR_TRY(issued, messages_->receive(comm, 0, to, bytes, stream));
  AUTOPAR_RETURN_IF_ERROR(ended_well(issued));
  AUTOPAR_RETURN_IF_ERROR(finish(comm, stream));
  if (on_device) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(gpu_.copy(output, to, bytes, cudaMemcpyDeviceToHost, stream));
  return finish(nullptr, stream);
}

Status NcclCommunicator::finish(ncclComm_t comm, cudaStream_t stream) {
  AUTOPAR_RETURN_IF_ERROR(end_.record(stream));
  AUTOPAR_TRY(waited, wait_until(
                          [&]() -> Result<bool> {
                            if (comm != nullptr) AUTOPAR_RETURN_IF_ERROR(comms_->state_of(comm));
                            return end_.passed();
                          },
                          world_.timeout, stop_));
  return ended_well(waited);
}

Status NcclCommunicator::ended_well(Waited waited) const {
  if (waited == Waited::kDone) return Ok{};
  if (waited == Waited::kStopped) return runtime_error("stopped: " + stop_.reason());
  std::ostringstream text;
  text << "not complete after " << world_.timeout
       << " s: another rank of the group did not come to it, or came with another op; if its local "
          "ops need longer, raise the time limit";
  return runtime_error(text.str());
}

// Nothing more can be done with NCCL: the ranks' calls no longer match. Where another rank has
// ended, its own words or those of who noticed it say more than NCCL does, but may come a little
// later.
Status NcclCommunicator::give_up(const CollectiveCall& call, const Error& error) {
  std::string why = error.message;
  if (!stop_.is_set()) {
    const auto waited = wait_until([] { return Result<bool>(false); }, kForBetterWords, stop_);
    if (waited && *waited == Waited::kStopped) why = "stopped: " + stop_.reason();
  }
  const Error told{error.code,
                   "rank " + std::to_string(rank()) + ": " + to_text(call) + ": " + why};
  stop_.set(told.message);
  if (world_.tell) world_.tell(told.message);
  static_cast<void>(gpu_.make_current());
  comms_->abort();
  return told;
}

void NcclCommunicator::abort(const std::string& reason) {
  stop_.set(reason);
  if (world_.tell) world_.tell(reason);
}

Result<GpuRoom> NcclCommunicator::gpu_room(std::size_t input_bytes, std::size_t output_bytes) {
  AUTOPAR_RETURN_IF_ERROR(gpu_.make_current());
  AUTOPAR_TRY(input, input_.reserve(input_bytes));
  AUTOPAR_TRY(output, output_.reserve(output_bytes));
  return GpuRoom{input, output, stream_};
}

Result<std::unique_ptr<GpuCommunicator>> make_nccl_communicator(const NcclWorld& world) {
  AUTOPAR_TRY(communicator, NcclCommunicator::create(world));
  return std::unique_ptr<GpuCommunicator>(std::move(communicator));
}

Result<int> nccl_gpu(int local_rank) {
  AUTOPAR_TRY(libraries, open_gpu_libraries());
  AUTOPAR_TRY(gpu, Gpu::open(libraries, local_rank));
  return gpu.index();
}

Result<std::string> nccl_version() {
  AUTOPAR_TRY(libraries, open_gpu_libraries());
  int gpus = 0;
  std::string found = "no GPU";
  const cudaError_t error = libraries.cuda.device_count(&gpus);
  if (error != cudaSuccess) found += std::string(" (") + libraries.cuda.error_string(error) + ")";
  if (error == cudaSuccess && gpus > 0) {
    found = counted(gpus, "GPU");
  }
  return "NCCL " + nccl_version_text(libraries.nccl_version) + ", CUDA runtime " +
         std::to_string(libraries.cuda_version / 1000) + "." +
         std::to_string(libraries.cuda_version % 1000 / 10) + ", " + found;
}

}  // namespace autopar
