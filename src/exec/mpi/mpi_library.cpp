#include "exec/mpi/mpi_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#ifndef AUTOPAR_MPI_FOLDERS
#define AUTOPAR_MPI_FOLDERS ""
#endif
#ifndef AUTOPAR_MPI_NAMES
#define AUTOPAR_MPI_NAMES ""
#endif

namespace autopar {

namespace {

std::vector<std::string> split(const char* text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ':');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// The folder of the file that this code is in: beside libautopar_ops.so are the others.
std::string own_folder() {
  Dl_info found{};
  if (dladdr(reinterpret_cast<const void*>(&split), &found) == 0 || found.dli_fname == nullptr) {
    return ".";
  }
  return std::filesystem::path(found.dli_fname).parent_path().string();
}

std::vector<std::string> shim_folders() {
  std::vector<std::string> folders{own_folder()};
  for (const std::string& folder : split(AUTOPAR_MPI_FOLDERS)) {
    if (std::find(folders.begin(), folders.end(), folder) == folders.end()) {
      folders.push_back(folder);
    }
  }
  return folders;
}

std::string shim_file(const std::string& name) { return "libautopar_" + name + ".so"; }

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

std::vector<std::string> built_mpi_names() { return split(AUTOPAR_MPI_NAMES); }

std::vector<std::string> mpi_shim_candidates(const std::string& name) {
  std::vector<std::string> paths;
  for (const std::string& folder : shim_folders()) paths.push_back(folder + "/" + shim_file(name));
  return paths;
}

Result<std::vector<std::string>> mpi_names() {
  std::vector<std::string> built = built_mpi_names();
  if (const char* chosen = std::getenv("AUTOPAR_MPI"); chosen != nullptr && *chosen != '\0') {
    if (std::find(built.begin(), built.end(), chosen) != built.end()) {
      return std::vector<std::string>{chosen};
    }
    std::string known;
    for (const std::string& name : built) known += (known.empty() ? "" : " or ") + name;
    return usage_error(std::string("AUTOPAR_MPI is '") + chosen + "'; this build knows " +
                       (known.empty() ? "no MPI" : known));
  }
  const bool open_mpi = is_set("OMPI_COMM_WORLD_SIZE") || is_set("PMIX_RANK");
  const bool mpich = !open_mpi && is_set("PMI_RANK");
  const auto wanted = std::find(built.begin(), built.end(), mpich ? "mpich" : "openmpi");
  if (wanted != built.end()) std::rotate(built.begin(), wanted, wanted + 1);
  // Another library would start as a world of one rank.
  if ((open_mpi || mpich) && wanted != built.end()) built.resize(1);
  return built;
}

namespace {

// Nothing could be opened: either no file is there, or what it needs is not.
Error not_opened(const std::vector<std::string>& names, const std::vector<std::string>& folders,
                 const std::string& refused) {
  const std::string asked = "--ranks-by mpi: ";
  if (!refused.empty()) {
    return input_error(asked + "the MPI library could not be opened: " + refused +
                       "; install that MPI, or say which one to use by AUTOPAR_MPI");
  }
  std::string files;
  for (const std::string& name : names) files += (files.empty() ? "" : " or ") + shim_file(name);
  std::string places;
  for (const std::string& folder : folders) places += (places.empty() ? "" : ", ") + folder;
  return input_error(asked + files + ", by which autopar calls MPI, is not in " + places +
                     ": it belongs beside the program; build it with scripts/build, or install "
                     "autopar again");
}

}  // namespace

Result<void*> open_shim(const std::vector<std::string>& names,
                        const std::vector<std::string>& folders) {
  std::string refused;
  for (const std::string& name : names) {
    for (const std::string& folder : folders) {
      const std::string path = folder + "/" + shim_file(name);
      if (!std::filesystem::exists(path)) continue;
      // Open MPI opens its components itself, which need its symbols.
      void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);  // stays open
      if (library != nullptr) return library;
      const char* why = dlerror();
      refused += (refused.empty() ? "" : "; ") + std::string(why != nullptr ? why : path);
    }
  }
  return not_opened(names, folders, refused);
}

Result<const AutoparMpiTable*> open_mpi_library() {
  AUTOPAR_TRY(names, mpi_names());
  if (names.empty()) {
    return input_error(
        "this build has no MPI: install libopenmpi-dev or libmpich-dev and build again, or use "
        "--ranks-by threads");
  }
  AUTOPAR_TRY(library, open_shim(names, shim_folders()));
  const auto table =
      reinterpret_cast<decltype(&autopar_mpi_table)>(dlsym(library, "autopar_mpi_table"));
  if (table == nullptr || table()->version != AUTOPAR_MPI_TABLE_VERSION) {
    return input_error(
        "libautopar_*.so beside autopar, by which it calls MPI, are of another "
        "version: build or install autopar again");
  }
  return table();
}

}  // namespace autopar
