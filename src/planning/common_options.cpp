#include "planning/common_options.hpp"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace autopar {

namespace {
std::atomic<bool> g_interrupted{false};

extern "C" void on_interrupt(int signal) {
  g_interrupted.store(true);
  std::signal(signal, SIG_DFL);
}
}  // namespace

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
    const auto [known, is_new] = values.emplace(text.substr(0, equals), value);
    if (!is_new && known->second != value) {
      return usage_error("--dim '" + text + "': " + known->first + " is also given as " +
                         std::to_string(known->second));
    }
  }
  return values;
}

Result<Bytes> parse_bytes(const std::string& text, const char* option) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end == nullptr ? "" : end;
  static const std::map<std::string, double> units = {
      {"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
      {"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
      {"KB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12}};
  const auto it = units.find(unit);
  if (end == text.c_str() || it == units.end() || !(number * it->second >= 1) ||
      number * it->second > 9e18) {
    return usage_error(std::string(option) + " '" + text +
                       "': expected a size such as 80GiB, 512MiB or 24GB");
  }
  return static_cast<Bytes>(number * it->second);
}

Result<Seconds> parse_duration(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  static const std::map<std::string, double> units = {
      {"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  const auto it = units.find(unit);
  if (end == text.c_str() || it == units.end() || !(value > 0) || !(value < 1e9)) {
    return usage_error("'" + text +
                       "': expected a time such as 30s, 500ms or 2m; a bare number is seconds");
  }
  return value * it->second;
}

int threads_of_search(const CommonOptions& common) {
  // Each thread holds a mesh's problem, so more of them would take memory for little.
  constexpr int kMostThreads = 4;
  if (common.threads > 0) return common.threads;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

}  // namespace autopar
