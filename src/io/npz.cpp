#include "autopar/npz.hpp"

#include <zip.h>

#include <memory>
#include <vector>

#include "autopar/errors.hpp"
#include "io/npy.hpp"

namespace autopar {

namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Entry = std::unique_ptr<zip_file_t, Discard>;

constexpr const char* kSuffix = ".npy";
// Deflate cannot do better than 1032 to 1, so a larger claim is a lie that would only cost memory.
constexpr std::uint64_t kMaxRatio = 1032;

std::string open_failure(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = zip_error_strerror(&error);
  zip_error_fini(&error);
  return text;
}

// Memory and, once the archive is open, what stops the bytes on their way.
bool is_used_up(int code) {
  return code == ZIP_ER_MEMORY || code == ZIP_ER_WRITE || code == ZIP_ER_CLOSE ||
         code == ZIP_ER_SEEK;
}

Result<std::string> read_entry(zip_t* archive, zip_uint64_t index, const zip_stat_t& stat) {
  if ((stat.valid & ZIP_STAT_SIZE) == 0 || (stat.valid & ZIP_STAT_COMP_SIZE) == 0 ||
      stat.size / kMaxRatio > stat.comp_size) {
    return input_error("its size in the archive is not believable");
  }
  const Entry entry(zip_fopen_index(archive, index, 0));
  if (!entry) return input_error(zip_strerror(archive));
  std::string bytes(stat.size, '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const zip_int64_t got = zip_fread(entry.get(), bytes.data() + have, bytes.size() - have);
    if (got < 0) return input_error(zip_file_strerror(entry.get()));
    if (got == 0) return input_error("it is truncated");
    have += static_cast<std::size_t>(got);
  }
  char more = 0;  // the checksum is compared at the end of the data
  const zip_int64_t rest = zip_fread(entry.get(), &more, 1);
  if (rest < 0) return input_error(zip_file_strerror(entry.get()));
  if (rest > 0) return input_error("it is longer than the archive says");
  return bytes;
}

}  // namespace

namespace {

Result<Archive> open_archive(const std::string& path) {
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
  if (archive) return archive;
  return input_error(
      path + ": cannot be read as an .npz file (a zip archive of arrays): " + open_failure(code));
}

// An entry whose name is there. Errors start with `where`.
Result<Tensor> read_array(zip_t* archive, zip_uint64_t index, const zip_stat_t& stat,
                          const std::string& where) {
  const auto bytes = read_entry(archive, index, stat);
  if (!bytes) return input_error(where + bytes.error().message);
  auto tensor = parse_npy(*bytes);
  if (!tensor) return input_error(where + tensor.error().message);
  return tensor;
}

}  // namespace

Result<std::map<std::string, Tensor>> read_npz(const std::string& path) {
  AUTOPAR_TRY(archive, open_archive(path));
  std::map<std::string, Tensor> arrays;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    zip_stat_t stat;
    zip_stat_init(&stat);
    const auto index = static_cast<zip_uint64_t>(i);
    if (zip_stat_index(archive.get(), index, 0, &stat) != 0 || stat.name == nullptr) {
      return input_error(path + ": entry " + std::to_string(i) + " of the archive is damaged");
    }
    std::string name = stat.name;
    if (!name.ends_with(kSuffix)) {
      return input_error(path + ": entry '" + name + "' is no array (expected a name in " +
                         kSuffix + "); is it a file made by numpy.savez?");
    }
    name.resize(name.size() - std::string(kSuffix).size());
    const std::string where = path + ": array '" + name + "': ";
    AUTOPAR_TRY(tensor, read_array(archive.get(), index, stat, where));
    if (!arrays.emplace(name, std::move(tensor)).second) {
      return input_error(where + "the archive has two arrays of that name");
    }
  }
  return arrays;
}

Result<std::optional<Tensor>> read_npz_array(const std::string& path, const std::string& name) {
  AUTOPAR_TRY(archive, open_archive(path));
  const zip_int64_t index = zip_name_locate(archive.get(), (name + kSuffix).c_str(), 0);
  if (index < 0) return std::optional<Tensor>();
  zip_stat_t stat;
  zip_stat_init(&stat);
  const std::string where = path + ": array '" + name + "': ";
  if (zip_stat_index(archive.get(), static_cast<zip_uint64_t>(index), 0, &stat) != 0) {
    return input_error(where + "its entry in the archive is damaged");
  }
  AUTOPAR_TRY(tensor, read_array(archive.get(), static_cast<zip_uint64_t>(index), stat, where));
  return std::optional<Tensor>(std::move(tensor));
}

Status write_npz(const std::string& path, const std::map<std::string, Tensor>& arrays) {
  // The library writes no file for an archive without entries.
  if (arrays.empty()) return input_error(path + ": there are no arrays to write");
  int code = 0;
  Archive archive(zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  if (!archive) return input_error(path + ": cannot be written: " + open_failure(code));
  std::vector<std::string> entries;  // must live until the archive is closed
  entries.reserve(arrays.size());
  for (const auto& [name, tensor] : arrays) {
    const std::string& bytes = entries.emplace_back(npy_bytes(tensor));
    zip_source_t* source = zip_source_buffer(archive.get(), bytes.data(), bytes.size(), 0);
    const zip_int64_t index =
        source == nullptr
            ? -1
            : zip_file_add(archive.get(), (name + kSuffix).c_str(), source, ZIP_FL_ENC_UTF_8);
    if (index < 0) {
      if (source != nullptr) zip_source_free(source);
      return input_error(path + ": array '" + name +
                         "' cannot be added: " + zip_strerror(archive.get()));
    }
    const auto added = static_cast<zip_uint64_t>(index);
    zip_set_file_compression(archive.get(), added, ZIP_CM_STORE, 0);
    zip_file_set_dostime(archive.get(), added, 0, (1 << 5) | 1, 0);  // 1980-01-01
  }
  if (zip_close(archive.get()) != 0) {
    const std::string message = path + ": cannot be written: " + zip_strerror(archive.get());
    const int code = zip_error_code_zip(zip_get_error(archive.get()));
    return is_used_up(code) ? resource_error(message) : input_error(message);
  }
  archive.release();  // closing has freed it
  return Ok{};
}

}  // namespace autopar
