// autopar doctor: what this program and this machine have.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/machine.hpp"
#include "autopar/report.hpp"
#include "cli/command.hpp"
#include "cli/environment.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

// What a person has set, which changes what the libraries' findings are.
std::vector<std::pair<std::string, std::string>> set_variables() {
  std::vector<std::pair<std::string, std::string>> set;
  for (const EnvironmentVariable& variable : environment_variables()) {
    const char* value = std::getenv(variable.name);
    if (value == nullptr) continue;
    set.emplace_back(variable.name, variable.secret ? "(set, not shown)" : value);
  }
  return set;
}

Json object_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Json object = Json::object();
  for (const auto& [name, value] : pairs) object[name] = value;
  return object;
}

std::string json_of(const std::vector<Finding>& findings) {
  Json json = {{"format", "autopar-doctor"},
               {"version", 1},
               {"autopar_version", AUTOPAR_VERSION},
               {"build", object_of(build_options())},
               {"environment", object_of(set_variables())}};
  json["findings"] = Json::object();
  for (const Finding& finding : findings) {
    json["findings"][finding.key] = {
        {"section", finding.section},      {"name", finding.name},
        {"state", name_of(finding.state)}, {"what", finding.what},
        {"without", finding.without},      {"facts", object_of(finding.facts)}};
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string indented(const std::string& text, const std::string& by) {
  std::string result;
  for (char c : text) {
    result += c;
    if (c == '\n') result += by;
  }
  return result;
}

void add_pairs(const std::vector<std::pair<std::string, std::string>>& pairs, std::string& text) {
  for (const auto& [name, value] : pairs) text += "  " + name + ": " + value + "\n";
}

std::string text_of(const std::vector<Finding>& findings, bool all_facts) {
  std::string text = "autopar " AUTOPAR_VERSION "\n";
  add_pairs(build_options(), text);
  const auto variables = set_variables();
  if (!variables.empty()) text += "\nenvironment\n";
  add_pairs(variables, text);
  std::string section;
  for (const Finding& finding : findings) {
    if (finding.section != section) text += "\n" + finding.section + "\n";
    section = finding.section;
    std::string state = name_of(finding.state);
    state.resize(8, ' ');
    const std::string margin(10, ' ');
    text += "  " + state + finding.name + ": " + indented(finding.what, margin) + "\n";
    if (!finding.without.empty()) text += margin + "so " + indented(finding.without, margin) + "\n";
    if (!all_facts) continue;
    for (const auto& [name, value] : finding.facts) {
      if (finding.what.find(name + " = ") == std::string::npos) {
        text += margin + name + " = " + value + "\n";
      }
    }
  }
  return text;
}

}  // namespace

Run add_doctor(CLI::App&, const CommonOptions& common) {
  return [&common]() -> Result<int> {
    const std::vector<Finding> findings = examine_machine();
    std::cout << (common.json ? json_of(findings) : text_of(findings, common.verbose));
    return 0;
  };
}

}  // namespace autopar::cli
