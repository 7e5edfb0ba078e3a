#include <algorithm>
#include <cmath>
#include <cstdio>

#include "autopar/report.hpp"
#include "report/unit.hpp"

namespace autopar {

namespace {

std::string number(const char* format, double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return std::string(text) + unit;
}

// Columns as a terminal shows them: bytes that continue a UTF-8 character take no room.
std::size_t width_of(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string unit_of(const std::string& cost_model) {
  for (const CostModelRow& row : cost_models()) {
    if (cost_model == row.name) return row.unit;
  }
  return "seconds";
}

std::string price_word(const std::string& cost_model) {
  return unit_of(cost_model) == "seconds" ? "time" : "cost";
}

std::string price_key(const std::string& of, const std::string& cost_model) {
  const std::string word = unit_of(cost_model) == "seconds" ? "seconds" : "cost";
  return of.empty() ? word : of + "_" + word;
}

std::pair<std::string, std::string> beside_streams(Seconds one_by_one, Seconds step) {
  if (step < one_by_one) return {"saved side by side", "-" + format_seconds(one_by_one - step)};
  return {"waiting for the host", format_seconds(step - one_by_one)};
}

std::string format_bytes(double bytes) {
  const char* units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  return number(unit == 0 ? "%.0f" : "%.2f", bytes, units[unit]);
}

std::string format_seconds(Seconds seconds) {
  if (seconds == 0) return "0";
  if (std::isinf(seconds)) return "-";
  if (std::abs(seconds) < 1e-3) return number("%.3f", seconds * 1e6, " us");
  if (std::abs(seconds) < 1) return number("%.3f", seconds * 1e3, " ms");
  return number("%.3f", seconds, " s");
}

std::string format_price(double price, const std::string& cost_model) {
  if (unit_of(cost_model) == "seconds") return format_seconds(price);
  if (std::isinf(price)) return "-";
  return number("%.10g", price, "");
}

std::string format_percent(double part) { return number("%.1f", part * 100, " %"); }

std::string format_count(double count) {
  const char* units[] = {"", " k", " M", " G", " T", " P"};
  std::size_t unit = 0;
  while (std::abs(count) >= 1000 && unit + 1 < std::size(units)) {
    count /= 1000;
    ++unit;
  }
  return number(unit == 0 ? "%.0f" : "%.2f", count, units[unit]);
}

std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string to_text(const TextTable& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table.rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    std::string line = " ";
    for (std::size_t c = 0; c < table.rows[r].size(); ++c) {
      const std::string& cell = table.rows[r][c];
      const std::string padding(widths[c] - width_of(cell), ' ');
      const bool right = c < table.right_aligned.size() && table.right_aligned[c];
      line += " " + (right ? padding + cell : cell + padding) + " ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
    if (r == 0) {
      std::string rule = " ";
      for (std::size_t w : widths) rule += " " + std::string(w, '-') + " ";
      rule.erase(rule.find_last_not_of(' ') + 1);
      text += rule + "\n";
    }
  }
  return text;
}

}  // namespace autopar
