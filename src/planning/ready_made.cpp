#include "planning/ready_made.hpp"

#include <filesystem>
#include <set>

#include "autopar/file_facts.hpp"
#include "search/pins.hpp"

namespace autopar {

namespace fs = std::filesystem;

Result<ClusterFile> cluster_of_option(const std::string& name) {
  const auto path = find_cluster(name);
  if (path) {
    keep_from_replacing(*path);
    return read_cluster(*path);
  }
  return input_error(path.error().message + "; ready-made clusters are: " + names_of_clusters());
}

namespace {

// Files that come with this program: models/clusters/... or models/profiles/...
std::vector<std::string> ready_made(const std::string& kind) {
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  std::set<std::string> paths;
  for (const char* folder : {"../share/autopar/models", "../../models"}) {
    const fs::path path = program.parent_path() / folder / kind;
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".json") paths.insert(entry.path().string());
    }
    if (!paths.empty()) break;
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

std::vector<std::string> ready_made_clusters() { return ready_made("clusters"); }
std::vector<std::string> ready_made_profiles() { return ready_made("profiles"); }

std::string names_of_clusters() {
  std::string text;
  for (const std::string& path : ready_made_clusters()) {
    text += (text.empty() ? "" : ", ") + fs::path(path).stem().string();
  }
  return text.empty() ? "none was found beside this program" : text;
}

Result<std::string> find_cluster(const std::string& name) {
  if (fs::exists(name)) return name;
  std::vector<std::string> known;
  for (const std::string& path : ready_made_clusters()) {
    known.push_back(fs::path(path).stem().string());
    if (known.back() == name) return path;
  }
  // What has a folder or an extension is meant as a file.
  const bool is_file = name.find('/') != std::string::npos || fs::path(name).has_extension();
  if (is_file) return input_error(name + ": no such file");
  const std::string near = nearest_name(name, known);
  return input_error(name + ": no such file, and no ready-made cluster of that name" +
                     (near.empty() ? "" : "; did you mean '" + near + "'?") +
                     " (`autopar show clusters` lists them)");
}

std::string path_of_profile(const std::string& name) {
  for (const std::string& path : ready_made_profiles()) {
    if (fs::path(path).stem() == name) return path;
  }
  return "";
}

std::string profile_of_plan(const std::string& name, const std::string& sha256,
                            const std::string& cluster_sha256) {
  return sha256 != cluster_sha256 && !path_of_profile(name).empty() ? name : "";
}

Result<ProfileFile> profile_of_option(const std::string& name, const ProfileFile& otherwise) {
  if (name.empty()) return otherwise;
  if (name == "ideal") return ProfileFile();
  std::error_code ignored;
  const std::string path = fs::exists(name, ignored) ? name : path_of_profile(name);
  if (!path.empty()) {
    AUTOPAR_TRY(profile, read_profile(path));
    AUTOPAR_TRY(sha256, sha256_of_file(path));
    return ProfileFile{std::move(profile), std::move(sha256)};
  }
  std::string known;
  for (const std::string& one : ready_made_profiles()) {
    known += ", " + fs::path(one).stem().string();
  }
  return input_error(name +
                     ": no such file, and no ready-made profile of that name; there are ideal" +
                     known + " (`autopar show profiles`)");
}

}  // namespace autopar
