#include "cli/command.hpp"

#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>

namespace autopar::cli {

namespace {
std::atomic<bool> g_interrupted{false};

extern "C" void on_interrupt(int signal) {
  g_interrupted.store(true);
  std::signal(signal, SIG_DFL);
}
}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"search", "find a plan for a model on a cluster", add_search},
      {"apply", "write the plan of a given strategy, complete or partial", add_apply},
      {"price", "what a strategy costs, term by term", add_price},
      {"run", "execute a plan on all its ranks and compare with the unsharded model", add_run},
      {"export", "write a plan in the words of another runtime", add_export},
      {"calibrate", "time the machine at hand and write its cluster file", add_calibrate},
      {"merge", "put the ranks' weights together in one file", add_merge},
      {"reshard-weights", "the weights of one plan, or a whole model, as another plan wants them",
       add_reshard_weights},
      {"show", "a readable picture of a model, cluster, strategy or plan", add_show},
      {"solve", "solve a bare search problem (IOPDDL JSON)", add_solve},
  };
  return table;
}

const std::atomic<bool>& interrupt_requested() {
  static const bool installed = (std::signal(SIGINT, on_interrupt), true);
  static_cast<void>(installed);
  return g_interrupted;
}

Result<std::map<std::string, std::int64_t>> parse_dims(const std::vector<std::string>& dims) {
  std::map<std::string, std::int64_t> values;
  for (const std::string& text : dims) {
    const std::size_t equals = text.find('=');
    const char* last = text.data() + text.size();
    std::int64_t value = 0;
    const auto [end, error] = equals == std::string::npos
                                  ? std::from_chars_result{text.data(), std::errc::invalid_argument}
                                  : std::from_chars(text.data() + equals + 1, last, value);
    if (equals == 0 || value <= 0 || error != std::errc{} || end != last) {
      return usage_error("--dim '" + text +
                         "': expected NAME=VALUE with a positive number, as in "
                         "--dim batch=32");
    }
    values[text.substr(0, equals)] = value;
  }
  return values;
}

Result<Bytes> parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end == nullptr ? "" : end;
  static const std::map<std::string, double> units = {
      {"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
      {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12}};
  const auto it = units.find(unit);
  if (end == text.c_str() || it == units.end() || !(number > 0) || number * it->second > 9e18) {
    return usage_error("--memory '" + text + "': expected a size such as 80GiB, 512MiB or 24GB");
  }
  return static_cast<Bytes>(number * it->second);
}

Result<Seconds> parse_duration(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  static const std::map<std::string, double> units = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}};
  const auto it = units.find(unit);
  const double seconds = it == units.end() ? 0 : number * it->second;
  if (end == text.c_str() || !(seconds > 0) || !std::isfinite(seconds)) {
    return usage_error("'" + text + "': expected a time such as 30s, 500ms or 2m");
  }
  return seconds;
}

void add_duration(CLI::App& app, const std::string& name, Seconds& seconds,
                  const std::string& what) {
  const auto read = [&seconds, name](const std::string& text) {
    const Result<Seconds> found = parse_duration(text);
    if (!found) throw CLI::ValidationError(name, found.error().message);
    seconds = *found;
  };
  app.add_option_function<std::string>(name, read, what)->type_name("DURATION");
}

}  // namespace autopar::cli
