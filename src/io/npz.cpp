#include "autopar/npz.hpp"

#include <unzip.h>
#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>

#include "autopar/errors.hpp"
#include "autopar/unfinished.hpp"
#include "io/npy.hpp"

namespace autopar {

namespace {

constexpr const char* kSuffix = ".npy";
// Deflate cannot do better than 1032 to 1, so a larger claim is a lie that would only cost memory.
constexpr std::uint64_t kMaxRatio = 1032;
// The library counts what is read or written at once in 32 bits.
constexpr std::size_t kAtOnce = std::size_t{1} << 30;

struct CloseReader {
  void operator()(void* archive) const { unzClose(archive); }
};
using NpzReader = std::unique_ptr<void, CloseReader>;

std::string failure(int code) {
  switch (code) {
    case UNZ_ERRNO:
      return std::strerror(errno);
    case UNZ_CRCERROR:
      return "its checksum is wrong";
    case Z_DATA_ERROR:
      return "its compressed data are damaged";
    case Z_MEM_ERROR:
    case UNZ_INTERNALERROR:
      return "the zip library cannot go on";
    default:
      return "the archive is damaged";
  }
}

// Of a call that writes to a file that is open: what stops it is the machine. The library does not
// tell what it was.
Error write_error(const std::string& what) {
  return errno != 0 ? system_error(what, errno) : resource_error(what);
}

// Of the entry at which the archive stands.
Result<std::string> read_entry(void* archive, const unz_file_info64& info) {
  if (info.uncompressed_size / kMaxRatio > info.compressed_size) {
    return input_error("its size in the archive is not believable");
  }
  if ((info.flag & 1) != 0) return input_error("it is encrypted");
  if (const int code = unzOpenCurrentFile(archive); code != UNZ_OK) {
    return input_error(failure(code));
  }
  std::string bytes(info.uncompressed_size, '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const std::size_t wanted = std::min(kAtOnce, bytes.size() - have);
    const int got = unzReadCurrentFile(archive, bytes.data() + have, static_cast<unsigned>(wanted));
    if (got < 0) return input_error(failure(got));
    if (got == 0) return input_error("it is truncated");
    have += static_cast<std::size_t>(got);
  }
  char more = 0;
  if (unzReadCurrentFile(archive, &more, 1) != 0) {
    return input_error("it is longer than the archive says");
  }
  // This compares the checksum.
  if (const int code = unzCloseCurrentFile(archive); code != UNZ_OK) {
    return input_error(failure(code));
  }
  return bytes;
}

// Whether the record that ends an archive ends the file: the library reads on where it is cut off.
bool is_whole(const std::string& path, const unz_global_info64& info) {
  constexpr std::streamoff kEndRecord = 22;
  std::ifstream file(path, std::ios::binary);
  file.seekg(-(kEndRecord + static_cast<std::streamoff>(info.size_comment)), std::ios::end);
  char signature[4] = "";
  return file.read(signature, 4) && std::memcmp(signature, "PK\5\6", 4) == 0;
}

// Nothing where the archive is damaged there.
std::optional<std::string> name_of_entry(void* archive, unz_file_info64& info) {
  const auto read = [&](char* name, uLong size) {
    return unzGetCurrentFileInfo64(archive, &info, name, size, nullptr, 0, nullptr, 0) == UNZ_OK;
  };
  if (!read(nullptr, 0)) return std::nullopt;
  std::string name(info.size_filename, '\0');
  if (!read(name.data(), info.size_filename)) return std::nullopt;
  return name;
}

// Writes an unfinished file.
class NpzWriter {
 public:
  explicit NpzWriter(const std::string& part)
      : archive_(zipOpen64(part.c_str(), APPEND_STATUS_CREATE)) {}
  NpzWriter(const NpzWriter&) = delete;
  NpzWriter& operator=(const NpzWriter&) = delete;
  ~NpzWriter() {
    if (archive_ != nullptr) zipClose(archive_, nullptr);
  }

  bool is_open() const { return archive_ != nullptr; }

  bool add(const std::string& name, const std::string& bytes) {
    zip_fileinfo info{};
    info.dosDate = (1u << 21) | (1u << 16);  // 1980-01-01
    constexpr unsigned long kUtf8 = 1u << 11;
    if (zipOpenNewFileInZip4_64(archive_, name.c_str(), &info, nullptr, 0, nullptr, 0, nullptr, 0,
                                0, 0, -MAX_WBITS, DEF_MEM_LEVEL, Z_DEFAULT_STRATEGY, nullptr, 0, 0,
                                kUtf8, bytes.size() > 0xfffffffe ? 1 : 0) != ZIP_OK) {
      return false;
    }
    for (std::size_t done = 0; done < bytes.size();) {
      const std::size_t size = std::min(kAtOnce, bytes.size() - done);
      if (zipWriteInFileInZip(archive_, bytes.data() + done, static_cast<unsigned>(size)) !=
          ZIP_OK) {
        return false;
      }
      done += size;
    }
    return zipCloseFileInZip(archive_) == ZIP_OK;
  }

  bool close() { return zipClose(std::exchange(archive_, nullptr), nullptr) == ZIP_OK; }

 private:
  zipFile archive_;
};

Result<NpzReader> open_archive(const std::string& path) {
  errno = 0;
  NpzReader archive(unzOpen64(path.c_str()));
  const int number = errno;
  const std::string what = path + ": cannot be read as an .npz file (a zip archive of arrays)";
  if (!archive && number != 0) return system_error(what, number);
  if (!archive) return input_error(what + ": it is no zip archive");
  unz_global_info64 all{};
  if (unzGetGlobalInfo64(archive.get(), &all) != UNZ_OK || !is_whole(path, all)) {
    return input_error(what + ": it is damaged or cut off");
  }
  return archive;
}

// Of the entry at which the archive stands. Errors start with `where`.
Result<Tensor> read_array(void* archive, const unz_file_info64& info, const std::string& where) {
  const auto bytes = read_entry(archive, info);
  if (!bytes) return input_error(where + bytes.error().message);
  auto tensor = parse_npy(*bytes);
  if (!tensor) return input_error(where + tensor.error().message);
  return tensor;
}

}  // namespace

Result<std::map<std::string, Tensor>> read_npz(const std::string& path) {
  AUTOPAR_TRY(archive, open_archive(path));
  std::map<std::string, Tensor> arrays;
  unz_global_info64 all{};
  unzGetGlobalInfo64(archive.get(), &all);
  for (std::uint64_t i = 0; i < all.number_entry; ++i) {
    const int code = i == 0 ? unzGoToFirstFile(archive.get()) : unzGoToNextFile(archive.get());
    unz_file_info64 info{};
    const auto found = code == UNZ_OK ? name_of_entry(archive.get(), info) : std::nullopt;
    if (!found) {
      return input_error(path + ": entry " + std::to_string(i) + " of the archive is damaged");
    }
    std::string name = *found;
    if (!name.ends_with(kSuffix)) {
      return input_error(path + ": entry '" + name + "' is no array (expected a name in " +
                         kSuffix + "); is it a file made by numpy.savez?");
    }
    name.resize(name.size() - std::string(kSuffix).size());
    const std::string where = path + ": array '" + name + "': ";
    AUTOPAR_TRY(tensor, read_array(archive.get(), info, where));
    if (!arrays.emplace(name, std::move(tensor)).second) {
      return input_error(where + "the archive has two arrays of that name");
    }
  }
  return arrays;
}

Result<std::optional<Tensor>> read_npz_array(const std::string& path, const std::string& name) {
  AUTOPAR_TRY(archive, open_archive(path));
  constexpr int kCaseCounts = 1;
  if (unzLocateFile(archive.get(), (name + kSuffix).c_str(), kCaseCounts) != UNZ_OK) {
    return std::optional<Tensor>();
  }
  const std::string where = path + ": array '" + name + "': ";
  unz_file_info64 info{};
  if (!name_of_entry(archive.get(), info)) {
    return input_error(where + "its entry in the archive is damaged");
  }
  AUTOPAR_TRY(tensor, read_array(archive.get(), info, where));
  return std::optional<Tensor>(std::move(tensor));
}

Status write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays) {
  if (arrays.empty()) return input_error(path + ": there are no arrays to write");
  std::error_code ignored;
  if (std::filesystem::is_other(std::filesystem::status(path, ignored))) {
    return input_error(path + ": is a device or a pipe, and an .npz is written as a file; try " +
                       "another place");
  }
  UnfinishedFiles files;
  AUTOPAR_TRY(part, files.add(path));
  errno = 0;
  NpzWriter writer(part);
  if (!writer.is_open()) {
    return system_error(path + ": cannot be written", errno);
  }
  for (const auto& [name, tensor] : arrays) {
    if (!writer.add(name + kSuffix, npy_bytes(tensor))) {
      return write_error(path + ": array '" + name + "' cannot be written");
    }
  }
  if (!writer.close()) return write_error(path + ": cannot be written");
  return files.keep();
}

}  // namespace autopar
