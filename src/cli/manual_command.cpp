// autopar manual.
#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/command.hpp"
#include "cli/manual.hpp"

namespace autopar::cli {

Run add_manual(CLI::App& app, const CommonOptions&) {
  auto format = std::make_shared<std::string>("man");
  app.add_option("--format", *format, "man (default): troff, as `man -l -` reads it; markdown")
      ->group(group::kOutput)
      ->check(CLI::IsMember({"man", "markdown"}));
  return [format, &app]() -> Result<int> {
    const CLI::App& program = *app.get_parent();
    std::cout << (*format == "man" ? man_page(program) : markdown_manual(program));
    return 0;
  };
}

}  // namespace autopar::cli
