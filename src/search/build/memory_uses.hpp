// What values take in memory, charged to their nodes and to the edges between these.
#pragma once

#include <utility>
#include <vector>

#include "search/build/mesh_build.hpp"

namespace autopar {

class MemoryUses {
 public:
  explicit MemoryUses(MeshBuild& build);

  // Where a value is. Edges are -1 where there is none.
  struct Places {
    MeshBuild::End spec, hub, output;
    int hub_edge = -1, output_edge = -1;
    std::vector<std::pair<OpId, int>> reader_edges;
  };
  void charge(ValueId id, const Places& places);

 private:
  void use_buffers(ValueId id, const MeshBuild::End& place);
  void use(ValueId id, const MeshBuild::End& place, const MemoryCharge& charge);
  void use_of_edge(int edge, const MemoryCharge& charge, int table);

  MeshBuild& build_;
  std::vector<std::vector<MemoryCharge>> charges_;  // per value
  std::vector<int> buffers_;                        // per value the copies of GradientBuffer
};

}  // namespace autopar
