#include <algorithm>
#include <bit>
#include <cmath>

#include "autopar/comm.hpp"

namespace autopar {

namespace {

// Keeps the price of a collective positive where a cluster states no latency and nothing is sent.
constexpr Seconds kLeastSeconds = 1e-9;

// The part of a group that lies across one tier.
struct TierPart {
  std::size_t tier = 0;
  double members = 1;  // of the group, across this tier
  double inner = 1;    // of the group, within one member of this tier
};

// Innermost first; only tiers that the group crosses.
std::vector<TierPart> tier_parts(const std::vector<int>& axes, const Mesh& mesh,
                                 const Cluster& cluster) {
  std::vector<TierPart> parts;
  std::int64_t begin = 1;  // ranks within one member of the tier
  std::int64_t inner = 1;
  for (std::size_t t = 0; t < cluster.tiers.size(); ++t) {
    const std::int64_t end = begin * cluster.tiers[t].size;
    std::int64_t members = 1;
    for (int index : axes) {
      const Axis& axis = mesh.axes[static_cast<std::size_t>(index)];
      const std::int64_t low = std::max(begin, axis.stride);
      const std::int64_t high = std::min(end, axis.stride * axis.size);
      if (low < high) members *= high / low;
    }
    if (members > 1) {
      parts.push_back({t, static_cast<double>(members), static_cast<double>(inner)});
    }
    inner *= members;
    begin = end;
  }
  return parts;
}

// Where a measured table dips, the best fraction of all smaller messages counts, so that sending
// two messages at once is never slower than one after the other.
double efficiency_at(const Tier& tier, double bytes) {
  const auto& table = tier.efficiency;
  if (table.empty()) return 1;
  double best = table.front().second;
  for (std::size_t i = 1; i < table.size() && table[i - 1].first < bytes; ++i) {
    const auto& [low, low_fraction] = table[i - 1];
    const auto& [high, high_fraction] = table[i];
    const double at = std::log(std::min(bytes, high) / low) / std::log(high / low);
    best = std::max(best, low_fraction + at * (high_fraction - low_fraction));
  }
  return best;
}

// Between two entries of the table, time over bytes falls, then rises. The largest time of all
// smaller messages counts, and it lies at an entry: more bytes never take less time.
Seconds link_seconds(const Tier& tier, double bytes) {
  double most = bytes / efficiency_at(tier, bytes);
  for (const auto& [size, fraction] : tier.efficiency) {
    if (size < bytes) most = std::max(most, size / efficiency_at(tier, size));
  }
  return most / tier.bandwidth_bytes_per_s;
}

// One phase across a tier: what a device sends, and how many times it waits for a first byte.
Seconds phase_seconds(const Cluster& cluster, std::size_t tier, double bytes, double latencies) {
  Seconds transfer = link_seconds(cluster.tiers[tier], bytes);
  Seconds latency = cluster.tiers[tier].latency_s;
  for (std::size_t t = 0; t < tier; ++t) {
    if (cluster.tiers[t].size == 1) continue;
    transfer = std::max(transfer, link_seconds(cluster.tiers[t], bytes));
    latency = std::max(latency, cluster.tiers[t].latency_s);
  }
  return transfer + latencies * latency;
}

double ceil_log2(double n) { return std::bit_width(static_cast<std::uint64_t>(n) - 1); }

// ReduceScatter of `bytes` per device, and equally AllGather to `bytes` per device: n members
// within a tier leave 1/n of the data for the next tier outside.
Seconds scatter_seconds(const Collective& collective, double bytes, const Mesh& mesh,
                        const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : tier_parts(collective.axes, mesh, cluster)) {
    const double sent = (part.members - 1) / part.members * bytes / part.inner;
    seconds += phase_seconds(cluster, part.tier, sent, ceil_log2(part.members));
  }
  return seconds;
}

// Every device sends to every peer on its own.
Seconds direct_exchange_seconds(const std::vector<int>& axes, double bytes, const Mesh& mesh,
                                const Cluster& cluster) {
  const auto n = static_cast<double>(axes_size(mesh, axes));
  Seconds seconds = 0;
  for (const TierPart& part : tier_parts(axes, mesh, cluster)) {
    const double peers = (part.members - 1) * part.inner;
    seconds += phase_seconds(cluster, part.tier, bytes * peers / n, peers);
  }
  return seconds;
}

// First to the peers across one tier, for all behind them, then across the next. Within a tier the
// faster of pairwise exchange (long messages) and Bruck's algorithm (short messages: half of the
// data in every one of log2 n rounds).
Seconds staged_exchange_seconds(const std::vector<int>& axes, double bytes, const Mesh& mesh,
                                const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : tier_parts(axes, mesh, cluster)) {
    const double pairwise = bytes * (part.members - 1) / part.members;
    const double rounds = ceil_log2(part.members);
    seconds += std::min(phase_seconds(cluster, part.tier, pairwise, part.members - 1),
                        phase_seconds(cluster, part.tier, bytes * rounds / 2, rounds));
  }
  return seconds;
}

Seconds exchange_seconds(const std::vector<int>& axes, double bytes, const Mesh& mesh,
                         const Cluster& cluster) {
  const Seconds at_once = std::min(direct_exchange_seconds(axes, bytes, mesh, cluster),
                                   staged_exchange_seconds(axes, bytes, mesh, cluster));
  if (axes.size() == 1) return at_once;
  Seconds by_axis = 0;
  for (int axis : axes) by_axis += exchange_seconds({axis}, bytes, mesh, cluster);
  return std::min(at_once, by_axis);
}

}  // namespace

Seconds collective_seconds(const Collective& collective, double input_bytes, const Mesh& mesh,
                           const Cluster& cluster) {
  const auto n = static_cast<double>(axes_size(mesh, collective.axes));
  const double memory = cluster.device.memory_bandwidth_bytes_per_s;
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
      return std::max(2 * scatter_seconds(collective, input_bytes, mesh, cluster), kLeastSeconds);
    case CollectiveKind::kAllGather:
      return std::max(scatter_seconds(collective, input_bytes * n, mesh, cluster), kLeastSeconds);
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kBroadcast:
      return std::max(scatter_seconds(collective, input_bytes, mesh, cluster), kLeastSeconds);
    case CollectiveKind::kAllToAll:
      return std::max(exchange_seconds(collective.axes, input_bytes, mesh, cluster), kLeastSeconds);
    case CollectiveKind::kShardSlice:
      return 2 * (input_bytes / n) / memory + kLocalStepSeconds;
    case CollectiveKind::kMakePartial:
      return 2 * input_bytes / memory + kLocalStepSeconds;
  }
  return 0;
}

}  // namespace autopar
