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

bool is_kernel_event(std::string_view line) {
  return string_value(line, "cat") == "Node" &&
         line.find("_kernel_time\"") != std::string_view::npos;
}

}  // namespace

std::map<std::string, KernelTimes> kernel_times(const std::string& trace) {
  std::map<std::string, KernelTimes> times;
  std::string_view rest = trace;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!is_kernel_event(line)) continue;
    const std::string_view type = string_value(line, "op_name");
    const std::string_view duration = after_key(line, "dur");
    if (type.empty() || duration.empty()) continue;
    KernelTimes& entry = times[std::string(type)];
    ++entry.count;
    entry.seconds += 1e-6 * std::strtod(std::string(duration.substr(0, 24)).c_str(), nullptr);
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
