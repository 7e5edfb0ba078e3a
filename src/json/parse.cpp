#include "json/parse.hpp"

#include <algorithm>

#include "support/counted.hpp"

namespace autopar {
namespace {

// The lists and objects in one another; what stands in strings does not count.
int levels_of(std::string_view text) {
  int level = 0, most = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++level);
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return most;
}

template <class Document>
Result<Document> parse(std::string_view text, const std::string& file) {
  const std::string where = file.empty() ? "" : file + ": ";
  if (const int levels = levels_of(text); levels > kMaxJsonLevels) {
    return input_error(where + "has " + std::to_string(levels) +
                       " levels of lists and objects in one another, expected at most " +
                       std::to_string(kMaxJsonLevels));
  }
  try {
    return Document::parse(text);
  } catch (const nlohmann::json::exception& exception) {
    return input_error(where + "is not JSON: " + message_of(exception));
  }
}

bool is_short_and_flat(const nlohmann::json& list) {
  constexpr std::size_t kMostItems = 8;
  return list.size() <= kMostItems &&
         std::none_of(list.begin(), list.end(), [](const auto& i) { return i.is_structured(); });
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& file) {
  return parse<nlohmann::json>(text, file);
}

Result<nlohmann::ordered_json> parse_ordered_json(std::string_view text, const std::string& file) {
  return parse<nlohmann::ordered_json>(text, file);
}

nlohmann::json object_at(const nlohmann::json& document, const char* name) {
  const auto found = document.find(name);
  const bool is_there = found != document.end() && !found->is_null();
  return is_there ? *found : nlohmann::json::object();
}

std::string message_of(const nlohmann::json::exception& exception) {
  const std::string what = exception.what();
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
  const auto end = what.find("] ");
  const std::string text = end == std::string::npos ? what : what.substr(end + 2);
  // "cannot use at() with string"
  const auto type = text.rfind(" with ");
  const bool is_misused = text.rfind("cannot use ", 0) == 0 && type != std::string::npos;
  return is_misused ? "expected an object or a list, found a " + text.substr(type + 6) : text;
}

std::string found_text(const nlohmann::json& value) {
  constexpr std::size_t kShown = 60;
  if (value.is_array() && !is_short_and_flat(value))
    return "a list of " + counted(value.size(), "item");
  if (value.is_object()) return "an object of " + counted(value.size(), "member");
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

}  // namespace autopar
