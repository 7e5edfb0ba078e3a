#include "exec/own_files.hpp"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

// From the program's folder to that of the installed libraries.
#ifndef AUTOPAR_LIBRARY_FOLDER
#define AUTOPAR_LIBRARY_FOLDER "../lib/autopar"
#endif

namespace autopar {

namespace {

namespace fs = std::filesystem;

// Of the program, or of the shared library that this code is in. Empty where the system does not
// say.
fs::path own_folder() {
  Dl_info found{};
  void* extra = nullptr;
  std::error_code ignored;
  const bool known =
      dladdr1(reinterpret_cast<const void*>(&own_files), &found, &extra, RTLD_DL_LINKMAP) != 0 &&
      extra != nullptr;
  // The program itself has no name there.
  const std::string library = known ? static_cast<const link_map*>(extra)->l_name : "";
  const fs::path file = library.empty() ? fs::read_symlink("/proc/self/exe", ignored)
                                        : fs::canonical(library, ignored);
  return file.parent_path();
}

}  // namespace

std::vector<std::string> own_folders() {
  const fs::path folder = own_folder();
  if (folder.empty()) return {};
  return {folder.string(), (folder / AUTOPAR_LIBRARY_FOLDER).lexically_normal().string()};
}

std::vector<std::string> own_files(const std::string& name) {
  std::vector<std::string> files;
  for (const std::string& folder : own_folders()) files.push_back(folder + "/" + name);
  return files;
}

}  // namespace autopar
