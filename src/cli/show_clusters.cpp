#include "cli/show_clusters.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "autopar/report.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace {

std::string tiers_text(const Cluster& cluster) {
  std::string text;
  for (const Tier& tier : cluster.tiers) {
    text += (text.empty() ? "" : " in ") + std::to_string(tier.size) + " by " + tier.name;
  }
  return text;
}

}  // namespace

Result<std::string> show_clusters(bool json) {
  nlohmann::ordered_json document = {{"format", "autopar-clusters"},
                                     {"version", 1},
                                     {"clusters", nlohmann::ordered_json::array()}};
  TextTable table{{{"name", "devices", "", "memory", "links"}}, {false, true, false, true, false}};
  for (const std::string& path : ready_made_clusters()) {
    AUTOPAR_TRY(file, read_cluster(path));
    const Cluster& cluster = file.cluster;
    const std::string name = std::filesystem::path(path).stem().string();
    table.rows.push_back({name, std::to_string(cluster.device_count()), cluster.device.name,
                          format_bytes(static_cast<double>(cluster.device.memory_bytes)),
                          tiers_text(cluster)});
    document["clusters"].push_back({{"name", name},
                                    {"path", path},
                                    {"devices", cluster.device_count()},
                                    {"device", cluster.device.name},
                                    {"memory_bytes", cluster.device.memory_bytes}});
  }
  if (json) {
    return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  return to_text(table) +
         "\n  autopar calibrate writes the cluster file of this machine; --cluster takes either.\n";
}

}  // namespace autopar::cli
