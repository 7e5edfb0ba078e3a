#include "cli/show_ready_made.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

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

using Named = std::pair<bool, const char*>;

std::string listed(const std::vector<Named>& all) {
  std::string text;
  for (const auto& [is_there, name] : all) {
    if (is_there) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text.empty() ? "nothing" : text;
}

std::string fused_by(const Profile& profile) {
  return listed({{profile.fuses_attention, "attention"},
                 {profile.fuses_normalisation, "normalisation"},
                 {profile.fuses_elementwise, "elementwise"},
                 {profile.fuses_optimizer, "optimizer"}});
}

std::string deferred_by(const Profile& profile) {
  return listed({{profile.deferred.all_reduce, "all_reduce"},
                 {profile.deferred.reduce_scatter, "reduce_scatter"},
                 {profile.deferred.gather, "gather"},
                 {profile.deferred.update, "update"}});
}

std::string text_of(const nlohmann::ordered_json& document) {
  return document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
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
  if (json) return text_of(document);
  return to_text(table) +
         "\n  autopar calibrate writes the cluster file of this machine; --cluster takes either.\n";
}

Result<std::string> show_profiles(bool json) {
  nlohmann::ordered_json document = {{"format", "autopar-profiles"},
                                     {"version", 1},
                                     {"profiles", nlohmann::ordered_json::array()}};
  TextTable table{{{"name", "products", "launch", "one kernel", "beside compute"}},
                  {false, true, true, false, false}};
  for (const std::string& path : ready_made_profiles()) {
    AUTOPAR_TRY(profile, read_profile(path));
    const double fraction = profile.matrix.fraction;
    table.rows.push_back({profile.name, format_percent(fraction), format_seconds(profile.launch_s),
                          fused_by(profile), deferred_by(profile)});
    document["profiles"].push_back({{"name", profile.name},
                                    {"path", path},
                                    {"matrix_fraction", fraction},
                                    {"launch_s", profile.launch_s}});
  }
  if (json) return text_of(document);
  return to_text(table) +
         "\n  products: of the device's peak; autopar show NAME has all numbers and their "
         "sources.\n  Without --profile prices are ideal; autopar calibrate and autopar "
         "fit write profiles; --profile takes a name or a file.\n";
}

}  // namespace autopar::cli
