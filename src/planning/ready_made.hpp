// Clusters and profiles: files, or the names of those that come with this program.
#pragma once

#include <string>
#include <vector>

#include "autopar/files.hpp"

namespace autopar {

// What --cluster names. Errors: also which ready-made ones there are.
Result<ClusterFile> cluster_of_option(const std::string& name);
// Their files, by name, and their names as a sentence has them.
std::vector<std::string> ready_made_clusters();
std::string names_of_clusters();
std::vector<std::string> ready_made_profiles();
// The file of a ready-made profile; empty: there is none of that name.
std::string path_of_profile(const std::string& name);

// Where a cluster lies: a file, or the name of a ready-made one.
Result<std::string> find_cluster(const std::string& name);
struct ProfileFile {
  Profile profile;
  std::string sha256;  // of the file's bytes; empty: ideal
};
// The profile of --profile: "ideal", a file, or the name of a ready-made one; empty: `otherwise`.
Result<ProfileFile> profile_of_option(const std::string& name, const ProfileFile& otherwise);
// What --profile is for a plan whose file names a profile: the ready-made one of that name. Empty:
// there is none, or the profile is that of the plan's cluster.
std::string profile_of_plan(const std::string& name, const std::string& sha256,
                            const std::string& cluster_sha256);

}  // namespace autopar
