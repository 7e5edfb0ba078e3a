#include "io/export/external_data.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>

#include "autopar/errors.hpp"
#include "autopar/files.hpp"
#include "io/import/external_locations.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

// Copies above this are told.
constexpr Bytes kTellBytes = Bytes{64} << 20;

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Returns 0 or an errno.
int copy_by_blocks(int from, int to) {
  std::vector<char> block(std::size_t{1} << 20);
  while (true) {
    const ssize_t got = ::read(from, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = ::write(to, block.data() + done, static_cast<std::size_t>(got - done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return errno;
      done += put;
    }
  }
}

// A later run sees by the times that this copy is up to date.
void keep_times(int to, const struct stat& status) {
  const struct timespec times[2] = {status.st_atim, status.st_mtim};
  ::futimens(to, times);
}

// A clone shares its blocks with the original until one of them is written to; not every file
// system has clones. Returns 0 or an errno.
int clone_contents(int from, int to, const struct stat& status) {
  if (::ioctl(to, FICLONE, from) != 0) return errno;
  keep_times(to, status);
  return 0;
}

// The kernel copies, and where it cannot, we do. Returns 0 or an errno.
int copy_contents(int from, int to, const struct stat& status) {
  ssize_t copied = 0;
  do {
    copied = ::copy_file_range(from, nullptr, to, nullptr, std::size_t{1} << 30, 0);
  } while (copied > 0);
  // Whatever it has copied, reading goes on from there.
  if (copied < 0) {
    if (const int error = copy_by_blocks(from, to); error != 0) return error;
  }
  keep_times(to, status);
  return 0;
}

bool up_to_date(const struct stat& source, const struct stat& target) {
  const bool same_file = source.st_dev == target.st_dev && source.st_ino == target.st_ino;
  return same_file ||
         (source.st_size == target.st_size && source.st_mtim.tv_sec == target.st_mtim.tv_sec &&
          source.st_mtim.tv_nsec == target.st_mtim.tv_nsec);
}

bool link_file(const std::string& source, const std::string& target, UnfinishedFiles& files) {
  const Result<std::string> part = files.add(target);
  if (part && ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, part->c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return true;
  }
  files.take_back(target);
  return false;
}

Status link_or_copy(const std::string& source, const std::string& target, Bytes link_bytes,
                    std::vector<std::string>& warnings, UnfinishedFiles& files) {
  const OpenFile file(source);
  struct stat status {};
  if (file.fd() < 0 || ::fstat(file.fd(), &status) != 0) {
    return system_error(source + ": cannot be read", errno);
  }
  if (!files.part_of(target).empty()) return Ok{};  // for another program
  struct stat existing {};
  if (::lstat(target.c_str(), &existing) == 0 && S_ISREG(existing.st_mode) &&
      up_to_date(status, existing)) {
    return Ok{};
  }
  if (write_file(files, target, [&](int to) { return clone_contents(file.fd(), to, status); })) {
    return Ok{};
  }
  const std::string bytes = std::to_string(status.st_size) + " bytes";
  if (status.st_size > link_bytes) {
    if (link_file(source, target, files)) {
      warnings.push_back(target + " is a hard link to " + source + " (" + bytes +
                         "): ONNX Runtime reads it, but ONNX's Python package refuses files with "
                         "two names, the model's own too; a copy would suit both, --weights "
                         "sharded needs neither");
      return Ok{};
    }
  }
  if (status.st_size > kTellBytes) {
    warnings.push_back(target + " is a copy of " + source + " (" + bytes +
                       "): this file system has no clones; --weights sharded writes every rank's "
                       "slices instead");
  }
  return write_file(files, target, [&](int to) { return copy_contents(file.fd(), to, status); });
}

}  // namespace

Result<std::vector<std::string>> place_external_data(const Graph& graph,
                                                     const std::string& from_folder,
                                                     const std::string& folder, Bytes link_bytes,
                                                     UnfinishedFiles& files) {
  std::set<std::string> locations;
  for (const Value& value : graph.values) {
    if (const auto* external = std::get_if<ExternalData>(&value.data)) {
      locations.insert(external->location);
    }
  }
  std::vector<std::string> warnings;
  for (const std::string& location : locations) {
    if (!is_below_folder(location)) {
      return input_error("external data '" + location +
                         "' lies outside the model's folder; move it beside the model");
    }
    const fs::path relative(location);
    const fs::path source = fs::path(from_folder) / relative;
    std::error_code ignored;
    if (!fs::exists(source, ignored)) {
      warnings.push_back("the external data '" + location + "' is not in " + from_folder +
                         "; the plan refers to it all the same");
      continue;
    }
    AUTOPAR_RETURN_IF_ERROR(link_or_copy(source.string(), (fs::path(folder) / relative).string(),
                                         link_bytes, warnings, files));
  }
  return warnings;
}

}  // namespace autopar
