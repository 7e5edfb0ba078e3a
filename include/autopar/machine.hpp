// What this program and this machine have of what ranks need: libraries, GPUs, what a launcher
// said, ports, memory. Looking fails nowhere: what is absent or broken says why.
//
//   for (const Finding& finding : examine_machine()) print(finding.name, finding.what);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace autopar {

enum class Found : std::uint8_t {
  kOk,
  kAbsent,  // it is not here
  kBroken,  // it is here, and cannot be used
};
const char* name_of(Found state);  // "ok", "absent", "broken"

struct Finding {
  std::string section;  // "libraries"
  std::string key;      // unique: "mpi_openmpi"
  std::string name;     // "Open MPI"
  Found state = Found::kOk;
  std::string what = {};     // what was found, or why nothing was
  std::string without = {};  // what is not possible now and what to do; empty: nothing is lost
  // Single facts for programs: {"version", "1.27.0"}.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

// Every library is opened in a process of its own, since one that is broken may crash or hang.
std::vector<Finding> examine_machine();

// What this program was built with: {"MPI", "openmpi, mpich"}.
std::vector<std::pair<std::string, std::string>> build_options();

}  // namespace autopar
