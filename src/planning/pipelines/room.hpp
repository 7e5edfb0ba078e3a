// What a plan of a device may take.
#pragma once

#include "planning/inputs.hpp"

namespace autopar {

// Of the memory of the cluster's devices, or of what --memory says, what the profile's runtime
// leaves. Errors: --memory is no size.
inline Result<Bytes> room_of(const Cluster& cluster, const CommonOptions& common) {
  Bytes limit = cluster.device.memory_bytes;
  if (!common.memory.empty()) {
    AUTOPAR_TRY(asked, parse_bytes(common.memory));
    limit = asked;
  }
  return cluster.profile.room_in(limit);
}

inline Bytes share_of(Bytes room, double part) {
  return static_cast<Bytes>(part * static_cast<double>(room));
}

}  // namespace autopar
