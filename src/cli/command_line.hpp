// The words of the command line: where the command stands among them, and which word is wrong.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "autopar/support.hpp"

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace autopar::cli {

// `autopar --json search m.onnx` is `autopar search --json m.onnx`: options that a command reads
// may stand before it. What no command reads stays where it is.
std::vector<std::string> command_first(const CLI::App& app, std::vector<std::string> words);

// The first option that the command does not read, or the command that there is not, with what may
// have been meant; empty where every word is known. CLI11 would name what is missing first.
std::string unknown_word(const CLI::App& app, const std::vector<std::string>& words);

inline constexpr std::uint64_t kMostWhole = std::numeric_limits<std::int64_t>::max();

// Files that options of a command name stay as they are, unless the option says what is written.
// Strategies and schedules may be those of the plan that is replaced: check_reads_stay().
void keep_read_files(const CLI::App& command);

// Errors (kUsage): an option that is given with nothing, such as a variable of the shell that is
// not set; it would count as not given.
Status check_values(const CLI::App& command);

// Checks of numbers; CLI11's own take NaN, and say a range that ends with the largest double.
CLI::Validator positive_number();
CLI::Validator number_from_zero();
// Both from `least` to `most`.
CLI::Validator number_between(double least, double most);
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most = kMostWhole);
// Of outputs that hold the next values of inputs; empty: none does.
CLI::Validator name_pattern();

}  // namespace autopar::cli
