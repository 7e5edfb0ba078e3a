#include "cli/run_report.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "support/counted.hpp"

namespace autopar::cli {

namespace {

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::string verdict_of(const OutputComparison& output) {
  if (!output.matches) return "WRONG" + (output.problem.empty() ? "" : ": " + output.problem);
  if (output.against.empty()) return "not compared";
  std::string text = "ok";
  if (output.excused_elements > 0) {
    text += ", " + std::to_string(output.excused_elements) + " excused behind " + output.jump;
  }
  if (output.nan_elements > 0) text += ", " + std::to_string(output.nan_elements) + " NaN";
  return text;
}

// How much of what passed is excused, and why; empty: nothing is.
std::string excuse_of(const RunReport& report) {
  std::size_t elements = 0;
  std::size_t outputs = 0;
  const OutputComparison* first = nullptr;
  for (const OutputComparison& output : report.outputs) {
    if (output.excused_elements == 0 || !output.matches) continue;
    elements += output.excused_elements;
    ++outputs;
    if (first == nullptr) first = &output;
  }
  if (first == nullptr) return "";
  return "  " + counted(elements, "element") + " of " + counted(outputs, "output") +
         " are excused: rounding may carry numbers far (for '" + first->name + "': " + first->jump +
         "); --strict excuses none\n";
}

}  // namespace

std::string run_verdict(const RunReport& report) {
  if (!report.passed) return "FAILED";
  const bool compared =
      std::any_of(report.outputs.begin(), report.outputs.end(),
                  [](const OutputComparison& output) { return !output.against.empty(); });
  return compared ? "PASSED" : "PASSED (nothing compared)";
}

std::string run_table(const RunReport& report, const RunJob& job) {
  TextTable outputs{{{"output", "largest error", "relative", ""}}, {false, true, true, false}};
  for (const OutputComparison& o : report.outputs) {
    outputs.rows.push_back({o.name, scientific(o.max_absolute_error),
                            scientific(o.max_relative_error), verdict_of(o)});
  }
  const bool repeated = job.request.repeat > 0;
  TextTable times{{{"time by kind", "", "calls/rank", "time/rank", "sent/rank"}},
                  {false, false, true, true, true, true, true}};
  if (repeated) times.rows[0].insert(times.rows[0].end(), {"minimum", "mean"});
  for (const TimedKind& t : report.times) {
    times.rows.push_back({t.kind, t.collective ? "collective" : "local", std::to_string(t.count),
                          format_seconds(t.seconds), t.collective ? format_bytes(t.bytes) : ""});
    if (!repeated) continue;
    times.rows.back().push_back(format_seconds(t.spread.minimum));
    times.rows.back().push_back(format_seconds(t.spread.mean));
  }
  std::string text = to_text(outputs) + "\n" + to_text(times) + "\n";
  if (repeated) text += rank_table(report) + "\n";
  if (job.prediction) {
    text += prediction_table(*job.prediction, report, job.request.steps) + "\n";
  }
  text += "  " + std::to_string(report.ranks) + " ranks (" + report.ranks_are +
          "): " + format_seconds(report.wall);
  if (repeated) {
    text += " (median of " + std::to_string(report.timed_runs) + " runs; minimum " +
            format_seconds(report.wall_spread.minimum) + ", mean " +
            format_seconds(report.wall_spread.mean) + ")";
  }
  if (report.reference_wall > 0) {
    text += ", unsharded model: " + format_seconds(report.reference_wall);
  }
  return text + "\n" + excuse_of(report) + run_verdict(report) + "\n";
}

std::string run_json(const RunReport& report, const RunJob& job) {
  nlohmann::ordered_json j = {{"format", "autopar-run"},
                              {"version", 1},
                              {"ranks", report.ranks},
                              {"ranks_are", report.ranks_are},
                              {"passed", report.passed}};
  j["outputs"] = nlohmann::ordered_json::array();
  for (const OutputComparison& o : report.outputs) {
    j["outputs"].push_back({{"name", o.name},
                            {"max_absolute_error", o.max_absolute_error},
                            {"max_relative_error", o.max_relative_error},
                            {"nan_elements", o.nan_elements},
                            {"excused_elements", o.excused_elements},
                            {"jump", o.jump},
                            {"criterion", o.criterion},
                            {"against", o.against},
                            {"matches", o.matches},
                            {"problem", o.problem}});
  }
  j["times"] = nlohmann::ordered_json::array();
  for (const TimedKind& t : report.times) {
    j["times"].push_back({{"kind", t.kind},
                          {"collective", t.collective},
                          {"calls_per_rank", t.count},
                          {"seconds_per_rank", t.seconds},
                          {"sent_bytes_per_rank", t.bytes}});
    if (job.request.repeat > 0) j["times"].back()["seconds_per_run"] = spread_json(t.spread);
  }
  j["rank_times"] = rank_json(report);
  j["timed_runs"] = report.timed_runs;
  if (job.request.repeat > 0) j["wall_seconds_per_run"] = spread_json(report.wall_spread);
  if (job.prediction) {
    j["prediction"] = prediction_json(*job.prediction, report, job.request.steps);
  }
  j["warnings"] = report.warnings;
  j["wall_seconds"] = report.wall;
  j["reference_wall_seconds"] = report.reference_wall;
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace autopar::cli
