// What several commands are asked with, as values, and how the texts of options are read.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

// Options that several commands take, with one meaning everywhere.
struct CommonOptions {
  bool json = false;
  std::vector<std::string> dims;  // "name=value"
  std::string mesh;               // "4x2"
  std::string memory;             // "80GiB"
  std::uint64_t seed = 0;
  int threads = 0;  // 0: as many as there are
  bool verbose = false;
  bool quiet = false;
  bool trace = false;
  std::string without;  // stages of the search: "windows,mix"
};

// Of texts; what is none is a usage error that names the option and what was expected.
Result<std::map<std::string, std::int64_t>> parse_dims(const std::vector<std::string>& dims);
// "80GiB", "512MiB", "16G" (binary units), "1000000".
Result<Bytes> parse_bytes(const std::string& text, const char* option = "--memory");
// "30s", "500ms", "2m"; a bare number is seconds. More than nothing.
Result<Seconds> parse_duration(const std::string& text);
// --threads of the commands that search: 0 is as many as there are, up to 4.
int threads_of_search(const CommonOptions& common);

// Set by the first SIGINT: searches return the best plan so far. A second one ends the program.
const std::atomic<bool>& interrupt_requested();

}  // namespace autopar
