// The sub-commands, one row each, and what they share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planning/common_options.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace autopar::cli {

// Which of them a command reads; the others are refused. -v and -q are every command's.
enum CommonOption : unsigned {
  kJson = 1,
  kDims = 2,
  kMesh = 4,
  kMemory = 8,
  kSeed = 16,
  kThreads = 32,
  kStages = 64,
};

// A sub-command adds its options to `app` and returns what runs it: the exit code, or an Error
// whose code is the exit code.
using Run = std::function<Result<int>()>;
struct Command {
  const char* name;
  const char* what;
  unsigned reads;  // of the common options
  Run (*add)(CLI::App& app, const CommonOptions& common);
};
const std::vector<Command>& commands();

// An error of usage where one of the options was given: "--gap goes with --fill search".
Status refuse_options(const CLI::App& app, const std::vector<std::string>& names,
                      const std::string& because);

Run add_search(CLI::App& app, const CommonOptions& common);
Run add_apply(CLI::App& app, const CommonOptions& common);
Run add_price(CLI::App& app, const CommonOptions& common);
Run add_run(CLI::App& app, const CommonOptions& common);
Run add_export(CLI::App& app, const CommonOptions& common);
Run add_calibrate(CLI::App& app, const CommonOptions& common);
Run add_merge(CLI::App& app, const CommonOptions& common);
Run add_reshard_weights(CLI::App& app, const CommonOptions& common);
Run add_doctor(CLI::App& app, const CommonOptions& common);
Run add_grad(CLI::App& app, const CommonOptions& common);
Run add_manual(CLI::App& app, const CommonOptions& common);
Run add_show(CLI::App& app, const CommonOptions& common);
Run add_solve(CLI::App& app, const CommonOptions& common);
Run add_verify(CLI::App& app, const CommonOptions& common);

// An option of seconds that is written so: app.add_option("--timeout", seconds)->transform(...).
CLI::Validator duration();
// Groups of options in --help and in the manual.
namespace group {
inline constexpr const char* kReading = "What to read";
inline constexpr const char* kTraining = "Training";
inline constexpr const char* kLayout = "Layout";
inline constexpr const char* kSearch = "Search";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kRanks = "Ranks";
inline constexpr const char* kComparison = "Comparison";
inline constexpr const char* kTimes = "Times";
inline constexpr const char* kCommon = "Common";
}  // namespace group

}  // namespace autopar::cli
