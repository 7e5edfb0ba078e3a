// autopar fit.
#pragma once

#include "cli/command.hpp"

namespace autopar::cli {

Run add_fit(CLI::App& app, const CommonOptions& common);

}  // namespace autopar::cli
