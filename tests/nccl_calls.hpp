// For tests: calls of ranks by the communicator over NCCL, and what the threads would give them.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "exec/collective_math.hpp"
#include "stand_in/ranks.hpp"

namespace autopar::testing::nccl_calls {

inline std::size_t bytes_in(const Shape& shape, DType dtype) { return buffer_bytes(shape, dtype); }

// A call as a rank gets it, of a partition.
inline CollectiveCall call_of(CollectiveKind kind, const GroupPartition& partition, int rank,
                              const Shape& input, int axis = 0, int concat_axis = 0) {
  CollectiveCall call;
  call.kind = kind;
  call.op_name = "op";
  call.axis = axis;
  call.concat_axis = concat_axis;
  call.input_shape = input;
  call.output_shape = *output_shape_of(kind, input, partition.group_size, axis, concat_axis);
  for (std::size_t i = 0; i < partition.groups.size(); ++i) {
    if (partition.groups[i] != rank) continue;
    const auto size = static_cast<std::size_t>(partition.group_size);
    call.position = static_cast<int>(i % size);
    const auto first = partition.groups.begin() + static_cast<std::ptrdiff_t>(i - i % size);
    call.group.assign(first, first + partition.group_size);
  }
  return call;
}

// Any numbers, the same on all ranks that ask; of bools 0 and 1, of floats ordinary ones.
inline std::string data_of(std::int64_t rank, std::int64_t seq, DType dtype, std::size_t count) {
  std::uint64_t state = static_cast<std::uint64_t>(rank * 7919 + seq * 104729 + 17);
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto random = static_cast<std::uint32_t>(state >> 33);
    const float value = static_cast<float>(random % 2000) / 300.0f - 3.0f;
    const double wide = value;
    std::uint64_t bits = random * 2654435761u;
    switch (dtype) {
      case DType::kFloat32:
        std::memcpy(&bits, &value, sizeof value);
        break;
      case DType::kFloat64:
        std::memcpy(&bits, &wide, sizeof wide);
        break;
      case DType::kFloat16:
        bits = 0x3c00 + random % 512 + ((random & 1024) << 5);
        break;
      case DType::kBFloat16:
        bits = 0x3f80 + random % 64 + ((random & 1024) << 5);
        break;
      case DType::kBool:
        bits = random % 2;
        break;
      default:
        break;
    }
    bytes.append(reinterpret_cast<const char*>(&bits), static_cast<std::size_t>(size_of(dtype)));
  }
  return bytes;
}

inline std::string input_of(const CollectiveCall& call, std::int64_t rank) {
  return data_of(rank, call.seq, call.dtype,
                 static_cast<std::size_t>(element_count(call.input_shape)));
}

// What the threads would give this rank.
inline std::string expected_of(const CollectiveCall& call) {
  std::vector<std::string> inputs, outputs;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (std::int64_t rank : call.group) {
    inputs.push_back(input_of(call, rank));
    outputs.emplace_back(bytes_in(call.output_shape, call.dtype), '\0');
  }
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    from.push_back(inputs[p].data());
    to.push_back(outputs[p].data());
  }
  for (std::size_t p = 0; p < inputs.size(); ++p) {
    CollectiveCall other = call;
    other.position = static_cast<int>(p);
    perform(other, from, to);
  }
  return outputs[static_cast<std::size_t>(call.position)];
}

inline Status run_and_compare(NcclCommunicator& communicator, const CollectiveCall& call) {
  const std::string input = input_of(call, communicator.rank());
  std::string output(bytes_in(call.output_shape, call.dtype), '\x5a');
  AUTOPAR_RETURN_IF_ERROR(communicator.run(call, input.data(), output.data()));
  if (output == expected_of(call)) return Ok{};
  return runtime_error("rank " + std::to_string(communicator.rank()) + " gets other data in " +
                       to_text(call) + " axis " + std::to_string(call.axis) + " " +
                       std::to_string(call.concat_axis) + " " + call.reduce_op);
}

inline void require_ok(const std::vector<Status>& results) {
  for (const Status& result : results) {
    INFO((result.ok() ? "" : result.error().message));
    REQUIRE(result.ok());
  }
}

// Nothing was misused, and everything was given back.
inline void require_clean(const stand_in::Libraries& libraries) {
  CHECK(libraries.misuse() == "");
  CHECK(libraries.live() == 0);
}

}  // namespace autopar::testing::nccl_calls
