#include "exec/mpi/mpi_library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "exec/environment.hpp"
#include "exec/own_files.hpp"

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

// The names that MPI libraries of one binary interface have: MPICH's is that of Intel MPI, MVAPICH
// and others too, and Debian has a name of its own for it.
std::vector<std::string> sonames_of(const std::string& mpi) {
  if (mpi == "openmpi") return {"libmpi.so.40"};
  return {"libmpi.so.12", "libmpich.so.12"};
}

// Where the dynamic linker looks, then beside the launcher that is on the path: an MPI in a folder
// of its own is often known to nothing else.
std::vector<std::string> libraries_of(const std::string& mpi) {
  if (const char* chosen = variable("AUTOPAR_MPI_LIBRARY")) return {chosen};
  const std::vector<std::string> sonames = sonames_of(mpi);
  std::vector<std::string> candidates = sonames;
  const char* path = variable("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path)) {
    std::error_code missing;
    const auto launcher = std::filesystem::canonical(folder + "/mpirun", missing);
    if (missing) continue;
    for (const char* libraries : {"lib", "lib64"}) {
      for (const std::string& soname : sonames) {
        const auto file = launcher.parent_path().parent_path() / libraries / soname;
        if (std::filesystem::exists(file, missing)) candidates.push_back(file.string());
      }
    }
    break;
  }
  return candidates;
}

struct Opened {
  void* library = nullptr;  // stays open
  std::string path;
};

Opened open_first_of(const std::vector<std::string>& files, std::string& tried) {
  for (const std::string& file : files) {
    // For all to see: what is opened next needs its symbols, as do Open MPI's own components.
    if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL)) return {library, file};
    const char* why = dlerror();
    tried += "\n  " + file + ": " + (why != nullptr ? why : "unknown reason");
  }
  return {};
}

bool is_set(const char* name) { return std::getenv(name) != nullptr; }

}  // namespace

std::vector<std::string> built_mpi_names() { return split(AUTOPAR_MPI_NAMES); }

Result<std::vector<std::string>> mpi_names() {
  std::vector<std::string> built = built_mpi_names();
  if (const char* chosen = variable("AUTOPAR_MPI")) {
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

std::string shim_file(const std::string& name) { return "libautopar_" + name + ".so"; }

// Where a shim is; empty: in none of the folders.
std::string find_shim(const std::string& name, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + shim_file(name);
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) return path;
  }
  return "";
}

Error shims_missing(const std::vector<std::string>& names,
                    const std::vector<std::string>& folders) {
  std::string files;
  for (const std::string& name : names) files += (files.empty() ? "" : " or ") + shim_file(name);
  std::string places;
  for (const std::string& folder : folders) places += (places.empty() ? "" : ", ") + folder;
  return input_error("--ranks-by mpi: " + files + ", by which autopar calls MPI, is not in " +
                     places +
                     ": it belongs beside the program; build it with scripts/build, or install "
                     "autopar again");
}

Result<const AutoparMpiTable*> open_shim(const std::string& name, const std::string& path,
                                         const std::string& library) {
  std::string why;
  const Opened shim = open_first_of({path}, why);
  if (shim.library == nullptr) {
    return input_error("--ranks-by mpi: " + library + " is no MPI of the kind " + name + ":" + why +
                       "\nsay which kind it is by AUTOPAR_MPI");
  }
  const auto table =
      reinterpret_cast<decltype(&autopar_mpi_table)>(dlsym(shim.library, "autopar_mpi_table"));
  if (table == nullptr || table()->version != AUTOPAR_MPI_TABLE_VERSION) {
    return input_error(path +
                       ", by which autopar calls MPI, is of another version: build or install "
                       "autopar again");
  }
  return table();
}

}  // namespace

Result<MpiLibrary> open_mpi(const std::vector<std::string>& names,
                            const std::vector<std::string>& folders) {
  std::string tried;
  bool has_shim = false;
  for (const std::string& name : names) {
    const std::string path = find_shim(name, folders);
    if (path.empty()) continue;
    has_shim = true;
    const Opened found = open_first_of(libraries_of(name), tried);
    if (found.library == nullptr) continue;
    // From here on there is no other one: two MPI libraries in a process have the same names.
    AUTOPAR_TRY(table, open_shim(name, path, found.path));
    return MpiLibrary{table, found.path};
  }
  if (!has_shim) return shims_missing(names, folders);
  return input_error(
      "--ranks-by mpi: the MPI library could not be opened:" + tried +
      "\nset AUTOPAR_MPI_LIBRARY to its file (libmpi.so.40 of Open MPI, libmpi.so.12 of MPICH and "
      "those like it), or run the ranks by --ranks-by threads");
}

Result<const AutoparMpiTable*> open_mpi_library() {
  AUTOPAR_TRY(names, mpi_names());
  if (names.empty()) {
    return input_error(
        "this build has no MPI: install libopenmpi-dev or libmpich-dev and build again, or use "
        "--ranks-by threads");
  }
  AUTOPAR_TRY(opened, open_mpi(names, own_folders()));
  return opened.table;
}

}  // namespace autopar
