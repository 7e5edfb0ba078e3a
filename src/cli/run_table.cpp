#include "cli/run_table.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "autopar/files.hpp"
#include "autopar/sha256.hpp"
#include "json/parse.hpp"

namespace autopar::cli {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownRanks = 16;

struct Row {
  std::string kind;
  Seconds predicted = 0;
  Seconds measured = 0;
};

// The whole, what does not communicate, and each kind of collective that either side has.
std::vector<Row> rows_of(const Prediction& prediction, const RunReport& report, int steps) {
  const double share = 1.0 / steps;
  std::vector<Row> rows = {{"one step", prediction.total, share * report.wall}};
  if (!prediction.compute) return rows;
  rows.push_back({"local ops", *prediction.compute, 0});
  std::map<std::string, Row> collectives;
  for (const auto& [kind, seconds] : prediction.collectives) {
    collectives[kind] = {kind, seconds, 0};
  }
  for (const TimedKind& timed : report.times) {
    if (!timed.collective) {
      rows[1].measured += share * timed.seconds;
      continue;
    }
    Row& row = collectives[timed.kind];
    row.kind = timed.kind;
    row.measured += share * timed.seconds;
  }
  for (auto& [kind, row] : collectives) rows.push_back(std::move(row));
  return rows;
}

std::string ratio_text(const Row& row) {
  if (!(row.predicted > 0) || !(row.measured > 0)) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", row.measured / row.predicted);
  return text;
}

// Nothing: it is no report.
std::optional<Prediction> of_pipeline(const nlohmann::json& report) {
  try {
    Prediction prediction;
    prediction.cluster = report.at("cluster").at("name").get<std::string>();
    prediction.total = report.at("cost").at("seconds").get<Seconds>();
    return prediction;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::string percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", whole > 0 ? 100 * part / whole : 0);
  return text;
}

}  // namespace

std::optional<Prediction> read_prediction(const std::string& folder,
                                          const std::string& strategy_sha256) {
  const std::filesystem::path path = folder;
  const auto strategy = read_file((path / "strategy.json").string());
  if (!strategy || sha256_hex(*strategy) != strategy_sha256) return std::nullopt;
  const auto text = read_file((path / "report.json").string());
  if (!text) return std::nullopt;
  const std::string file = (path / "report.json").string();
  const auto json = parse_json(*text, file);
  if (json && json->contains("pipeline")) return of_pipeline(*json);
  const auto report = report_of_json(*text, file);
  if (!report || report->cost_model != "roofline") return std::nullopt;
  Prediction prediction{report->cluster, report->seconds, report->compute, {}};
  for (const CollectiveSummary& summary : report->collectives) {
    prediction.collectives[summary.kind] += summary.seconds;
  }
  return prediction;
}

std::string prediction_table(const Prediction& prediction, const RunReport& report, int steps) {
  TextTable table{
      {{"predicted for '" + prediction.cluster + "'", "predicted", "measured", "ratio"}},
      {false, true, true, true}};
  for (const Row& row : rows_of(prediction, report, steps)) {
    table.rows.push_back(
        {row.kind, format_seconds(row.predicted), format_seconds(row.measured), ratio_text(row)});
  }
  return to_text(table);
}

Json prediction_json(const Prediction& prediction, const RunReport& report, int steps) {
  Json json = {{"cluster", prediction.cluster}, {"kinds", Json::array()}};
  for (const Row& row : rows_of(prediction, report, steps)) {
    const bool comparable = row.predicted > 0 && row.measured > 0;
    json["kinds"].push_back(
        {{"kind", row.kind},
         {"predicted_seconds", row.predicted},
         {"measured_seconds", row.measured},
         {"ratio", comparable ? Json(row.measured / row.predicted) : Json(nullptr)}});
  }
  return json;
}

std::string rank_table(const RunReport& report) {
  TextTable table{{{"rank", "a run", "local ops", "collectives", "waiting", "moving", "between ops",
                    "run / local"}},
                  {true, true, true, true, true, true, true, true}};
  for (std::size_t r = 0; r < std::min(report.rank_times.size(), kShownRanks); ++r) {
    const RankTimes& times = report.rank_times[r];
    const bool known = times.waiting >= 0;
    char ratio[32] = "";
    if (times.local > 0) std::snprintf(ratio, sizeof ratio, "%.2f", times.wall / times.local);
    table.rows.push_back(
        {std::to_string(r), format_seconds(times.wall), format_seconds(times.local),
         format_seconds(times.collectives), known ? format_seconds(times.waiting) : "",
         known ? format_seconds(times.collectives - times.waiting) : "",
         percent(times.wall - times.local - times.collectives, times.wall), ratio});
  }
  if (report.rank_times.size() > kShownRanks) {
    table.rows.push_back(
        {"and " + std::to_string(report.rank_times.size() - kShownRanks) + " more"});
  }
  return to_text(table);
}

Json rank_json(const RunReport& report) {
  Json json = Json::array();
  for (const RankTimes& times : report.rank_times) {
    const bool known = times.waiting >= 0;
    json.push_back(
        {{"wall_seconds", times.wall},
         {"local_seconds", times.local},
         {"collective_seconds", times.collectives},
         {"waiting_seconds", known ? Json(times.waiting) : Json(nullptr)},
         {"moving_seconds", known ? Json(times.collectives - times.waiting) : Json(nullptr)}});
  }
  return json;
}

Json spread_json(const Spread& spread) {
  return {{"minimum", spread.minimum}, {"median", spread.median}, {"mean", spread.mean}};
}

}  // namespace autopar::cli
