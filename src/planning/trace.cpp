#include "planning/trace.hpp"

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace autopar {

std::string stage_names() {
  std::string names;
  for (const StageRow& row : solve_stages())
    names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

Result<unsigned> stages_left_out(const std::string& names) {
  unsigned left_out = 0;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    const std::vector<StageRow>& rows = solve_stages();
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const StageRow& its) { return name == its.name; });
    if (row == rows.end()) {
      return usage_error("--without " + names + ": '" + name +
                         "' is no stage of the search; there are " + stage_names());
    }
    left_out |= 1u << static_cast<unsigned>(row->stage);
  }
  return left_out;
}

namespace {

std::string number(double value) {
  if (!(value < kInfinity)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string gap(const StageReport& stage) {
  if (!(stage.cost < kInfinity) || stage.cost == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%",
                100 * std::max(0.0, (stage.cost - stage.bound) / stage.cost));
  return text;
}

}  // namespace

std::string trace_text(const std::vector<StageReport>& stages, double scale) {
  std::string text;
  char line[160];
  std::snprintf(line, sizeof line, "  %-18s%14s%14s%12s%12s%10s\n", "stage", "bound", "plan", "gap",
                "work", "seconds");
  text += line;
  for (const StageReport& stage : stages) {
    std::snprintf(line, sizeof line, "  %-18s%14s%14s%12s%12.3g%10.3f\n", stage.name.c_str(),
                  number(stage.bound * scale).c_str(), number(stage.cost * scale).c_str(),
                  gap(stage).c_str(), stage.work, stage.seconds);
    text += line;
  }
  return text;
}

}  // namespace autopar
