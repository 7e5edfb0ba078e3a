#include "cli/show_document.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "autopar/report.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// By the last word of the field's name.
std::string number_text(const std::string& key, double value, const std::string& cost_model) {
  if (ends_with(key, "seconds")) {
    return cost_model.empty() ? format_seconds(value) : format_price(value, cost_model);
  }
  if (ends_with(key, "bytes_per_s")) return format_bytes(value) + "/s";
  if (ends_with(key, "bytes")) return format_bytes(value);
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string scalar_text(const std::string& key, const Json& value, const std::string& cost_model) {
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float() || ends_with(key, "bytes") || ends_with(key, "seconds")) {
    return number_text(key, value.get<double>(), cost_model);
  }
  return value.dump();
}

bool is_table(const Json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const Json& v) { return v.is_object(); });
}

// Names with dots for what lies in objects; lists of numbers or words in one field.
void flatten(const Json& object, const std::string& prefix, const std::string& cost_model,
             std::vector<std::pair<std::string, std::string>>& fields) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      flatten(value, name + ".", cost_model, fields);
    } else if (value.is_array()) {
      std::string text;
      for (const Json& item : value) {
        text += (text.empty() ? "" : ", ") +
                (item.is_structured() ? item.dump() : scalar_text(key, item, cost_model));
      }
      fields.emplace_back(name, text);
    } else {
      fields.emplace_back(name, scalar_text(key, value, cost_model));
    }
  }
}

std::string table_of(const Json& list, const std::string& cost_model) {
  std::vector<std::string> columns;
  std::vector<std::vector<std::pair<std::string, std::string>>> entries;
  for (const Json& object : list) {
    entries.emplace_back();
    flatten(object, "", cost_model, entries.back());
    for (const auto& [name, value] : entries.back()) {
      if (std::find(columns.begin(), columns.end(), name) == columns.end()) columns.push_back(name);
    }
  }
  TextTable table{{columns}, {}};
  for (const auto& entry : entries) {
    std::vector<std::string> row(columns.size());
    for (const auto& [name, value] : entry) {
      const auto column = std::find(columns.begin(), columns.end(), name) - columns.begin();
      row[static_cast<std::size_t>(column)] = value;
    }
    table.rows.push_back(std::move(row));
  }
  return to_text(table);
}

// Facts first, then the tables of the object and of the objects in it.
void add_object(const Json& object, const std::string& name, const std::string& cost_model,
                std::string& facts, std::string& tables) {
  for (const auto& [key, value] : object.items()) {
    if (name.empty() && (key == "format" || key == "version")) continue;
    const std::string full = name + key;
    if (is_table(value)) {
      for (const Json& row : value) {
        // Tables within rows stand on their own.
        const bool deep = std::any_of(row.begin(), row.end(), is_table);
        if (!deep) continue;
        for (std::size_t i = 0; i < value.size(); ++i) {
          add_object(value[i], full + "." + std::to_string(i) + ".", cost_model, facts, tables);
        }
        break;
      }
      const bool shallow = std::none_of(value.begin(), value.end(), [](const Json& row) {
        return std::any_of(row.begin(), row.end(), is_table);
      });
      if (shallow) tables += "\n" + full + "\n" + table_of(value, cost_model);
    } else if (value.is_object()) {
      add_object(value, full + ".", cost_model, facts, tables);
    } else {
      std::vector<std::pair<std::string, std::string>> fields;
      flatten({{key, value}}, name, cost_model, fields);
      for (const auto& [field, text] : fields) facts += "  " + field + ": " + text + "\n";
    }
  }
}

}  // namespace

std::string show_document(const std::string& bytes) {
  const Json document = Json::parse(bytes, nullptr, false);
  if (!document.is_object()) return bytes;
  const std::string format = document.value("format", "");
  const std::string cost_model = document.value("cost_model", "");
  std::string facts, tables;
  add_object(document, "", cost_model, facts, tables);
  return format + "\n" + facts + tables;
}

}  // namespace autopar::cli
