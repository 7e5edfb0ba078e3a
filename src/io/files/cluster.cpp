#include "autopar/files.hpp"
#include "autopar/profile_file.hpp"
#include "autopar/sha256.hpp"
#include "io/files/json.hpp"
#include "io/files/profile.hpp"

namespace autopar {
namespace {

Result<double> positive(const Json& owner, const std::string& key) {
  AUTOPAR_TRY(field, owner.at(key));
  AUTOPAR_TRY(number, field.number());
  if (!(number > 0)) return field.expected("a positive number");
  return number;
}

Result<std::string> text_at(const Json& owner, const std::string& key) {
  AUTOPAR_TRY(field, owner.at(key));
  return field.text();
}

Result<Device> device_of(const Json& json) {
  Device device;
  AUTOPAR_TRY(name, text_at(json, "name"));
  AUTOPAR_TRY(memory, positive_integer(json, "memory_bytes"));
  AUTOPAR_TRY(bandwidth, positive(json, "memory_bandwidth_bytes_per_s"));
  AUTOPAR_TRY(peaks, json.at("peak_flops_per_s"));
  AUTOPAR_TRY(members, peaks.members());
  if (members.empty()) return peaks.expected("a peak for at least one dtype");
  device.name = name;
  device.memory_bytes = memory;
  device.memory_bandwidth_bytes_per_s = bandwidth;
  for (const auto& [dtype, field] : members) {
    AUTOPAR_TRY(peak, positive(peaks, dtype));
    // Tensor cores also have types that no tensor has.
    const bool is_known =
        parse_dtype(dtype) || dtype == "tfloat32" || dtype.rfind("float8", 0) == 0;
    if (!is_known) {
      return field.error("'" + dtype + "' is no type; expected one such as float32 or bfloat16");
    }
    device.peak_flops_per_s[dtype] = peak;
  }
  return device;
}

Result<Tier> tier_of(const Json& json) {
  Tier tier;
  AUTOPAR_TRY(name, text_at(json, "name"));
  AUTOPAR_TRY(size, positive_integer(json, "size"));
  AUTOPAR_TRY(bandwidth, positive(json, "bandwidth_bytes_per_s"));
  AUTOPAR_TRY(latency_field, json.at("latency_s"));
  AUTOPAR_TRY(latency, latency_field.number());
  if (latency < 0) return latency_field.expected("a number of at least 0");
  tier.name = name;
  tier.size = size;
  tier.bandwidth_bytes_per_s = bandwidth;
  tier.latency_s = latency;
  AUTOPAR_TRY(ring, json.find("ring_step_s"));
  if (ring) {
    AUTOPAR_TRY(ring_step, ring->number());
    if (ring_step < 0) return ring->expected("a number of at least 0");
    tier.ring_step_s = ring_step;
  }
  AUTOPAR_TRY(efficiency, json.find("efficiency"));
  if (!efficiency) return tier;
  AUTOPAR_TRY(points, efficiency->items());
  for (const Json& point : points) {
    AUTOPAR_TRY(pair, point.items());
    if (pair.size() != 2) return point.expected("a pair [bytes, fraction of the bandwidth]");
    AUTOPAR_TRY(bytes, pair[0].number());
    AUTOPAR_TRY(fraction, pair[1].number());
    tier.efficiency.emplace_back(bytes, fraction);
  }
  return tier;
}

Result<Cluster> cluster_of(const Json& json) {
  AUTOPAR_RETURN_IF_ERROR(check_format(json, "autopar-cluster", 1));
  Cluster cluster;
  AUTOPAR_TRY(name, text_at(json, "name"));
  AUTOPAR_TRY(device_field, json.at("device"));
  AUTOPAR_TRY(device, device_of(device_field));
  AUTOPAR_TRY(tiers_field, json.at("tiers"));
  AUTOPAR_TRY(tiers, tiers_field.items());
  if (tiers.empty()) return tiers_field.expected("at least one tier");
  cluster.name = name;
  cluster.device = device;
  for (const Json& field : tiers) {
    AUTOPAR_TRY(tier, tier_of(field));
    cluster.tiers.push_back(tier);
  }
  AUTOPAR_TRY(profile_field, json.find("profile"));
  if (profile_field) {
    AUTOPAR_TRY(profile, profile_of(*profile_field));
    cluster.profile = profile;
  }
  AUTOPAR_TRY(host_link, json.find("host_link"));
  if (host_link) {
    AUTOPAR_TRY(bandwidth, positive(*host_link, "bandwidth_bytes_per_s"));
    cluster.host_link_bandwidth_bytes_per_s = bandwidth;
  }
  return cluster;
}

std::string tier_json(const Tier& tier) {
  std::string text = "{\"name\": " + json_text(tier.name) +
                     ", \"size\": " + std::to_string(tier.size) +
                     ", \"bandwidth_bytes_per_s\": " + json_number(tier.bandwidth_bytes_per_s) +
                     ", \"latency_s\": " + json_number(tier.latency_s);
  if (tier.ring_step_s > 0) text += ", \"ring_step_s\": " + json_number(tier.ring_step_s);
  for (std::size_t i = 0; i < tier.efficiency.size(); ++i) {
    text += (i == 0 ? ", \"efficiency\": [[" : ", [") + json_number(tier.efficiency[i].first) +
            ", " + json_number(tier.efficiency[i].second) + "]";
  }
  return text + (tier.efficiency.empty() ? "}" : "]}");
}

}  // namespace

Result<ClusterFile> read_cluster(const std::string& path) {
  AUTOPAR_TRY(text, read_file(path));
  AUTOPAR_TRY(document, parse_json(text, path));
  AUTOPAR_TRY(cluster, cluster_of(Json(document, path, "")));
  if (Status valid = verify(cluster); !valid) {
    return input_error(path + ": " + valid.error().message);
  }
  return ClusterFile{cluster, sha256_hex(text)};
}

std::string cluster_to_json(const Cluster& cluster) {
  const Device& device = cluster.device;
  std::string text =
      "{\"format\": \"autopar-cluster\", \"version\": 1, \"name\": " + json_text(cluster.name) +
      ",\n \"device\": {\"name\": " + json_text(device.name) +
      ", \"memory_bytes\": " + std::to_string(device.memory_bytes) +
      ", \"memory_bandwidth_bytes_per_s\": " + json_number(device.memory_bandwidth_bytes_per_s) +
      ",\n            \"peak_flops_per_s\": {";
  bool first = true;
  for (const auto& [dtype, peak] : device.peak_flops_per_s) {
    text += (first ? "" : ", ") + json_text(dtype) + ": " + json_number(peak);
    first = false;
  }
  text += "}},\n \"tiers\": [";
  for (std::size_t t = 0; t < cluster.tiers.size(); ++t) {
    text += (t == 0 ? "" : ",\n           ") + tier_json(cluster.tiers[t]);
  }
  text += "]";
  if (cluster.host_link_bandwidth_bytes_per_s > 0) {
    text += ",\n \"host_link\": {\"bandwidth_bytes_per_s\": " +
            json_number(cluster.host_link_bandwidth_bytes_per_s) + "}";
  }
  if (!cluster.profile.ideal()) {
    std::string profile = profile_to_json(cluster.profile);
    profile.pop_back();  // the end of its line
    text += ",\n \"profile\": " + profile;
  }
  return text + "}\n";
}

}  // namespace autopar
