#include "exec/nccl/issue.hpp"

#include <optional>

#include "exec/collective_math.hpp"
#include "exec/reduce.hpp"

namespace autopar {

namespace {

std::optional<ncclDataType_t> type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt8:
      return ncclInt8;
    case DType::kUInt8:
    case DType::kBool:
      return ncclUint8;
    case DType::kInt32:
      return ncclInt32;
    case DType::kUInt32:
      return ncclUint32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kUInt64:
      return ncclUint64;
    case DType::kInt16:
    case DType::kUInt16:
      return std::nullopt;
  }
  return std::nullopt;
}

ncclRedOp_t op_of(ReduceOp op, DType dtype) {
  const bool is_bool = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? ncclMax : ncclSum;
    case ReduceOp::kAvg:
      return is_bool ? ncclMax : ncclAvg;
    case ReduceOp::kProd:
      return is_bool ? ncclMin : ncclProd;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
  }
  return ncclSum;
}

// What a group's ranks hold of a tensor along one axis: `rows` times the parts of all, one after
// the other, `width` bytes each.
struct Parts {
  Parts(const Shape& part, int axis, std::size_t element_size, std::size_t ranks)
      : count(ranks), width(element_size) {
    for (std::size_t d = 0; d < part.size(); ++d) {
      (d < static_cast<std::size_t>(axis) ? rows : width) *= static_cast<std::size_t>(part[d]);
    }
  }
  // The parts lie one after the other already.
  bool in_blocks() const { return rows == 1; }
  std::size_t part_bytes() const { return rows * width; }
  std::size_t bytes() const { return count * part_bytes(); }

  std::size_t count;
  std::size_t rows = 1;
  std::size_t width;
};

// The tensor as blocks: itself, or a copy.
Result<const void*> to_blocks(const Gpu& gpu, const Parts& parts, const void* tensor,
                              GpuScratch& scratch, cudaStream_t stream) {
  if (parts.in_blocks()) return tensor;
  AUTOPAR_TRY(blocks, scratch.reserve(parts.bytes()));
  for (std::size_t p = 0; p < parts.count; ++p) {
    AUTOPAR_RETURN_IF_ERROR(
        gpu.copy_rows(static_cast<char*>(blocks) + p * parts.part_bytes(),
                      static_cast<const char*>(tensor) + p * parts.width,
                      {parts.rows, parts.width, parts.width, parts.count * parts.width}, stream));
  }
  return static_cast<const void*>(blocks);
}

// Where blocks may arrive: in the tensor, or in the scratch memory that from_blocks() reads.
Result<void*> room_for_blocks(const Parts& parts, void* tensor, GpuScratch& scratch) {
  if (parts.in_blocks()) return tensor;
  return scratch.reserve(parts.bytes());
}

Status from_blocks(const Gpu& gpu, const Parts& parts, const void* blocks, void* tensor,
                   cudaStream_t stream) {
  if (parts.in_blocks()) return Ok{};
  for (std::size_t p = 0; p < parts.count; ++p) {
    AUTOPAR_RETURN_IF_ERROR(
        gpu.copy_rows(static_cast<char*>(tensor) + p * parts.width,
                      static_cast<const char*>(blocks) + p * parts.part_bytes(),
                      {parts.rows, parts.width, parts.count * parts.width, parts.width}, stream));
  }
  return Ok{};
}

// What is not reduced is moved as bytes.
constexpr ncclDataType_t kBytes = ncclUint8;

struct Call {
  const CollectiveCall& of;
  ncclComm_t comm;
  cudaStream_t stream;
  std::size_t ranks() const { return of.group.size(); }
  std::size_t element_size() const { return static_cast<std::size_t>(size_of(of.dtype)); }
};

struct NcclReduction {
  ncclDataType_t type;
  ncclRedOp_t op;
};
Result<NcclReduction> reduction_of(const CollectiveCall& call) {
  const auto type = type_of(call.dtype);
  const auto op = parse_reduce_op(call.reduce_op);
  if (!type) return input_error("NCCL cannot reduce " + std::string(name_of(call.dtype)));
  if (!op) return input_error("unknown reduce_op '" + call.reduce_op + "'");
  return NcclReduction{*type, op_of(*op, call.dtype)};
}

Result<Waited> all_reduce(const Issuer& with, const Call& call, const void* input, void* output) {
  AUTOPAR_TRY(reduction, reduction_of(call.of));
  const auto count = static_cast<std::size_t>(element_count(call.of.input_shape));
  return with.comms.settle(
      call.comm, with.libraries.nccl.all_reduce(input, output, count, reduction.type, reduction.op,
                                                call.comm, call.stream));
}

Result<Waited> reduce_scatter(const Issuer& with, const Call& call, const void* input,
                              void* output) {
  AUTOPAR_TRY(reduction, reduction_of(call.of));
  const Parts parts(call.of.output_shape, call.of.axis, call.element_size(), call.ranks());
  AUTOPAR_TRY(blocks, to_blocks(with.gpu, parts, input, with.blocks.sent, call.stream));
  const auto count = static_cast<std::size_t>(element_count(call.of.output_shape));
  return with.comms.settle(
      call.comm, with.libraries.nccl.reduce_scatter(blocks, output, count, reduction.type,
                                                    reduction.op, call.comm, call.stream));
}

Result<Waited> all_gather(const Issuer& with, const Call& call, const void* input, void* output) {
  const Parts parts(call.of.input_shape, call.of.axis, call.element_size(), call.ranks());
  AUTOPAR_TRY(blocks, room_for_blocks(parts, output, with.blocks.received));
  AUTOPAR_TRY(waited, with.comms.settle(call.comm, with.libraries.nccl.all_gather(
                                                       input, blocks, parts.part_bytes(), kBytes,
                                                       call.comm, call.stream)));
  if (waited != Waited::kDone) return waited;
  AUTOPAR_RETURN_IF_ERROR(from_blocks(with.gpu, parts, blocks, output, call.stream));
  return waited;
}

// Within one group of calls all sends and receives go on together.
ncclResult_t exchange(const NcclEntries& nccl, const Call& call, const void* sent, void* received,
                      std::size_t bytes) {
  ncclResult_t result = nccl.group_start();
  for (std::size_t p = 0; p < call.ranks() && result == ncclSuccess; ++p) {
    const int peer = static_cast<int>(p);
    result = nccl.send(static_cast<const char*>(sent) + p * bytes, bytes, kBytes, peer, call.comm,
                       call.stream);
    if (result != ncclSuccess) break;
    result = nccl.recv(static_cast<char*>(received) + p * bytes, bytes, kBytes, peer, call.comm,
                       call.stream);
  }
  const ncclResult_t ended = nccl.group_end();
  return result == ncclSuccess ? ended : result;
}

Result<Waited> all_to_all(const Issuer& with, const Call& call, const void* input, void* output) {
  Shape part = call.of.input_shape;
  part[static_cast<std::size_t>(call.of.axis)] /= static_cast<std::int64_t>(call.ranks());
  const Parts split(part, call.of.axis, call.element_size(), call.ranks());
  const Parts concat(part, call.of.concat_axis, call.element_size(), call.ranks());
  AUTOPAR_TRY(sent, to_blocks(with.gpu, split, input, with.blocks.sent, call.stream));
  AUTOPAR_TRY(received, room_for_blocks(concat, output, with.blocks.received));
  const NcclEntries& nccl = with.libraries.nccl;
  const ncclResult_t issued =
      nccl.all_to_all != nullptr
          ? nccl.all_to_all(sent, received, split.part_bytes(), kBytes, call.comm, call.stream)
          : exchange(nccl, call, sent, received, split.part_bytes());
  AUTOPAR_TRY(waited, with.comms.settle(call.comm, issued));
  if (waited != Waited::kDone) return waited;
  AUTOPAR_RETURN_IF_ERROR(from_blocks(with.gpu, concat, received, output, call.stream));
  return waited;
}

Result<Waited> broadcast(const Issuer& with, const Call& call, const void* input, void* output) {
  const std::size_t bytes = buffer_bytes(call.of.input_shape, call.of.dtype);
  return with.comms.settle(call.comm,
                           with.libraries.nccl.broadcast(input, output, bytes, kBytes, call.of.root,
                                                         call.comm, call.stream));
}

// Sends and receives of one group of calls go on together.
Result<Waited> permute(const Issuer& with, const Call& call, const void* input, void* output) {
  const std::size_t bytes = buffer_bytes(call.of.input_shape, call.of.dtype);
  const NcclEntries& nccl = with.libraries.nccl;
  const auto ranks = static_cast<int>(call.ranks());
  const int source = source_of(call.of);
  const int target = (2 * call.of.position - source + ranks) % ranks;
  ncclResult_t result = nccl.group_start();
  if (result == ncclSuccess) {
    result = nccl.send(input, bytes, kBytes, target, call.comm, call.stream);
  }
  if (result == ncclSuccess) {
    result = nccl.recv(output, bytes, kBytes, source, call.comm, call.stream);
  }
  const ncclResult_t ended = nccl.group_end();
  return with.comms.settle(call.comm, result == ncclSuccess ? ended : result);
}

}  // namespace

bool reduces(DType dtype) { return type_of(dtype).has_value(); }

std::size_t buffer_bytes(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(element_count(shape)) * static_cast<std::size_t>(size_of(dtype));
}

Result<Waited> issue(const Issuer& issuer, const CollectiveCall& of, ncclComm_t comm,
                     const void* input, void* output, cudaStream_t stream) {
  const Call call{of, comm, stream};
  switch (of.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(issuer, call, input, output);
    case CollectiveKind::kAllGather:
      return all_gather(issuer, call, input, output);
    case CollectiveKind::kReduceScatter:
      return reduce_scatter(issuer, call, input, output);
    case CollectiveKind::kAllToAll:
      return all_to_all(issuer, call, input, output);
    case CollectiveKind::kBroadcast:
      return broadcast(issuer, call, input, output);
    case CollectiveKind::kPermute:
      return permute(issuer, call, input, output);
    case CollectiveKind::kShardSlice:
    case CollectiveKind::kMakePartial:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      break;
  }
  return input_error("it is no collective of a group");
}

}  // namespace autopar
