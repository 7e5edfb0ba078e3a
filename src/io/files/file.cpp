#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "autopar/files.hpp"

namespace autopar {
namespace {

Error file_error(const std::string& path, const std::string& what, int error) {
  return input_error(path + ": " + what + ": " + std::strerror(error));
}

int write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return file_error(path, "cannot be read", errno);
  struct stat status {};
  std::string bytes;
  if (::fstat(file, &status) == 0 && status.st_size > 0) {
    bytes.resize(static_cast<std::size_t>(status.st_size));
  }
  std::size_t size = 0;
  int error = 0;
  while (true) {
    if (size == bytes.size()) bytes.resize(bytes.size() + 65536);
    const ssize_t got = ::read(file, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    size += static_cast<std::size_t>(got);
  }
  ::close(file);
  if (error != 0) return file_error(path, "cannot be read", error);
  bytes.resize(size);
  return bytes;
}

Status write_file_atomically(const std::string& path, std::string_view bytes) {
  return write_file_atomically(path, [&](int file) { return write_all(file, bytes); });
}

Status write_file_atomically(const std::string& path, const std::function<int(int)>& write) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code made;
  if (!folder.empty()) std::filesystem::create_directories(folder, made);
  if (made) return input_error(folder.string() + ": cannot be made: " + made.message());
  // A device or a pipe takes the bytes as they come: a rename would put a file in its place.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && std::filesystem::is_other(status)) {
    const int device = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (device < 0) return file_error(path, "cannot be written", errno);
    int error = write(device);
    if (::close(device) != 0 && error == 0) error = errno;
    return error == 0 ? Status(Ok{}) : file_error(path, "cannot be written", error);
  }
  const std::string temporary = path + ".part" + std::to_string(::getpid());
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return file_error(path, "cannot be written", errno);
  int error = write(file);
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return Ok{};
  ::unlink(temporary.c_str());
  return file_error(path, "cannot be written", error);
}

}  // namespace autopar
