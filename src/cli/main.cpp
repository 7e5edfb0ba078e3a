// autopar: reads the command line, runs one sub-command, turns errors into messages and exit codes.
#include <execinfo.h>
#include <malloc.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>

#include "autopar/errors.hpp"
#include "autopar/machine.hpp"
#include "cli/command.hpp"
#include "cli/command_line.hpp"
#include "cli/manual.hpp"
#include "cli/out_of_memory.hpp"
#include "planning/inputs.hpp"
#include "planning/logging.hpp"
#include "planning/ready_made.hpp"
#include "planning/trace.hpp"

// Read by jemalloc, where the program has it: threads share one arena. A thread for whose own arena
// memory does not suffice ends the process (jemalloc 5.3). And it has huge pages, where the system
// gives them to those who ask: a search on 30,000 ops meets a tenth of the page faults and takes
// 15 % less CPU time, and 5 % more memory.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:1,thp:always";
}

namespace autopar::cli {
namespace {

void add_common(CLI::App& app, unsigned reads, CommonOptions& common) {
  app.get_help_ptr()->description("this help")->group(group::kCommon);
  if (reads & kDims) {
    app.add_option("--dim", common.dims, "bind a symbolic dimension: NAME=VALUE; may be repeated")
        ->type_name("NAME=VALUE")
        ->group(group::kReading);
  }
  if (reads & kMesh) {
    app.add_option("--mesh", common.mesh, "fix the logical mesh, outermost axis first: 4x2")
        ->group(group::kLayout);
  }
  if (reads & kMemory) {
    app.add_option("--memory", common.memory, "memory per device: 80GiB (default: the cluster's)")
        ->type_name("SIZE")
        ->group(group::kLayout);
  }
  app.option_defaults()->group(group::kCommon);
  if (reads & kJson) app.add_flag("--json", common.json, "one JSON document on stdout");
  if (reads & kSeed) {
    app.add_option("--seed", common.seed,
                   "seed of everything random; the same input and seed give the same output")
        ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  }
  if (reads & kThreads) {
    app.add_option(
           "--threads", common.threads,
           "threads: of a search (default: one per core, at most 4), of `run` for the local ops of "
           "all ranks on a machine (default: one per core)\n"
           "It never changes a result, unless there is a time limit.")
        ->check(whole_number(0, 4096));
  }
  if (reads & kStages) {
    app.add_flag("--trace", common.trace,
                 "what each stage of the exact search did, on stderr: bound, plan, work, seconds");
    app.add_option("--without", common.without,
                   "leave out stages of the exact search, to measure what they are good for: " +
                       stage_names())
        ->type_name("STAGE,...");
  }
  app.add_flag("-v,--verbose", common.verbose, "more on stderr: what was read, phases, progress");
  app.add_flag("-q,--quiet", common.quiet,
               "errors only on stderr, no table; what was asked for is printed: --json, the "
               "picture of show, prices, the answer of solve, PASSED or FAILED");
  app.option_defaults()->group("Options");
}

// "autopar 0.1.0", and with -v what it was built with.
std::string version_text(bool verbose) {
  std::string text = std::string("autopar ") + AUTOPAR_VERSION + "\n";
  if (!verbose) return text;
  for (const auto& [name, value] : build_options()) text += name + ": " + value + "\n";
  return text;
}

// What a command line lacks, with what helps.
std::string remedy(const CLI::ParseError& error) {
  const std::string what = error.what();
  if (what.rfind("--cluster is required", 0) != 0) return "";
  return "It takes a cluster.json (autopar calibrate writes one of this machine), or a ready-made "
         "cluster: " +
         names_of_clusters() + "\n";
}

int exit_code(ErrorCode code) { return static_cast<int>(code); }

// Where the C library's malloc is used: graphs are many small blocks that come and go beside large
// ones, each of which makes it go through all of those that it keeps apart. A search of 70B takes
// 7 to 9 % less without.
void keep_no_blocks_apart() {
#ifdef M_MXFAST
  mallopt(M_MXFAST, 0);
#endif
}

int run(int argc, char** argv) {
  keep_no_blocks_apart();
  CLI::App app("Finds how to run a neural network on a cluster.", "autopar");
  bool version = false;
  CommonOptions common;
  app.add_flag("--version", version, "the version; with -v what it was built with");
  app.add_flag("-v,--verbose", common.verbose, "more on stderr");
  app.formatter_fn(
      [](const CLI::App* of, std::string, CLI::AppFormatMode) { return help_text(*of); });
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.what);
    add_common(*sub, command.reads, common);
    runs.emplace_back(sub, command.add(*sub, common));
    // One value each time: what follows may be the model.
    for (CLI::Option* option : sub->get_options()) {
      const bool is_list = option->get_items_expected_max() > 1 && !option->get_positional();
      if (is_list) option->allow_extra_args(false);
    }
  }
  const std::vector<std::string> words = command_first(app, {argv + 1, argv + argc});
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // as CLI11 wants them
  } catch (const CLI::ParseError& error) {
    const std::string unknown = error.get_exit_code() == 0 ? "" : unknown_word(app, words);
    if (!unknown.empty()) {
      std::cerr << "autopar: error: " << unknown << "\nRun with --help for more information.\n";
      return exit_code(ErrorCode::kUsage);
    }
    const int code = app.exit(error, std::cout, std::cerr);
    if (code != 0) std::cerr << remedy(error);
    return code == 0 ? 0 : exit_code(ErrorCode::kUsage);
  }
  if (version) {
    std::cout << version_text(common.verbose);
    return 0;
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("autopar"));
  spdlog::set_pattern("autopar: %v");
  spdlog::set_level(common.quiet     ? spdlog::level::err
                    : common.verbose ? spdlog::level::debug
                                     : spdlog::level::info);
  for (auto& [sub, command] : runs) {
    if (!sub->parsed()) continue;
    keep_read_files(*sub);
    const auto start = std::chrono::steady_clock::now();
    const Status values = check_values(*sub);
    const Result<int> result = values ? command() : Result<int>(values.error());
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    logging::debug("{} took {:.2f} s", sub->get_name(), taken.count());
    if (!result) {
      logging::error("error: {}", result.error().message);
      return exit_code(result.error().code);
    }
    if (!std::cout.flush()) {
      logging::error("error: writing to standard output failed");
      return exit_code(ErrorCode::kResource);
    }
    return *result;
  }
  std::cerr << "autopar: error: a command is required\nRun with --help for more information.\n";
  return exit_code(ErrorCode::kUsage);
}

}  // namespace
}  // namespace autopar::cli

int main(int argc, char** argv) {
  // The C library opens libgcc_s the first time that an exception passes through it, and ends the
  // process where it has no memory for that: better now.
  void* frame = nullptr;
  static_cast<void>(backtrace(&frame, 1));
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails and is told
  autopar::cli::end_where_memory_ends();
  try {
    return autopar::cli::run(argc, argv);
  } catch (const std::exception& exception) {
    const autopar::Error error = autopar::error_of(exception);
    std::fprintf(stderr, "autopar: error: %s\n", error.message.c_str());
    return static_cast<int>(error.code);
  }
}
