#include "exec/profile.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace autopar {

namespace {

// What follows `"key" :` in a line, up to its end; empty: no such key.
std::string_view after_key(std::string_view line, const std::string& key) {
  const std::size_t at = line.find("\"" + key + "\"");
  if (at == std::string_view::npos) return {};
  std::string_view rest = line.substr(at + key.size() + 2);
  const std::size_t start = rest.find_first_not_of(" :\t");
  return start == std::string_view::npos ? std::string_view() : rest.substr(start);
}

std::string_view string_value(std::string_view line, const std::string& key) {
  std::string_view rest = after_key(line, key);
  if (rest.empty() || rest.front() != '"') return {};
  rest.remove_prefix(1);
  return rest.substr(0, rest.find('"'));
}

Seconds microseconds(std::string_view number) {
  return 1e-6 * std::strtod(std::string(number.substr(0, 24)).c_str(), nullptr);
}

// The node's name in `"name" :"fc1_kernel_time"`, which may have quotation marks in it.
std::string_view kernel_name(std::string_view line) {
  std::string_view rest = after_key(line, "name");
  const std::size_t end = rest.find("_kernel_time\"");
  if (end == std::string_view::npos || rest.front() != '"') return {};
  return rest.substr(1, end - 1);
}

}  // namespace

Trace parse_trace(const std::string& trace) {
  Trace parsed;
  std::string_view rest = trace;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (string_value(line, "cat") == "Session") {
      parsed.model_runs += string_value(line, "name") == "model_run";
      continue;
    }
    const std::string_view name = kernel_name(line);
    const std::string_view type = string_value(line, "op_name");
    const std::string_view duration = after_key(line, "dur");
    if (string_value(line, "cat") != "Node" || name.empty() || type.empty() || duration.empty()) {
      continue;
    }
    KernelEvent event{std::string(name),      std::string(type),
                      parsed.model_runs,      microseconds(after_key(line, "ts")),
                      microseconds(duration), false};
    // What an op's body did stands before the op itself.
    for (std::size_t k = parsed.kernels.size(); k-- > 0;) {
      KernelEvent& before = parsed.kernels[k];
      if (before.model_run != event.model_run || before.begin < event.begin) break;
      before.inner = true;
    }
    parsed.kernels.push_back(std::move(event));
  }
  return parsed;
}

std::map<std::string, KernelTimes> kernel_times(const Trace& trace, int first_run, int end_run) {
  std::map<std::string, KernelTimes> times;
  for (const KernelEvent& event : trace.kernels) {
    if (event.model_run < first_run || event.model_run >= end_run) continue;
    KernelTimes& entry = times[event.type];
    ++entry.count;
    entry.seconds += event.seconds;
  }
  return times;
}

TraceFolder::TraceFolder(bool wanted) {
  if (!wanted) return;
  std::error_code error;
  std::string name =
      (std::filesystem::temp_directory_path(error) / "autopar-trace-XXXXXX").string();
  if (!error && mkdtemp(name.data()) != nullptr) path_ = name;
}

void TraceFolder::take_file() {
  if (path_.empty()) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) {
    if (descriptor_ < 0) descriptor_ = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
  }
  if (descriptor_ >= 0) std::filesystem::remove_all(path_, ignored);
}

std::string TraceFolder::text_of_file() const {
  std::string text;
  char block[1 << 16];
  off_t at = 0;
  for (ssize_t got; (got = pread(descriptor_, block, sizeof block, at)) > 0; at += got) {
    text.append(block, static_cast<std::size_t>(got));
  }
  return text;
}

TraceFolder::~TraceFolder() {
  if (descriptor_ >= 0) close(descriptor_);
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace autopar
