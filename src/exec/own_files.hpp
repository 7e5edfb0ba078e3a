// Where the program finds the files that belong to it: by its own place, so that a built tree, an
// installation and an unpacked archive all work wherever they lie.
#pragma once

#include <string>
#include <vector>

namespace autopar {

// The places of a file `name` that is installed beside this code, the first that counts first: in
// the folder of the program (or of the shared library, libautopar_ops.so) itself, then in the
// folder of libraries of an installation whose program this is.
//
//   own_files("libautopar_mpich.so")      of /opt/autopar/bin/autopar
//   -> {"/opt/autopar/bin/libautopar_mpich.so", "/opt/autopar/lib/autopar/libautopar_mpich.so"}
std::vector<std::string> own_files(const std::string& name);
// The folders of those, in the same order, whether they exist or not.
std::vector<std::string> own_folders();

}  // namespace autopar
