#include <cstdio>
#include <set>

#include "autopar/mesh.hpp"

namespace autopar {

namespace {

constexpr const char* kPositive = "at least 1e-100 and below 1e300";
constexpr const char* kNotNegative = "at least 0 and below 1e300";
constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;

Error wrong(const Cluster& cluster, const std::string& field, const std::string& expected,
            const std::string& found) {
  return input_error("cluster '" + cluster.name + "': " + field + " must be " + expected +
                     ", found " + found);
}

// So that what is divided by it is finite. Written so that not-a-number is not positive either.
bool positive(double value) { return value >= 1e-100 && value < 1e300; }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

Status verify_tier(const Cluster& cluster, const Tier& tier) {
  const std::string where = "tier '" + tier.name + "': ";
  if (tier.size < 1) {
    return wrong(cluster, where + "size", "at least 1", std::to_string(tier.size));
  }
  if (!positive(tier.bandwidth_bytes_per_s)) {
    return wrong(cluster, where + "bandwidth_bytes_per_s", kPositive,
                 number(tier.bandwidth_bytes_per_s));
  }
  if (!(tier.latency_s >= 0 && tier.latency_s < 1e300)) {
    return wrong(cluster, where + "latency_s", kNotNegative, number(tier.latency_s));
  }
  if (!(tier.ring_step_s >= 0 && tier.ring_step_s < 1e300)) {
    return wrong(cluster, where + "ring_step_s", kNotNegative, number(tier.ring_step_s));
  }
  double last = 0;
  for (const auto& [bytes, fraction] : tier.efficiency) {
    if (!positive(bytes) || bytes <= last) {
      return wrong(cluster, where + "efficiency", "a list of pairs with ascending positive sizes",
                   "the size " + number(bytes) + " after " + number(last));
    }
    if (!(fraction > 0 && fraction <= 1)) {
      return wrong(cluster, where + "efficiency", "fractions above 0 and up to 1",
                   number(fraction));
    }
    last = bytes;
  }
  return Ok{};
}

Status verify_device(const Cluster& cluster) {
  const Device& device = cluster.device;
  if (device.memory_bytes <= 0) {
    return wrong(cluster, "device.memory_bytes", "positive", std::to_string(device.memory_bytes));
  }
  if (!positive(device.memory_bandwidth_bytes_per_s)) {
    return wrong(cluster, "device.memory_bandwidth_bytes_per_s", kPositive,
                 number(device.memory_bandwidth_bytes_per_s));
  }
  if (device.peak_flops_per_s.empty()) {
    return wrong(cluster, "device.peak_flops_per_s", "given for at least one dtype", "none");
  }
  for (const auto& [dtype, peak] : device.peak_flops_per_s) {
    if (!positive(peak)) {
      return wrong(cluster, "device.peak_flops_per_s of " + dtype, kPositive, number(peak));
    }
  }
  return Ok{};
}

}  // namespace

std::int64_t Cluster::device_count() const {
  std::int64_t count = 1;
  for (const Tier& tier : tiers) count *= tier.size;
  return count;
}

Status verify(const Cluster& cluster) {
  AUTOPAR_RETURN_IF_ERROR(verify_device(cluster));
  if (cluster.tiers.empty()) return wrong(cluster, "tiers", "a list of at least one tier", "none");
  std::set<std::string> names;
  std::int64_t devices = 1;
  for (const Tier& tier : cluster.tiers) {
    if (tier.name.empty() || tier.name.find_first_of("{}[], :") != std::string::npos) {
      return wrong(cluster, "tiers", "named, without any of '{}[], :'", "'" + tier.name + "'");
    }
    if (!names.insert(tier.name).second) {
      return wrong(cluster, "tiers", "named differently", "'" + tier.name + "' twice");
    }
    AUTOPAR_RETURN_IF_ERROR(verify_tier(cluster, tier));
    if (tier.size > kMaxDevices / devices) {
      return wrong(cluster, "the product of the tier sizes",
                   "at most " + std::to_string(kMaxDevices),
                   std::to_string(devices) + " x " + std::to_string(tier.size));
    }
    devices *= tier.size;
  }
  if (!(cluster.host_link_bandwidth_bytes_per_s >= 0)) {
    return wrong(cluster, "host_link.bandwidth_bytes_per_s", kNotNegative,
                 std::to_string(cluster.host_link_bandwidth_bytes_per_s));
  }
  return Ok{};
}

}  // namespace autopar
