// What a node of ai.autopar says in its attributes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/runtime.hpp"

namespace autopar {

// The attributes of a node; `groups` is empty where it was not asked for.
struct CollectiveAttributes {
  std::vector<std::int64_t> groups;
  std::int64_t group_size = 0;
  std::int64_t seq = -1;
  std::int64_t axis = 0;
  std::int64_t concat_axis = 0;
  std::int64_t root = 0;
  std::int64_t shift = 1;
  std::string reduce_op;
  std::int64_t tag = 0;             // Send, Recv
  Shape shape;                      // Recv
  std::optional<DType> dtype = {};  // Recv
};

// "axis", or of AllToAll "split_axis".
const char* axis_attribute(CollectiveKind kind);
bool has_axis(CollectiveKind kind);

// Throws Ort::Exception where a needed attribute is missing or has another type.
CollectiveAttributes read_attributes(CollectiveKind kind, const Ort::ConstKernelInfo& info);

// Errors (kInput): groups do not hold every rank of the program (empty: of the world) once, or
// of messages no pairs; the root or the reduction do not exist.
Status verify(const CollectiveAttributes& attributes, CollectiveKind kind,
              const std::vector<std::int64_t>& program, int world);

// The call of a rank, all but what its tensors say. Of a message of others: with an empty group.
CollectiveCall make_call(CollectiveKind kind, const CollectiveAttributes& attributes, int rank);

}  // namespace autopar
