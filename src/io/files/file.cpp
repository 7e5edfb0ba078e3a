#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "autopar/errors.hpp"
#include "autopar/file_facts.hpp"
#include "autopar/files.hpp"
#include "autopar/sha256.hpp"
#include "autopar/unfinished.hpp"
#include "io/onnx_read.hpp"

namespace autopar {
namespace {

Error file_error(const std::string& path, const std::string& what, int error) {
  return system_error(path + ": " + what, error);
}

// Of bytes that were on their way: whatever stops them, the disk is at fault and not the path.
Error write_error(const std::string& path, int error) {
  return resource_error(path + ": cannot be written: " + std::strerror(error));
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

Result<std::string> sha256_of_file(const std::string& path) {
  const auto file = open_file(path);
  if (!file) return input_error(path + ": " + file.error().message);
  return sha256_hex(file->bytes());
}

bool is_json(const std::string& path) {
  char first = 0;
  std::ifstream file(path);
  return file >> first && first == '{';
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

Status write_file_atomically(const std::string& path, std::string_view bytes) {
  return write_file_atomically(path, [&](int file) { return write_all(file, bytes); });
}

Status write_file_atomically(const std::string& path, const WriteFile& write) {
  UnfinishedFiles files;
  AUTOPAR_RETURN_IF_ERROR(write_file(files, path, write));
  return files.keep();
}

Status write_file(UnfinishedFiles& files, const std::string& path, std::string_view bytes) {
  return write_file(files, path, [&](int file) { return write_all(file, bytes); });
}

Status write_file(UnfinishedFiles& files, const std::string& path, const WriteFile& write) {
  // A device or a pipe takes the bytes as they come: a rename would put a file in its place.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && std::filesystem::is_other(status)) {
    const int device = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (device < 0) return file_error(path, "cannot be written", errno);
    int error = write(device);
    if (::close(device) != 0 && error == 0) error = errno;
    return error == 0 ? Status(Ok{}) : write_error(path, error);
  }
  AUTOPAR_TRY(part, files.add(path));
  const int file = open_new(part);
  if (file < 0) return file_error(path, "cannot be written", errno);
  int error = write(file);
  if (::close(file) != 0 && error == 0) error = errno;
  if (error == 0) return Ok{};
  files.take_back(path);
  return write_error(path, error);
}

}  // namespace autopar
