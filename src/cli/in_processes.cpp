#include "cli/in_processes.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "planning/logging.hpp"

namespace autopar::cli {

Result<int> in_processes(const std::string& ranks_by, Seconds timeout,
                         const std::function<Result<int>(ProcessWorld&)>& work) {
  auto joined = ProcessWorld::join(ranks_by, timeout);
  if (!joined && !ProcessWorld::says_why_not_joined()) {
    return static_cast<int>(joined.error().code);
  }
  AUTOPAR_TRY(world, std::move(joined));
  const bool is_first = world->rank() == 0;
  if (!is_first) spdlog::set_level(spdlog::level::off);
  const Result<int> code = work(*world);
  const Status left =
      world->leave(code.ok() ? Status(Ok{}) : Status(code.error()),
                   [](const Error& error) { logging::error("error: {}", error.message); });
  if (left.ok()) return code;
  return static_cast<int>(left.error().code);
}

}  // namespace autopar::cli
