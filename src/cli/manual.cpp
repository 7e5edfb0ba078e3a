#include "cli/manual.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <sstream>
#include <vector>

#include "cli/environment.hpp"
#include "cli/manual_text.hpp"

namespace autopar::cli {

namespace {

struct OptionText {
  std::string names;  // "-o, --output DIR"
  std::string brief;  // one line
  std::string more;   // for the manual
};
struct OptionGroup {
  std::string name;
  std::vector<OptionText> options;
};

constexpr std::size_t kWidth = 100;
constexpr std::size_t kColumn = 28;  // where descriptions begin

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// What stands for the value: the words that are taken ("local|full"), the type's name where the
// option was given one, "N" for numbers, else the option's own name.
std::string value_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string type = option.get_type_name();
  const auto open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    std::string words = type.substr(open + 1, close - open - 1);
    std::replace(words.begin(), words.end(), ',', '|');
    return words;
  }
  const std::string base = type.substr(0, type.find(':'));
  if (base == "INT" || base == "UINT" || base == "FLOAT") return "N";
  if (base != "TEXT" && !base.empty()) return base;
  return option.get_lnames().empty() ? "TEXT" : upper(option.get_lnames().front());
}

OptionText text_of(const CLI::Option& option) {
  OptionText text;
  if (option.get_positional()) {
    text.names = option.get_name(true);
  } else {
    for (const std::string& name : option.get_snames()) text.names += "-" + name;
    for (const std::string& name : option.get_lnames()) {
      text.names += (text.names.empty() ? "--" : ", --") + name;
    }
    if (const std::string value = value_of(option); !value.empty()) text.names += " " + value;
  }
  const std::string& description = option.get_description();
  const auto end = description.find('\n');
  text.brief = description.substr(0, end);
  if (end != std::string::npos) text.more = description.substr(end + 1);
  return text;
}

// In the order in which groups first come up, the common ones last; a group without a name is
// hidden.
std::vector<OptionGroup> groups_of(const CLI::App& app) {
  std::vector<OptionGroup> groups, common;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_group();
    if (name.empty() || option->get_positional()) continue;
    std::vector<OptionGroup>& among = name == "Common" ? common : groups;
    auto group = std::find_if(among.begin(), among.end(),
                              [&](const OptionGroup& g) { return g.name == name; });
    if (group == among.end()) group = among.insert(among.end(), OptionGroup{name, {}});
    group->options.push_back(text_of(*option));
  }
  groups.insert(groups.end(), common.begin(), common.end());
  return groups;
}

std::vector<OptionText> positionals_of(const CLI::App& app) {
  std::vector<OptionText> positionals;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) positionals.push_back(text_of(*option));
  }
  return positionals;
}

// "autopar search MODEL --cluster CLUSTER [options]"
std::string usage_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  std::string usage = (parent != nullptr ? parent->get_name() + " " : "") + app.get_name();
  for (const OptionText& positional : positionals_of(app)) usage += " " + positional.names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() || !option->get_required()) continue;
    usage += " --" + option->get_lnames().front() + " " + value_of(*option);
  }
  if (parent == nullptr) usage += " COMMAND";
  return usage + " [options]";
}

std::vector<const CLI::App*> commands_of(const CLI::App& program) {
  auto commands =
      program.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); });
  return commands;
}

// Words in lines of at most `width`, those after the first behind a margin.
std::string wrapped(const std::string& text, std::size_t margin) {
  std::istringstream words(text);
  std::string result, line;
  for (std::string word; words >> word;) {
    if (!line.empty() && margin + line.size() + 1 + word.size() > kWidth) {
      result += line + "\n" + std::string(margin, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return result + line;
}

std::string entry(const std::string& names, const std::string& what) {
  std::string text = "  " + names;
  if (text.size() + 2 > kColumn) {
    text += "\n" + std::string(kColumn, ' ');
  } else {
    text.resize(kColumn, ' ');
  }
  return text + wrapped(what, kColumn) + "\n";
}

}  // namespace

std::string help_text(const CLI::App& app) {
  std::string text = app.get_parent() != nullptr ? "autopar " + app.get_name() + ": " : "";
  text += app.get_description() + "\n\nUsage: " + usage_of(app) + "\n";
  const std::vector<OptionText> positionals = positionals_of(app);
  if (!positionals.empty()) text += "\n";
  for (const OptionText& positional : positionals) {
    text += entry(positional.names, positional.brief);
  }
  const auto commands = commands_of(app);
  if (!commands.empty()) text += "\nCommands:\n";
  for (const CLI::App* command : commands) {
    text += entry(command->get_name(), command->get_description());
  }
  for (const OptionGroup& group : groups_of(app)) {
    text += "\n" + group.name + ":\n";
    for (const OptionText& option : group.options) text += entry(option.names, option.brief);
  }
  if (!commands.empty()) text += "\n`autopar COMMAND --help` lists what a command reads.\n";
  return text;
}

namespace {

// troff, of the text's Markdown. Letters that mean something to troff are escaped.
class Troff {
 public:
  void line(const std::string& text) { result_ += text + "\n"; }
  void heading(const std::string& title) { line(".SH " + upper(title)); }
  void item(const std::string& term, const std::string& text) {
    line(".TP\n" + inlined(term));
    paragraphs(text);
  }
  void bold_item(const std::string& term, const std::string& text) {
    line(".TP\n.B " + escaped(term));
    paragraphs(text);
  }

  void paragraphs(const std::string& text) {
    std::istringstream lines(text);
    bool block = false, first = true;
    for (std::string one; std::getline(lines, one);) {
      const bool indented = one.rfind("    ", 0) == 0;
      if (indented != block) line(indented ? ".sp\n.nf" : ".fi\n.sp");
      block = indented;
      if (indented) {
        line(guarded(escaped(one.substr(4))));
      } else if (one.rfind("- ", 0) == 0) {
        const auto end = one.find(": ");
        item(one.substr(2, end - 2), one.substr(end + 2));
      } else if (one.empty()) {
        if (!first) line(".sp");
      } else {
        line(guarded(inlined(one)));
      }
      first = false;
    }
    if (block) line(".fi");
  }
  const std::string& text() const { return result_; }

 private:
  static std::string escaped(const std::string& text) {
    std::string result;
    for (char c : text) {
      if (c == '-' || c == '\\') result += '\\';
      result += c;
      if (c == '\\') result.replace(result.size() - 2, 2, "\\e");
    }
    return result;
  }
  // A line must not begin like a request.
  static std::string guarded(const std::string& text) {
    return !text.empty() && (text[0] == '.' || text[0] == '\'') ? "\\&" + text : text;
  }
  static std::string inlined(const std::string& text) {
    std::string result;
    bool code = false;
    std::string part;
    const auto flush = [&] {
      result += code ? "\\fB" + escaped(part) + "\\fP" : escaped(part);
      part.clear();
    };
    for (char c : text) {
      if (c != '`') {
        part += c;
        continue;
      }
      flush();
      code = !code;
    }
    flush();
    return result;
  }

  std::string result_;
};

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += ".";
  return text;
}

std::string whole(const OptionText& option) {
  return sentence(option.brief) + (option.more.empty() ? "" : "\n\n" + option.more);
}

std::string about(const CLI::App& command) {
  const std::string text = about_command(command.get_name());
  return text.empty() ? sentence(command.get_description()) : text;
}

}  // namespace

std::string man_page(const CLI::App& program) {
  Troff page;
  page.line(".TH AUTOPAR 1 \"\" \"autopar " AUTOPAR_VERSION "\" \"User Commands\"");
  page.heading("Name");
  page.line("autopar \\- find, price and run parallel execution plans for tensor graphs");
  page.heading("Synopsis");
  page.line(".nf");
  for (const CLI::App* command : commands_of(program)) page.line(usage_of(*command));
  page.line(".fi");
  for (const ManualSection& section : sections_before()) {
    page.heading(section.title);
    page.paragraphs(section.text);
  }
  for (const CLI::App* command : commands_of(program)) {
    page.heading("autopar " + command->get_name());
    page.paragraphs("`" + usage_of(*command) + "`\n\n" + about(*command));
    for (const OptionText& option : positionals_of(*command)) {
      page.bold_item(option.names, whole(option));
    }
    for (const OptionGroup& group : groups_of(*command)) {
      page.line(".SS " + group.name);
      for (const OptionText& option : group.options) page.bold_item(option.names, whole(option));
    }
  }
  page.heading("Environment");
  for (const EnvironmentVariable& variable : environment_variables()) {
    page.bold_item(variable.name, variable.what);
  }
  for (const ManualSection& section : sections_after()) {
    page.heading(section.title);
    page.paragraphs(section.text);
  }
  return page.text();
}

namespace {

std::string item(const std::string& term, const std::string& text) {
  std::string result = "- `" + term + "`: ";
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    const bool ends_line = text[i] == '\n' && i + 1 < text.size() && text[i + 1] != '\n';
    if (ends_line) result += "  ";
  }
  return result + "\n";
}

}  // namespace

std::string markdown_manual(const CLI::App& program) {
  std::string text =
      "# The manual of autopar\n\n"
      "Made by `scripts/make_manual` from the options of the program; the man page `autopar(1)` "
      "has the same. Do not edit it here.\n";
  const auto add_sections = [&](const std::vector<ManualSection>& sections) {
    for (const ManualSection& section : sections) {
      text += std::string("\n## ") + section.title + "\n\n" + section.text + "\n";
    }
  };
  add_sections(sections_before());
  text += "\n## Commands\n\n";
  for (const CLI::App* command : commands_of(program)) {
    text += "- [`autopar " + command->get_name() + "`](#autopar-" + command->get_name() +
            "): " + command->get_description() + "\n";
  }
  for (const CLI::App* command : commands_of(program)) {
    text += "\n## autopar " + command->get_name() + "\n\n    " + usage_of(*command) + "\n\n" +
            about(*command) + "\n";
    const auto positionals = positionals_of(*command);
    if (!positionals.empty()) text += "\n";
    for (const OptionText& option : positionals) text += item(option.names, whole(option));
    for (const OptionGroup& group : groups_of(*command)) {
      text += "\n### " + group.name + "\n\n";
      for (const OptionText& option : group.options) text += item(option.names, whole(option));
    }
  }
  text += "\n## Environment\n\n";
  for (const EnvironmentVariable& variable : environment_variables()) {
    text += item(variable.name, variable.what);
  }
  add_sections(sections_after());
  return text;
}

}  // namespace autopar::cli
