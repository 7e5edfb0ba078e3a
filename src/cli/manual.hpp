// The manual, made from the options: what --help prints, the man page, and docs/manual.md.
//
// A description is one line for --help; lines after it are for the manual only. Texts are Markdown:
// `code`, paragraphs, lists ("- `name`: text"), and blocks that are indented by four spaces.
#pragma once

#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace autopar::cli {

// Of the program or a command, options by their groups.
std::string help_text(const CLI::App& app);

// The whole manual of the program.
std::string man_page(const CLI::App& program);
std::string markdown_manual(const CLI::App& program);

}  // namespace autopar::cli
