// The sub-commands, one row each, and what they share.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace autopar::cli {

// Options that every command takes; commands ignore what does not concern them.
struct CommonOptions {
  bool json = false;
  std::vector<std::string> dims;  // "name=value"
  std::string mesh;               // "4x2"
  std::string memory;             // "80GiB"
  std::uint64_t seed = 0;
  int threads = 0;  // 0: as many as there are
  bool verbose = false;
  bool quiet = false;
};

// A sub-command adds its options to `app` and returns what runs it: the exit code, or an Error
// whose code is the exit code.
using Run = std::function<Result<int>()>;
struct Command {
  const char* name;
  const char* what;
  Run (*add)(CLI::App& app, const CommonOptions& common);
};
const std::vector<Command>& commands();

Run add_search(CLI::App& app, const CommonOptions& common);
Run add_apply(CLI::App& app, const CommonOptions& common);
Run add_price(CLI::App& app, const CommonOptions& common);
Run add_run(CLI::App& app, const CommonOptions& common);
Run add_export(CLI::App& app, const CommonOptions& common);
Run add_calibrate(CLI::App& app, const CommonOptions& common);
Run add_merge(CLI::App& app, const CommonOptions& common);
Run add_reshard_weights(CLI::App& app, const CommonOptions& common);
Run add_show(CLI::App& app, const CommonOptions& common);
Run add_solve(CLI::App& app, const CommonOptions& common);

Result<std::map<std::string, std::int64_t>> parse_dims(const std::vector<std::string>& dims);
// "80GiB", "512MiB", "16G" (binary units), "1000000".
Result<Bytes> parse_bytes(const std::string& text);
// "30s", "500ms", "2m"; a bare number is seconds. Finite and more than nothing.
Result<Seconds> parse_duration(const std::string& text);
// An option that takes a duration, e.g. `--time-limit`: all commands read them alike.
void add_duration(CLI::App& app, const std::string& name, Seconds& seconds,
                  const std::string& what);

// Set by the first SIGINT: searches return the best plan so far. A second one ends the program.
const std::atomic<bool>& interrupt_requested();

}  // namespace autopar::cli
