// autopar: reads the command line, runs one sub-command, turns errors into messages and exit codes.
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>

#include "autopar/errors.hpp"
#include "cli/command.hpp"
#include "search/pins.hpp"

namespace autopar::cli {
namespace {

void add_common(CLI::App& app, CommonOptions& common) {
  app.add_flag("--json", common.json, "one JSON document on stdout");
  app.add_option("--dim", common.dims, "bind a symbolic dimension: NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--mesh", common.mesh, "fix the logical mesh, outermost axis first: 4x2");
  app.add_option("--memory", common.memory, "memory per device: 80GiB (default: the cluster's)");
  app.add_option("--seed", common.seed, "seed of everything random")->check(CLI::NonNegativeNumber);
  app.add_option("--threads", common.threads,
                 "threads; never changes a result (default 0: the machine's)")
      ->check(CLI::Range(0, 4096));
  app.add_flag("-v,--verbose", common.verbose, "more on stderr");
  app.add_flag("-q,--quiet", common.quiet, "errors only on stderr");
}

int exit_code(ErrorCode code) { return static_cast<int>(code); }

// What a word of the command line may have meant, as " (did you mean 'x'?)".
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

// Names the unknown word, where there is one; CLI11 would name what is missing without it.
std::string unknown_word(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> options;
  const auto add_options = [&options](const CLI::App& of) {
    for (const CLI::Option* option : of.get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  };
  add_options(app);
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  const auto named = std::find_first_of(
      argv + 1, argv + argc, all.begin(), all.end(),
      [](const char* word, const CLI::App* sub) { return sub->get_name() == word; });
  if (named != argv + argc) {
    add_options(*app.get_subcommand(*named));
  } else if (argc > 1 && argv[1][0] != '-') {
    std::vector<std::string> names;
    for (const Command& command : commands()) names.emplace_back(command.name);
    return "unknown command '" + std::string(argv[1]) + "'" + suggestion(argv[1], names);
  }
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--") break;
    if (word.rfind("--", 0) != 0) continue;
    word = word.substr(0, word.find('='));
    if (std::find(options.begin(), options.end(), word) != options.end()) continue;
    return "unknown option '" + word + "'" + suggestion(word, options);
  }
  return "";
}

int run(int argc, char** argv) {
  CLI::App app("Finds how to run a neural network on a cluster.", "autopar");
  app.set_version_flag("--version", std::string("autopar ") + AUTOPAR_VERSION);
  app.require_subcommand(1);
  CommonOptions common;
  add_common(app, common);  // before the command or after it
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const Command& command : commands()) {
    CLI::App* sub = app.add_subcommand(command.name, command.what);
    add_common(*sub, common);
    runs.emplace_back(sub, command.add(*sub, common));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = error.get_exit_code() == 0 ? "" : unknown_word(app, argc, argv);
    if (!unknown.empty()) {
      std::cerr << "autopar: error: " << unknown << "\nRun with --help for more information.\n";
      return exit_code(ErrorCode::kUsage);
    }
    return app.exit(error, std::cout, std::cerr) == 0 ? 0 : exit_code(ErrorCode::kUsage);
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("autopar"));
  spdlog::set_pattern("autopar: %v");
  spdlog::set_level(common.quiet     ? spdlog::level::err
                    : common.verbose ? spdlog::level::debug
                                     : spdlog::level::info);
  for (auto& [sub, command] : runs) {
    if (!sub->parsed()) continue;
    const Result<int> result = command();
    if (!result) {
      spdlog::error("error: {}", result.error().message);
      return exit_code(result.error().code);
    }
    if (!std::cout.flush()) {
      spdlog::error("error: writing to standard output failed");
      return exit_code(ErrorCode::kResource);
    }
    return *result;
  }
  return exit_code(ErrorCode::kUsage);
}

}  // namespace
}  // namespace autopar::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails and is told
  try {
    return autopar::cli::run(argc, argv);
  } catch (const std::exception& exception) {
    const autopar::Error error = autopar::error_of(exception);
    std::fprintf(stderr, "autopar: error: %s\n", error.message.c_str());
    return static_cast<int>(error.code);
  }
}
