#include "io/files/json.hpp"

#include <cmath>
#include <cstdio>

namespace autopar {
namespace {

constexpr double kExactIntegers = 9007199254740992.0;  // 2^53

template <class Values, class Write>
std::string listed(const Values& values, Write write) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text += ", ";
    text += write(values[i]);
  }
  return text + "]";
}

}  // namespace

Error Json::error(const std::string& what) const {
  return input_error(file_ + ": " + (path_.empty() ? "" : path_ + ": ") + what);
}

Error Json::expected(const std::string& what) const {
  return error("expected " + what + ", found " + found_text(*value_));
}

Result<std::optional<Json>> Json::find(const std::string& key) const {
  if (!value_->is_object()) return expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return std::optional<Json>();
  return std::optional<Json>(Json(*found, file_, path_.empty() ? key : path_ + "." + key));
}

Result<Json> Json::at(const std::string& key) const {
  AUTOPAR_TRY(found, find(key));
  if (!found) return error("the field \"" + key + "\" is missing");
  return *found;
}

Result<std::vector<Json>> Json::items() const {
  if (!value_->is_array()) return expected("a list");
  std::vector<Json> items;
  items.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    items.emplace_back((*value_)[i], file_, path_ + "[" + std::to_string(i) + "]");
  }
  return items;
}

Result<std::vector<std::pair<std::string, Json>>> Json::members() const {
  if (!value_->is_object()) return expected("an object");
  std::vector<std::pair<std::string, Json>> members;
  members.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) {
    members.emplace_back(key, Json(value, file_, path_.empty() ? key : path_ + "." + key));
  }
  return members;
}

Result<std::string> Json::text() const {
  if (!value_->is_string()) return expected("a string");
  return value_->get<std::string>();
}

Result<bool> Json::boolean() const {
  if (!value_->is_boolean()) return expected("true or false");
  return value_->get<bool>();
}

Result<std::int64_t> Json::integer() const {
  if (value_->is_number_unsigned()) {
    const auto number = value_->get<std::uint64_t>();
    if (number <= static_cast<std::uint64_t>(INT64_MAX)) return static_cast<std::int64_t>(number);
  } else if (value_->is_number_integer()) {
    return value_->get<std::int64_t>();
  } else if (value_->is_number_float()) {
    const double number = value_->get<double>();
    if (std::abs(number) <= kExactIntegers && number == std::floor(number)) {
      return static_cast<std::int64_t>(number);
    }
  }
  return expected("an integer");
}

Result<double> Json::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) return expected("a number");
  return value_->get<double>();
}

Result<std::vector<std::int64_t>> Json::integers() const {
  AUTOPAR_TRY(list, items());
  std::vector<std::int64_t> numbers;
  for (const Json& item : list) {
    AUTOPAR_TRY(number, item.integer());
    numbers.push_back(number);
  }
  return numbers;
}

Status check_format(const Json& document, const std::string& format, std::int64_t version) {
  AUTOPAR_TRY(format_field, document.at("format"));
  AUTOPAR_TRY(found_format, format_field.text());
  if (found_format != format) return format_field.expected("\"" + format + "\"");
  AUTOPAR_TRY(version_field, document.at("version"));
  AUTOPAR_TRY(found_version, version_field.integer());
  if (found_version != version) {
    return version_field.expected("version " + std::to_string(version) +
                                  ", the only one that this program knows");
  }
  return Ok{};
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  for (int digits = 1; digits <= 17; ++digits) {  // the shortest that reads back
    std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (std::strtod(text, nullptr) == value) break;
  }
  return text;
}

std::string json_list(const std::vector<std::int64_t>& values) {
  return listed(values, [](std::int64_t value) { return std::to_string(value); });
}

std::string json_list(const std::vector<std::vector<std::int64_t>>& values) {
  return listed(values, [](const std::vector<std::int64_t>& value) { return json_list(value); });
}

std::string json_tensor_map(const Spec& spec, const Mesh& mesh) {
  const auto entry = [](const std::vector<int>& axes) {
    if (axes.empty()) return std::string("-1");
    if (axes.size() == 1) return std::to_string(axes[0]);
    return listed(axes, [](int axis) { return std::to_string(axis); });
  };
  return "\"spec\": " + json_text(to_text(spec, mesh)) +
         ", \"device_matrix\": " + json_list(mesh.sizes()) +
         ", \"tensor_map\": " + listed(tensor_map(spec, mesh), entry);
}

std::string json_mesh(const Mesh& mesh, const std::vector<std::string>& tier_names) {
  return listed(mesh.axes, [&](const Axis& axis) {
    const auto tier = static_cast<std::size_t>(axis.tier);
    std::string text =
        "{\"name\": " + json_text(axis.name) + ", \"size\": " + std::to_string(axis.size);
    if (axis.tier >= 0 && tier < tier_names.size()) {
      text += ", \"tier\": " + json_text(tier_names[tier]);
    }
    return text + "}";
  });
}

Result<std::int64_t> positive_integer(const Json& owner, const std::string& key) {
  AUTOPAR_TRY(field, owner.at(key));
  AUTOPAR_TRY(number, field.integer());
  if (number < 1) return field.expected("a positive integer");
  return number;
}

}  // namespace autopar
