#include "cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "autopar/unfinished.hpp"
#include "cli/command.hpp"
#include "search/pins.hpp"

namespace autopar::cli {

namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

const CLI::App* command_named(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : commands_of(app)) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0;
}

// "--mesh" of "--mesh=4x2", "-o" of "-ofile".
std::string option_name(const std::string& word) {
  return word.rfind("--", 0) == 0 ? word.substr(0, word.find('=')) : word.substr(0, 2);
}

const CLI::Option* option_of(const CLI::App& app, const std::string& name) {
  return app.get_option_no_throw(name);
}

// Of any command: one name takes a value everywhere or nowhere.
const CLI::Option* option_of_any(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : commands_of(app)) {
    if (const CLI::Option* option = option_of(*command, name)) return option;
  }
  return nullptr;
}

// Whether the value of an option is the word after it.
bool takes_next_word(const CLI::Option& option, const std::string& word) {
  return option.get_items_expected_min() > 0 && word == option_name(word);
}

// The first word that is neither an option nor an option's value.
std::size_t command_at(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t w = 0; w < words.size(); ++w) {
    if (!is_option(words[w])) return words[w] == "--" ? words.size() : w;
    const CLI::Option* option = option_of_any(app, option_name(words[w]));
    if (option != nullptr && takes_next_word(*option, words[w])) ++w;
  }
  return words.size();
}

// What a word may have meant, as "; did you mean 'x'?".
std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

std::vector<std::string> long_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "search, apply and price": the commands that read the option.
std::string readers_of(const CLI::App& app, const std::string& name) {
  std::vector<std::string> readers;
  for (const CLI::App* command : commands_of(app)) {
    if (option_of(*command, name) != nullptr) readers.push_back(command->get_name());
  }
  std::string text;
  for (std::size_t r = 0; r < readers.size(); ++r) {
    text += (r == 0 ? "" : r + 1 < readers.size() ? ", " : " and ") + readers[r];
  }
  return text;
}

std::string unknown_option(const CLI::App& app, const CLI::App& command, const std::string& name) {
  const std::string readers = readers_of(app, name);
  if (readers.empty())
    return "unknown option '" + name + "'" + suggestion(name, long_names(command));
  return command.get_name() + " does not read '" + name + "', which is an option of " + readers;
}

}  // namespace

std::vector<std::string> command_first(const CLI::App& app, std::vector<std::string> words) {
  const std::size_t at = command_at(app, words);
  if (at == words.size()) return words;
  std::vector<std::string> first, after;
  for (std::size_t w = 0; w < at; ++w) {
    const CLI::Option* option = option_of_any(app, option_name(words[w]));
    std::vector<std::string>& to = option == nullptr ? first : after;
    to.push_back(words[w]);
    if (option != nullptr && takes_next_word(*option, words[w])) to.push_back(words[++w]);
  }
  first.push_back(words[at]);
  first.insert(first.end(), after.begin(), after.end());
  first.insert(first.end(), words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  return first;
}

std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words) {
  const std::size_t at = command_at(app, words);
  const CLI::App* command = at < words.size() ? command_named(app, words[at]) : nullptr;
  if (at < words.size() && command == nullptr) {
    std::vector<std::string> names;
    for (const CLI::App* known : commands_of(app)) names.push_back(known->get_name());
    return "unknown command '" + words[at] + "'" + suggestion(words[at], names);
  }
  const CLI::App& reader = command != nullptr ? *command : app;
  for (std::size_t w = 0; w < words.size() && words[w] != "--"; ++w) {
    if (!is_option(words[w])) continue;
    const std::string name = option_name(words[w]);
    const CLI::Option* option = option_of(reader, name);
    if (option == nullptr) return unknown_option(app, reader, name);
    if (takes_next_word(*option, words[w])) ++w;
  }
  return "";
}

namespace {

template <class Number, class Holds>
CLI::Validator number_check(const std::string& expected, Holds holds) {
  const auto check = [expected, holds](const std::string& text) {
    Number value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    const bool is_good = error == std::errc{} && at == end && holds(value);
    return is_good ? std::string() : "expected " + expected + ", found '" + text + "'";
  };
  return CLI::Validator(check, "");
}

std::string plain(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

}  // namespace

void keep_read_files(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool is_file = option->get_type_name().find("FILE") != std::string::npos;
    if (!is_file && !option->get_positional()) continue;
    const bool is_strategy = name == "--pin" || name == "--strategy" || name == "--schedule";
    const bool is_written =
        option->get_group() == group::kOutput || name == "--timeline" || name == "--dump-problem";
    if (is_strategy || is_written) continue;
    for (const std::string& value : option->results()) keep_from_replacing(value);
  }
}

Status check_values(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_items_expected_min() == 0 || option->get_name() == "--updates") continue;
    for (const std::string& value : option->results()) {
      if (value.empty()) return usage_error(option->get_name() + ": expected a value, found ''");
    }
  }
  return Ok{};
}

CLI::Validator positive_number() {
  return number_check<double>("a number above 0",
                              [](double value) { return std::isfinite(value) && value > 0; });
}

CLI::Validator number_from_zero() {
  return number_check<double>("a number from 0 on",
                              [](double value) { return std::isfinite(value) && value >= 0; });
}

CLI::Validator number_between(double least, double most) {
  return number_check<double>("a number from " + plain(least) + " to " + plain(most),
                              [=](double value) { return value >= least && value <= most; });
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const std::string range =
      "from " + std::to_string(least) +
      (most >= std::numeric_limits<int>::max() ? " on" : " to " + std::to_string(most));
  return number_check<std::uint64_t>("a whole number " + range, [=](std::uint64_t value) {
    return value >= least && value <= most;
  });
}

CLI::Validator name_pattern() {
  const auto check = [](const std::string& text) {
    const bool is_good = text.empty() || std::count(text.begin(), text.end(), '*') == 1;
    return is_good ? std::string()
                   : "expected a pattern with one *, which stands for the input's name, such as "
                     "new.*; found '" +
                         text + "'";
  };
  return CLI::Validator(check, "");
}

}  // namespace autopar::cli
