#include "planning/pipelines/message.hpp"

#include <algorithm>

#include "autopar/comm.hpp"

namespace autopar {

double bytes_to_read(const Value& value, const Placed& made, const Placed& read, bool same_ranks) {
  const Shape wanted = local_shape(read.spec, value.shape, read.mesh);
  const double bytes_of_element = static_cast<double>(size_of(value.dtype));
  if (!same_ranks) return bytes_of_element * static_cast<double>(element_count(wanted));
  const Shape held = local_shape(made.spec, value.shape, made.mesh);
  double most = 0;
  for (std::int64_t p = 0; p < read.mesh.size(); ++p) {
    const Shape to = slice_offsets(read.spec, value.shape, read.mesh, p);
    const Shape from = slice_offsets(made.spec, value.shape, made.mesh, p);
    double own = 1;
    for (std::size_t d = 0; d < wanted.size(); ++d) {
      const std::int64_t begin = std::max(to[d], from[d]);
      const std::int64_t end = std::min(to[d] + wanted[d], from[d] + held[d]);
      own *= static_cast<double>(std::max<std::int64_t>(0, end - begin));
    }
    most = std::max(most, static_cast<double>(element_count(wanted)) - own);
  }
  return bytes_of_element * most;
}

HandedValue handed_value(const ChunkPlan& maker, const ChunkPlan& reader, const std::string& name) {
  const auto find = [&name](const Graph& graph, const std::vector<ValueId>& ids) {
    const auto found = std::find_if(ids.begin(), ids.end(),
                                    [&](ValueId id) { return graph.value(id).name == name; });
    AUTOPAR_CHECK(found != ids.end(), "a chunk does not have '" + name + "'");
    return *found;
  };
  const Graph& made_in = maker.planned->request->graph;
  const Graph& read_in = reader.planned->request->graph;
  const ValueId made = find(made_in, made_in.outputs), read = find(read_in, read_in.inputs);
  const Strategy& one = maker.planned->outcome.strategy;
  const Strategy& other = reader.planned->outcome.strategy;
  return {made,
          read,
          made_in.value(made),
          {one.values[made.index()].output, one.mesh},
          {other.values[read.index()].spec, other.mesh}};
}

Seconds message_seconds(const Cluster& cluster, const Cluster& stage, std::int64_t from,
                        std::int64_t to, double bytes) {
  const std::int64_t devices = stage.device_count();
  if (!(bytes > 0) || (from == to && devices == 1)) return 0;
  const std::int64_t first = from * devices;
  return collective_seconds(CollectiveKind::kSend, bytes,
                            {first, from == to ? first + devices - 1 : to * devices}, 2, cluster);
}

}  // namespace autopar
