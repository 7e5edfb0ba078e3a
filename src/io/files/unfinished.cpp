#include "autopar/unfinished.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <set>

#include "autopar/errors.hpp"

namespace autopar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = ".part-";
constexpr std::size_t kDigits = 16;
constexpr const char* kHex = "0123456789abcdef";
// Nobody writes one file for so long without adding to it.
constexpr auto kAbandoned = std::chrono::hours(24);

// Of all objects; the lock also holds while files get their names.
std::mutex& lock_of_all() {
  static auto* mutex = new std::mutex;  // outlives every thread
  return *mutex;
}
// Whether this thread holds it.
thread_local bool t_locked = false;

class Lock {
 public:
  Lock() {
    lock_of_all().lock();
    t_locked = true;
  }
  ~Lock() {
    t_locked = false;
    lock_of_all().unlock();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
};

std::set<UnfinishedFiles*>& all_objects() {
  static auto* objects = new std::set<UnfinishedFiles*>;
  return *objects;
}

// What all parts of a file have before their digits. A name may be as long as the system has names.
std::string part_start(const fs::path& path) {
  std::string name = path.filename().string();
  const std::size_t longest = NAME_MAX - std::strlen(kMark) - kDigits;
  if (name.size() <= NAME_MAX && name.size() > longest) name.resize(longest);
  return name + kMark;
}

std::string random_digits() {
  std::array<unsigned char, kDigits / 2> bytes;
  AUTOPAR_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
                "the kernel has random bytes");
  std::string digits;
  for (const unsigned char byte : bytes) {
    digits += kHex[byte >> 4];
    digits += kHex[byte & 15];
  }
  return digits;
}

// Parts of a file of this name that nobody will finish.
void remove_abandoned(const fs::path& path) {
  const std::string start = part_start(path);
  const fs::path folder = path.parent_path().empty() ? fs::path(".") : path.parent_path();
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(start, 0) != 0 || name.size() != start.size() + kDigits) continue;
    if (name.find_first_not_of(kHex, start.size()) != std::string::npos) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(entry->path(), ignored);
    if (ignored || fs::file_time_type::clock::now() - written < kAbandoned) continue;
    fs::remove(entry->path(), ignored);
  }
}

Error cannot(const std::string& path, const char* what, int error) {
  return system_error(path + ": cannot be " + what, error);
}

// What was written under any descriptor. Returns 0 or an errno.
int sync_to_disk(const std::string& path, int flags) {
  const int file = ::open(path.c_str(), flags | O_CLOEXEC);
  // A folder that may be written to, but not read, cannot be opened.
  if (file < 0) return (flags & O_DIRECTORY) != 0 && errno == EACCES ? 0 : errno;
  // Some file systems have nothing to sync.
  const int error = ::fsync(file) == 0 || errno == EINVAL || errno == EROFS ? 0 : errno;
  ::close(file);
  return error;
}

}  // namespace

UnfinishedFiles::UnfinishedFiles() {
  const Lock lock;
  all_objects().insert(this);
}

UnfinishedFiles::~UnfinishedFiles() {
  const Lock lock;
  all_objects().erase(this);
  remove();
}

void UnfinishedFiles::remove() {
  std::error_code ignored;
  for (const auto& [part, path] : parts_) fs::remove(part, ignored);
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    fs::remove(*folder, ignored);
  }
}

Status UnfinishedFiles::make_folder(const std::string& folder) {
  const Lock lock;
  std::vector<std::string> missing;
  std::error_code failed;
  for (fs::path p = folder; !p.empty() && !fs::exists(p, failed); p = p.parent_path()) {
    missing.push_back(p.string());
  }
  folders_.insert(folders_.end(), missing.rbegin(), missing.rend());
  if (!folder.empty()) fs::create_directories(folder, failed);
  if (failed) return system_error(folder + ": cannot be made", failed.value());
  return Ok{};
}

namespace {

// Without links; empty: there is no such file.
std::string place_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return {};
  const fs::path place = fs::canonical(path, error);
  return error ? std::string() : place.string();
}

struct KeptPlaces {
  std::mutex mutex;
  std::set<std::string> places;
};
KeptPlaces& kept_places() {
  static auto* kept = new KeptPlaces;  // outlives every thread
  return *kept;
}

}  // namespace

void keep_from_replacing(const std::string& path) {
  const std::string place = place_of(path);
  if (place.empty()) return;
  KeptPlaces& kept = kept_places();
  const std::scoped_lock lock(kept.mutex);
  kept.places.insert(place);
}

Status check_replaceable(const std::string& path) {
  const std::string place = place_of(path);
  KeptPlaces& kept = kept_places();
  const std::scoped_lock lock(kept.mutex);
  if (place.empty() || kept.places.count(place) == 0) return Ok{};
  return input_error(path +
                     ": is what is read, so it is not replaced; try another place for what "
                     "is written");
}

namespace {

// What can be told of a place that is not there: the nearest folder above it must take it. Errors
// start with `what`.
Status check_place(const fs::path& place, const std::string& what) {
  fs::path above = place.empty() ? fs::path(".") : place;
  struct stat status {};
  while (::stat(above.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return system_error(what, errno);
    // Of a link that leads nowhere there is a name.
    if (::lstat(above.c_str(), &status) == 0) return system_error(what, EEXIST);
    const fs::path next = above.parent_path();
    if (const std::string name = above.filename().string(); name.size() > NAME_MAX) {
      return system_error(what, ENAMETOOLONG);
    }
    above = next.empty() ? fs::path(".") : next;
  }
  if (!S_ISDIR(status.st_mode)) {
    return input_error(what + ": '" + above.string() + "' is a file, not a folder");
  }
  if (::access(above.c_str(), W_OK | X_OK) != 0) {
    const int error = errno;
    return system_error(above == place ? what : what + ": folder '" + above.string() + "'", error);
  }
  return Ok{};
}

}  // namespace

Status check_folder_writable(const std::string& folder) {
  std::error_code ignored;
  const bool is_there = folder.empty() || fs::is_directory(folder, ignored);
  return check_place(folder, folder + (is_there ? ": cannot be written to" : ": cannot be made"));
}

Status check_writable(const std::string& path) {
  if (path.empty()) return Ok{};
  AUTOPAR_RETURN_IF_ERROR(check_replaceable(path));
  const std::string what = path + ": cannot be written";
  const fs::path place(path);
  if (place.filename().string().size() > NAME_MAX) return system_error(what, ENAMETOOLONG);
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) return system_error(what, EISDIR);
  if (fs::is_other(status)) {
    return ::access(path.c_str(), W_OK) == 0 ? Status(Ok{}) : system_error(what, errno);
  }
  return check_place(place.parent_path(), what);
}

Result<std::string> UnfinishedFiles::add(const std::string& path) {
  AUTOPAR_RETURN_IF_ERROR(check_replaceable(path));
  AUTOPAR_RETURN_IF_ERROR(make_folder(fs::path(path).parent_path().string()));
  remove_abandoned(path);
  const fs::path place(path);
  std::string part = place.parent_path() / (part_start(place) + random_digits());
  const Lock lock;
  parts_.emplace_back(part, path);
  return part;
}

std::string UnfinishedFiles::part_of(const std::string& path) {
  const Lock lock;
  const auto found = find(path);
  return found == parts_.end() ? std::string() : found->first;
}

void UnfinishedFiles::take_back(const std::string& path) {
  const Lock lock;
  const auto found = find(path);
  if (found == parts_.end()) return;
  std::error_code ignored;
  fs::remove(found->first, ignored);
  parts_.erase(found);
}

void UnfinishedFiles::rename(const std::string& path, const std::string& other) {
  const Lock lock;
  const auto found = find(path);
  AUTOPAR_CHECK(found != parts_.end(), "a file is renamed that was not added");
  found->second = other;
}

void UnfinishedFiles::replace(const std::string& path) {
  const Lock lock;
  replaced_.push_back(path);
}

UnfinishedFiles::Parts::iterator UnfinishedFiles::find(const std::string& path) {
  const auto found = std::find_if(parts_.rbegin(), parts_.rend(),
                                  [&](const auto& part) { return part.second == path; });
  return found == parts_.rend() ? parts_.end() : std::prev(found.base());
}

Status UnfinishedFiles::keep() {
  std::set<std::string> folders;
  for (const auto& [part, path] : parts_) {
    if (const int error = sync_to_disk(part, O_RDONLY); error != 0) {
      return cannot(path, "written", error);
    }
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(path, ignored))) {
      return cannot(path, "written", EISDIR);
    }
    const std::string folder = fs::path(path).parent_path().string();
    folders.insert(folder.empty() ? "." : folder);
  }
  {
    const Lock lock;
    std::error_code ignored;
    for (const std::string& path : replaced_) fs::remove(path, ignored);
    for (const auto& [part, path] : parts_) {
      if (::rename(part.c_str(), path.c_str()) != 0) return cannot(path, "written", errno);
    }
    parts_.clear();
    replaced_.clear();
    folders_.clear();
  }
  for (const std::string& folder : folders) {
    if (const int error = sync_to_disk(folder, O_RDONLY | O_DIRECTORY); error != 0) {
      return cannot(folder, "written", error);
    }
  }
  return Ok{};
}

bool remove_unfinished() {
  if (t_locked) return false;
  lock_of_all().lock();  // for good
  for (UnfinishedFiles* files : all_objects()) files->remove();
  return true;
}

int open_new(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

}  // namespace autopar
