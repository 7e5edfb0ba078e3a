#include "autopar/errors.hpp"

#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

namespace autopar {
namespace {

bool is_used_up(int number) {
  switch (number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:  // RLIMIT_FSIZE
    case ENOMEM:
    case EAGAIN:  // threads, RLIMIT_NPROC
    case EMFILE:
    case ENFILE:
      return true;
    default:
      return false;
  }
}

}  // namespace

Error system_error(const std::string& what, int number) {
  const std::string message = what + ": " + std::strerror(number);
  return is_used_up(number) ? resource_error(message) : input_error(message);
}

Error error_of(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr) {
    return resource_error(
        "out of memory: this machine, or a limit that is set for this program (ulimit -v), does "
        "not have what this takes; try fewer --threads, or a machine with more memory");
  }
  if (const auto* failed = dynamic_cast<const std::system_error*>(&exception)) {
    const int number = failed->code().default_error_condition().value();
    const std::string what = failed->what();
    if (!is_used_up(number)) return input_error(what);
    return resource_error("the memory, threads, files or disk of this machine do not suffice: " +
                          what);
  }
  return {ErrorCode::kBug, std::string("this is a bug of autopar, please report it with the "
                                       "command and its files: ") +
                               exception.what()};
}

}  // namespace autopar
