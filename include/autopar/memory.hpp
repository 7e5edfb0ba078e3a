// The least memory that any strategy needs.
#pragma once

#include "autopar/strategy.hpp"

namespace autopar {

// What no strategy can get below on so many devices: everything split over all of them, constants
// whole. `time`: when most is needed.
struct LeastMemory {
  Bytes bytes = 0;
  int time = 0;
};
LeastMemory least_memory(const Graph& graph, const std::vector<ValueId>& updated,
                         std::int64_t devices);

// What the runtime holds beside a value (Kernels) for sums of its gradients, all the time, where
// several ranks have the same part of the value: so many times its bytes, as it is stored. Not in
// memory_charges().
struct GradientBuffer {
  ValueId value;
  int copies = 0;
};
std::vector<GradientBuffer> gradient_buffers(const Graph& graph);
// Whether several ranks have the same part: some axis of more than one splits no dimension.
bool has_replicas(const Spec& spec, const Mesh& mesh);

// Of a kernel: what it makes takes the place of its first input, of which it writes a part. That is
// an op of its own that neither reads nor writes the whole.
bool writes_in_place(const OpKernel& kernel);

}  // namespace autopar
