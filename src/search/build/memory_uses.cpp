#include "search/build/memory_uses.hpp"

#include <algorithm>

#include "autopar/memory.hpp"

namespace autopar {

MemoryUses::MemoryUses(MeshBuild& build) : build_(build) {
  if (!build.limited()) return;
  buffers_.assign(build.graph.values.size(), 0);
  for (const GradientBuffer& buffer : gradient_buffers(build.graph)) {
    buffers_[buffer.value.index()] = buffer.copies;
  }
  charges_.resize(build.graph.values.size());
  for (const MemoryCharge& charge : memory_charges(build.graph, build.readers, build.updated)) {
    charges_[charge.value.index()].push_back(charge);
  }
}

void MemoryUses::charge(ValueId id, const Places& places) {
  using Kind = MemoryCharge::Kind;
  if (!build_.limited() || build_.graph.is_inside(id)) return;
  const int type = build_.type_of(id);
  SpecTables& tables = build_.tables;
  const MeshBuild::End& source = places.hub.node >= 0 ? places.hub : places.spec;
  if (buffers_[id.index()] > 0) use_buffers(id, places.spec);
  for (const MemoryCharge& c : charges_[id.index()]) {
    switch (c.kind) {
      case Kind::kSpec:
        use(id, places.spec, c);
        break;
      case Kind::kHub:
        use(id, places.hub, c);
        break;
      case Kind::kOutput:
        use(id, places.output, c);
        break;
      case Kind::kToHub:
        use_of_edge(places.hub_edge, c, tables.copies(type, places.spec.list, places.hub.list));
        break;
      case Kind::kToOutput:
        use_of_edge(places.output_edge, c, tables.copies(type, source.list, places.output.list));
        break;
      case Kind::kToReader: {
        const auto& edges = places.reader_edges;
        const auto found = std::find_if(edges.begin(), edges.end(),
                                        [&](const auto& edge) { return edge.first == c.reader; });
        AUTOPAR_CHECK(found != edges.end(), "a charge for a reader that does not read");
        if (found->second < 0) break;
        const int needed = build_.table_of_op[c.reader.index()]->input_lists.front();
        use_of_edge(found->second, c, tables.copies(type, source.list, needed));
        break;
      }
    }
  }
}

void MemoryUses::use(ValueId id, const MeshBuild::End& place, const MemoryCharge& charge) {
  std::vector<double> bytes = build_.tables.bytes(build_.type_of(id), place.list);
  for (double& b : bytes) b *= charge.copies;
  build_.use(place.node, charge.begin, charge.end, std::move(bytes));
}

void MemoryUses::use_buffers(ValueId id, const MeshBuild::End& place) {
  std::vector<double> bytes = build_.tables.bytes(build_.type_of(id), place.list);
  const SpecList& specs = build_.tables.specs(place.list);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] *= has_replicas(specs[i], build_.model.mesh()) ? buffers_[id.index()] : 0;
  }
  build_.use(place.node, 0, build_.out.problem.horizon, std::move(bytes));
}

void MemoryUses::use_of_edge(int edge, const MemoryCharge& charge, int table) {
  for (int copy = 0; copy < charge.copies; ++copy) {
    build_.out.problem.edges[static_cast<std::size_t>(edge)].uses.push_back(
        {charge.begin, charge.end, table});
  }
}

}  // namespace autopar
