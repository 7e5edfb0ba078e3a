// Cores, memory, limits and room for files.
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "exec/machine/look.hpp"

namespace autopar {

namespace {

std::string gibibytes(double bytes) {
  char text[48];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / 0x1p30);
  return text;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "MemAvailable" in bytes; 0: not said.
double memory_field(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return 1024 * std::strtod(line.c_str() + name.size() + 1, nullptr);
    }
  }
  return 0;
}

Finding cores() {
  Finding finding{"machine", "cores", "cores"};
  cpu_set_t set;
  CPU_ZERO(&set);
  const long all = sysconf(_SC_NPROCESSORS_ONLN);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
  finding.what = std::to_string(allowed > 0 ? allowed : all) + " of " + std::to_string(all);
  // A container may have fewer: microseconds of computing in microseconds.
  double quota = 0, period = 0;
  std::istringstream limit(first_line("/sys/fs/cgroup/cpu.max"));
  if (limit >> quota >> period && period > 0) {
    char text[64];
    std::snprintf(text, sizeof text, "; this container may use %.3g at a time", quota / period);
    finding.what += text;
  }
  finding.facts.emplace_back("cores", std::to_string(allowed > 0 ? allowed : all));
  return finding;
}

Finding memory() {
  Finding finding{"machine", "memory", "memory"};
  const double total = memory_field("MemTotal"), free = memory_field("MemAvailable");
  finding.what = gibibytes(free) + " of " + gibibytes(total) + " free";
  const double limit = std::strtod(first_line("/sys/fs/cgroup/memory.max").c_str(), nullptr);
  if (limit > 0) finding.what += "; this container may use " + gibibytes(limit);
  finding.facts.emplace_back("free_bytes", std::to_string(static_cast<long long>(free)));
  return finding;
}

Finding folder(const char* key, const std::string& name, const std::filesystem::path& path,
               const char* without) {
  Finding finding{"machine", key, name};
  struct statvfs system {};
  if (statvfs(path.c_str(), &system) != 0 || access(path.c_str(), W_OK | X_OK) != 0) {
    finding.state = Found::kBroken;
    finding.what = path.string() + ": cannot be written to";
    finding.without = without;
    return finding;
  }
  const double free = static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize);
  finding.what = path.string() + ", " + gibibytes(free) + " free";
  finding.facts.emplace_back("free_bytes", std::to_string(static_cast<long long>(free)));
  return finding;
}

Finding open_files() {
  Finding finding{"machine", "open_files", "open files"};
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto number = [](rlim_t n) { return n == RLIM_INFINITY ? "any" : std::to_string(n); };
  finding.what = "at most " + number(limit.rlim_cur) + " (ulimit -n; up to " +
                 number(limit.rlim_max) + "), rank 0 needs one for each other rank";
  return finding;
}

}  // namespace

void examine_resources(std::vector<Finding>& findings) {
  findings.push_back(cores());
  findings.push_back(memory());
  findings.push_back(open_files());
  std::error_code failed;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(failed);
  findings.push_back(folder("temporary_files", "temporary files",
                            failed ? std::filesystem::path("/tmp") : temporary,
                            "run cannot write programs that it completes: set TMPDIR"));
  findings.push_back(folder("shared_memory", "shared memory", "/dev/shm",
                            "MPI libraries may be slow, or not start, on one machine"));
}

}  // namespace autopar
