// JSON that somebody else wrote. nlohmann's parser needs no stack for nested lists, but what is
// done with its values later (copies, comparisons, dumps) does: a text of 100,000 brackets would
// overflow it. Every reader of files goes through here, so that none has to think of it.
//
//   AUTOPAR_TRY(document, parse_json(text, "p.json"));   // "p.json: is not JSON: parse error at
//   .." Error error = input_error("p.json: size: expected a number, found " + found_text(value));
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "autopar/support.hpp"

namespace autopar {

// More levels than any format here has.
inline constexpr int kMaxJsonLevels = 64;

// `file` begins the message; it may be empty.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& file);
// The same, members in the file's order.
Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const std::string& file);

// The member of that name; an empty object where there is none, or null.
nlohmann::json object_at(const nlohmann::json& document, const char* name);

// The message of nlohmann's exception, without its number.
std::string message_of(const nlohmann::json::exception& exception);

// What a message shows of a value that is not as expected: scalars and short lists of them, cut
// off where they are long; of others how much they hold.
std::string found_text(const nlohmann::json& value);

}  // namespace autopar
