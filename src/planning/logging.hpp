// What a command says on stderr beside its results. spdlog's own functions would compile their
// formatting into every file that calls them, some seconds each; here it is compiled once.
#pragma once

#include <fmt/core.h>

namespace autopar::logging {

enum class Level { kDebug, kInfo, kWarning, kError };

// Formats and writes the text where the level is shown (spdlog::set_level).
void write(Level level, fmt::string_view text, fmt::format_args values);

template <class... Values>
void debug(fmt::format_string<const Values&...> text, const Values&... values) {
  write(Level::kDebug, text, fmt::make_format_args(values...));
}
template <class... Values>
void info(fmt::format_string<const Values&...> text, const Values&... values) {
  write(Level::kInfo, text, fmt::make_format_args(values...));
}
template <class... Values>
void warn(fmt::format_string<const Values&...> text, const Values&... values) {
  write(Level::kWarning, text, fmt::make_format_args(values...));
}
template <class... Values>
void error(fmt::format_string<const Values&...> text, const Values&... values) {
  write(Level::kError, text, fmt::make_format_args(values...));
}

}  // namespace autopar::logging
