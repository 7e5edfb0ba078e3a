#include "planning/logging.hpp"

#include <spdlog/spdlog.h>

namespace autopar::logging {

void write(Level level, fmt::string_view text, fmt::format_args values) {
  const spdlog::level::level_enum shown = level == Level::kDebug     ? spdlog::level::debug
                                          : level == Level::kInfo    ? spdlog::level::info
                                          : level == Level::kWarning ? spdlog::level::warn
                                                                     : spdlog::level::err;
  spdlog::logger* logger = spdlog::default_logger_raw();
  if (logger->should_log(shown)) logger->log(shown, fmt::vformat(text, values));
}

}  // namespace autopar::logging
