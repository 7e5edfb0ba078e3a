// Reading and writing parts of files. A file is opened for each: the ranks of a plan may be more
// than the files that a process may have open.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "autopar/errors.hpp"
#include "autopar/unfinished.hpp"
#include "weights/tensors.hpp"

namespace autopar {
namespace {

Error file_error(const std::string& path, const char* what, int error) {
  return system_error(path + ": cannot be " + what, error);
}

constexpr Bytes kMostAtOnce = Bytes{1} << 30;  // the kernel moves less than 2 GiB per call

}  // namespace

Status read_bytes(const std::string& path, Bytes offset, char* bytes, Bytes size) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return file_error(path, "read", errno);
  while (size > 0) {
    const ssize_t got =
        ::pread(file, bytes, static_cast<std::size_t>(std::min(size, kMostAtOnce)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int error = errno;
      ::close(file);
      if (got < 0) return file_error(path, "read", error);
      return input_error(path + ": ends at byte " + std::to_string(offset) + ", expected " +
                         std::to_string(size) + " bytes more");
    }
    bytes += got;
    offset += got;
    size -= got;
  }
  ::close(file);
  return Ok{};
}

Status write_bytes(const std::string& path, Bytes offset, std::string_view bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return file_error(path, "written", errno);
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const std::size_t part = std::min(bytes.size(), static_cast<std::size_t>(kMostAtOnce));
    const ssize_t put = ::pwrite(file, bytes.data(), part, offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      error = errno;
    } else {
      offset += put;
      bytes.remove_prefix(static_cast<std::size_t>(put));
    }
  }
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) return file_error(path, "written", error);
  return Ok{};
}

Status reserve_file(const std::string& path, Bytes size) {
  const int file = open_new(path);
  if (file < 0) return file_error(path, "written", errno);
  int error = 0;
  if (size > 0 && ::fallocate(file, 0, 0, size) != 0) {
    error = errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR ? 0 : errno;
  }
  if (::close(file) != 0 && error == 0) error = errno;
  if (error != 0) return file_error(path, "written", error);
  return Ok{};
}

}  // namespace autopar
