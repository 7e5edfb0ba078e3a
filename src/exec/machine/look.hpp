// Looks at what may crash or hang when it is touched.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "autopar/machine.hpp"
#include "autopar/support.hpp"

namespace autopar {

// Names and values. A look that found nothing says why under "absent" or "broken".
using Facts = std::vector<std::pair<std::string, std::string>>;

// What `look` finds, found in a process of its own that is ended after `limit`. Where that process
// does not end well the facts are that it is broken, and how it ended.
Facts look_apart(const std::function<Facts()>& look, Seconds limit);

std::string fact(const Facts& facts, const std::string& name);  // "" where there is none
// A finding of facts: its state, and why; what is there is still to be said.
Finding finding_of(const std::string& section, const std::string& key, const std::string& name,
                   Facts facts);

// Opens the first library that can be opened, and adds its "path" as the linker found it. Null: the
// facts say that it is absent or broken, each candidate with its reason. It stays open.
void* open_library(const std::vector<std::string>& candidates, Facts& facts);
// An entry of it; null where there is none, and the facts say that the library is broken.
void* symbol_of(void* library, const char* name, Facts& facts);
template <class Entry>
Entry entry_of(void* library, const char* name, Facts& facts) {
  return reinterpret_cast<Entry>(symbol_of(library, name, facts));
}

// The parts of examine_machine().
void examine_libraries(std::vector<Finding>& findings);
void examine_gpus(std::vector<Finding>& findings);
void examine_launcher(std::vector<Finding>& findings);
void examine_resources(std::vector<Finding>& findings);

}  // namespace autopar
