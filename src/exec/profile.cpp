#include "exec/profile.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

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

void add_line(std::string_view line, Trace& parsed) {
  if (string_value(line, "cat") == "Session") {
    parsed.model_runs += string_value(line, "name") == "model_run";
    return;
  }
  const std::string_view name = kernel_name(line);
  const std::string_view type = string_value(line, "op_name");
  const std::string_view duration = after_key(line, "dur");
  if (string_value(line, "cat") != "Node" || name.empty() || type.empty() || duration.empty()) {
    return;
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

}  // namespace

Trace parse_trace(const std::string& trace) {
  Trace parsed;
  std::string_view rest = trace;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    add_line(rest.substr(0, end), parsed);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return parsed;
}

Trace parse_trace(std::FILE* file) {
  Trace parsed;
  char* line = nullptr;
  std::size_t capacity = 0;
  for (ssize_t size; (size = getline(&line, &capacity, file)) > 0;) {
    add_line({line, static_cast<std::size_t>(size)}, parsed);
  }
  std::free(line);
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

namespace {

// Takes a file whose name has the given beginning from its folder: opens it and removes its name,
// from a thread of its own as soon as the file is made, at the latest when this object ends.
class Taker {
 public:
  Taker(std::string folder, std::string beginning, int& descriptor)
      : folder_(std::move(folder)), beginning_(std::move(beginning)), descriptor_(descriptor) {
    if (inotify_add_watch(notified_.fd, folder_.c_str(), IN_CREATE) < 0 || ended_.fd < 0) return;
    try {
      thread_ = std::thread([this] { watch(); });
    } catch (const std::system_error&) {
      // The end is soon enough.
    }
  }
  ~Taker() {
    if (thread_.joinable()) {
      eventfd_write(ended_.fd, 1);
      thread_.join();
    }
    if (descriptor_ < 0) search();
  }
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

 private:
  struct Descriptor {
    ~Descriptor() {
      if (fd >= 0) close(fd);
    }
    int fd;
  };

  void take_if_ours(const std::string& name) {
    if (descriptor_ >= 0 || name.rfind(beginning_, 0) != 0) return;
    const std::string path = folder_ + "/" + name;
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    unlink(path.c_str());
  }

  void watch() {
    pollfd waited[] = {{notified_.fd, POLLIN, 0}, {ended_.fd, POLLIN, 0}};
    while (descriptor_ < 0 && waited[1].revents == 0) {
      if (poll(waited, 2, -1) < 0 && errno != EINTR) return;
      alignas(inotify_event) char events[1 << 12];
      const ssize_t size = read(notified_.fd, events, sizeof events);
      for (ssize_t at = 0; at < size;) {
        const auto* event = reinterpret_cast<const inotify_event*>(events + at);
        if (event->len > 0) take_if_ours(event->name);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      }
    }
  }

  void search() {
    std::error_code error;
    std::filesystem::directory_iterator entry(folder_, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      take_if_ours(entry->path().filename().string());
    }
  }

  std::string folder_;
  std::string beginning_;
  int& descriptor_;
  Descriptor notified_{inotify_init1(IN_CLOEXEC | IN_NONBLOCK)};
  Descriptor ended_{eventfd(0, EFD_CLOEXEC)};
  std::thread thread_;
};

// A name that nobody can guess, so that nobody else's file of that name is written to.
std::string new_name() {
  std::random_device random;
  char digits[33];
  std::snprintf(digits, sizeof digits, "%08x%08x%08x%08x", random(), random(), random(), random());
  return std::string("autopar-trace-") + digits;
}

}  // namespace

void TraceFile::take(const std::function<void(const std::string& prefix)>& make) {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  if (error || access(folder.c_str(), W_OK | X_OK) != 0) return make("");
  const std::string name = new_name();
  const Taker taker(folder, name, descriptor_);
  make(folder + "/" + name);
}

Trace TraceFile::read() const {
  const int descriptor = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  std::FILE* file = descriptor < 0 ? nullptr : fdopen(descriptor, "r");
  if (file == nullptr) {
    if (descriptor >= 0) close(descriptor);
    return {};
  }
  Trace trace = parse_trace(file);
  std::fclose(file);
  return trace;
}

TraceFile::~TraceFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace autopar
