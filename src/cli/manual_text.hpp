// What the manual says besides the options.
#pragma once

#include <string>
#include <vector>

namespace autopar::cli {

struct ManualSection {
  const char* title;
  const char* text;
};
// Before the commands, and after them.
const std::vector<ManualSection>& sections_before();
const std::vector<ManualSection>& sections_after();

// What a command does, in paragraphs; empty where its one line says all.
std::string about_command(const std::string& name);

}  // namespace autopar::cli
