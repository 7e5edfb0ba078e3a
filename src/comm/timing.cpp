#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

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
using TierParts = std::vector<TierPart>;

TierParts tier_parts(const std::vector<int>& axes, const Mesh& mesh, const Cluster& cluster) {
  TierParts parts;
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

// Of a group's ranks, in any order: `most` is the largest number of members of a tier that lie
// within one member of the next, `fewest` the smallest number of ranks within a member of the tier.
TierParts tier_parts(const std::int64_t* group, std::size_t size, const Cluster& cluster) {
  std::vector<std::int64_t> sorted(group, group + size);
  std::sort(sorted.begin(), sorted.end());
  const std::int64_t* const from = sorted.data();
  const std::int64_t* const to = from + size;
  TierParts parts;
  std::int64_t begin = 1;  // ranks within one member of the tier
  for (std::size_t t = 0; t < cluster.tiers.size(); ++t) {
    const std::int64_t end = begin * cluster.tiers[t].size;
    std::int64_t most = 0, fewest = to - from, members = 0, ranks = 0;
    for (const std::int64_t* rank = from; rank != to; ++rank) {
      members = rank == from || *rank / end != rank[-1] / end ? 0 : members;
      ranks = rank == from || *rank / begin != rank[-1] / begin ? 0 : ranks;
      if (ranks++ == 0) most = std::max(most, ++members);
      if (rank + 1 == to || rank[1] / begin != *rank / begin) fewest = std::min(fewest, ranks);
    }
    if (most > 1) parts.push_back({t, static_cast<double>(most), static_cast<double>(fewest)});
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
Seconds scatter_seconds(const TierParts& parts, double bytes, const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : parts) {
    const double sent = (part.members - 1) / part.members * bytes / part.inner;
    seconds += phase_seconds(cluster, part.tier, sent, ceil_log2(part.members));
  }
  return seconds;
}

// From one device to all: each hands on all that comes.
Seconds broadcast_seconds(const TierParts& parts, double bytes, const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : parts) {
    seconds += phase_seconds(cluster, part.tier, bytes / part.inner, ceil_log2(part.members));
  }
  return seconds;
}

// What a ring of all ranks, or a tree, waits for each time that it crosses the outermost tier.
Seconds ring_step_seconds(const TierParts& parts, const Cluster& cluster) {
  return parts.empty() ? 0 : cluster.tiers[parts.back().tier].ring_step_s;
}
Seconds ring_seconds(const TierParts& parts, const Cluster& cluster) {
  return parts.empty() ? 0 : (parts.back().members - 1) * ring_step_seconds(parts, cluster);
}
// An AllReduce goes up a tree of the members of that tier, and down again.
Seconds tree_seconds(const TierParts& parts, const Cluster& cluster) {
  if (parts.empty()) return 0;
  return 2 * ceil_log2(parts.back().members) * ring_step_seconds(parts, cluster);
}

// Every device sends to every peer on its own.
Seconds direct_exchange_seconds(const TierParts& parts, double n, double bytes,
                                const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : parts) {
    const double peers = (part.members - 1) * part.inner;
    seconds += phase_seconds(cluster, part.tier, bytes * peers / n, peers);
  }
  return seconds;
}

// First to the peers across one tier, for all behind them, then across the next. Within a tier the
// faster of pairwise exchange (long messages) and Bruck's algorithm (short messages: half of the
// data in every one of log2 n rounds).
Seconds staged_exchange_seconds(const TierParts& parts, double bytes, const Cluster& cluster) {
  Seconds seconds = 0;
  for (const TierPart& part : parts) {
    const double pairwise = bytes * (part.members - 1) / part.members;
    const double rounds = ceil_log2(part.members);
    seconds += std::min(phase_seconds(cluster, part.tier, pairwise, part.members - 1),
                        phase_seconds(cluster, part.tier, bytes * rounds / 2, rounds));
  }
  return seconds;
}

Seconds exchange_seconds(const TierParts& parts, double n, double bytes, const Cluster& cluster) {
  return std::min(direct_exchange_seconds(parts, n, bytes, cluster),
                  staged_exchange_seconds(parts, bytes, cluster));
}

Seconds exchange_seconds(const std::vector<int>& axes, double bytes, const Mesh& mesh,
                         const Cluster& cluster) {
  const Seconds at_once = exchange_seconds(
      tier_parts(axes, mesh, cluster), static_cast<double>(axes_size(mesh, axes)), bytes, cluster);
  if (axes.size() == 1) return at_once;
  Seconds by_axis = 0;
  for (int axis : axes) by_axis += exchange_seconds({axis}, bytes, mesh, cluster);
  return std::min(at_once, by_axis);
}

Seconds message_seconds(const TierParts& parts, double bytes, const Cluster& cluster) {
  return parts.empty() ? 0 : phase_seconds(cluster, parts.back().tier, bytes, 1);
}

// Of all but AllToAll, which may go axis by axis.
//
// kLocalStepSeconds is the launch of one more kernel. Ops have none in their prices: every plan
// runs the same ops, so that theirs are the same in all plans, while a ShardSlice or a MakePartial
// is a kernel of one plan that another goes without. A MakePartial is never free: the ranks that
// put zeros write them, and the one that keeps its values copies them.
// Source: Gray, "Getting Started with CUDA Graphs", NVIDIA 2019: a kernel of 2.9 us takes 3.8 us
// where many are launched one behind the other (V100), so 0.9 us more, and 3.4 us in a graph.
Seconds seconds_over(const TierParts& parts, CollectiveKind kind, double n, double bytes,
                     const Cluster& cluster) {
  const double memory = cluster.device.memory_bandwidth_bytes_per_s;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return std::max(2 * scatter_seconds(parts, bytes, cluster) + tree_seconds(parts, cluster),
                      kLeastSeconds);
    case CollectiveKind::kAllGather:
      return std::max(scatter_seconds(parts, bytes * n, cluster) + ring_seconds(parts, cluster),
                      kLeastSeconds);
    case CollectiveKind::kReduceScatter:
      return std::max(scatter_seconds(parts, bytes, cluster) + ring_seconds(parts, cluster),
                      kLeastSeconds);
    case CollectiveKind::kBroadcast:
      return std::max(broadcast_seconds(parts, bytes, cluster) + ring_seconds(parts, cluster),
                      kLeastSeconds);
    case CollectiveKind::kAllToAll:
      return std::max(exchange_seconds(parts, n, bytes, cluster), kLeastSeconds);
    case CollectiveKind::kShardSlice:
      return 2 * (bytes / n) / memory + kLocalStepSeconds;
    case CollectiveKind::kMakePartial:
      return 2 * bytes / memory + kLocalStepSeconds;
    case CollectiveKind::kPermute:
      return std::max(message_seconds(parts, bytes, cluster) + ring_step_seconds(parts, cluster),
                      kLeastSeconds);
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return std::max(message_seconds(parts, bytes, cluster), kLeastSeconds);
  }
  return 0;
}

}  // namespace

Seconds collective_seconds(const Collective& collective, double input_bytes, const Mesh& mesh,
                           const Cluster& cluster) {
  const Seconds launch = cluster.profile.runs_op_by_op ? cluster.profile.launch_s : 0;
  if (collective.kind == CollectiveKind::kAllToAll) {
    return launch +
           std::max(exchange_seconds(collective.axes, input_bytes, mesh, cluster), kLeastSeconds);
  }
  return launch + seconds_over(tier_parts(collective.axes, mesh, cluster), collective.kind,
                               static_cast<double>(axes_size(mesh, collective.axes)), input_bytes,
                               cluster);
}

Seconds collective_seconds(CollectiveKind kind, double input_bytes,
                           const std::vector<std::int64_t>& groups, std::int64_t group_size,
                           const Cluster& cluster) {
  AUTOPAR_CHECK(group_size > 0, "a group has at least one rank");
  const auto size = static_cast<std::size_t>(group_size);
  Seconds slowest = 0;
  std::set<std::vector<std::int64_t>> seen;  // groups differ, but mostly lie alike
  for (std::size_t g = 0; g + size <= groups.size(); g += size) {
    const TierParts parts = tier_parts(groups.data() + g, size, cluster);
    std::vector<std::int64_t> key;
    for (const TierPart& part : parts) {
      for (double number : {static_cast<double>(part.tier), part.members, part.inner}) {
        key.push_back(static_cast<std::int64_t>(number));
      }
    }
    if (!seen.insert(std::move(key)).second) continue;
    slowest = std::max(
        slowest, seconds_over(parts, kind, static_cast<double>(group_size), input_bytes, cluster));
  }
  return slowest;
}

std::string crossed_tiers(const std::vector<std::int64_t>& groups, std::int64_t group_size,
                          const Cluster& cluster) {
  const auto size = static_cast<std::size_t>(group_size);
  std::set<std::size_t> crossed;
  for (std::size_t g = 0; g + size <= groups.size(); g += size) {
    for (const TierPart& part : tier_parts(groups.data() + g, size, cluster)) {
      crossed.insert(part.tier);
    }
  }
  std::string text;
  for (const std::size_t tier : crossed)
    text += (text.empty() ? "" : ",") + cluster.tiers[tier].name;
  return text;
}

int link_of(const AxisList& axes, const Mesh& mesh) {
  int outermost = 0;
  for (const int a : axes) {
    outermost = std::max(outermost, mesh.axes[static_cast<std::size_t>(a)].tier);
  }
  return std::min(outermost, kLinks - 1);
}

Seconds saved_in_bucket(const Profile& profile, Seconds seconds, Seconds latency,
                        double sent_bytes) {
  if (profile.bucket_bytes <= 0) return 0;
  return std::min(seconds, latency) * (1 - std::min(1.0, sent_bytes / profile.bucket_bytes));
}

}  // namespace autopar
