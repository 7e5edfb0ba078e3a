// What `run` says of times: where they went, and what had been predicted.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "autopar/exec.hpp"
#include "autopar/report.hpp"

namespace autopar::cli {

// What the search has said that one step of the plan takes.
struct Prediction {
  std::string cluster;  // its name: what the seconds are about
  Seconds total = 0;
  // Of local ops, and of collectives by kind; not known of pipelines, whose stages wait for each
  // other.
  std::optional<Seconds> compute;
  std::map<std::string, Seconds> collectives;
};
// Of the report in `folder`, if that belongs to the plan (by the strategy beside it) and its prices
// are seconds. Nothing else; without a report there is nothing to say.
std::optional<Prediction> read_prediction(const std::string& folder,
                                          const std::string& strategy_sha256);

// Predicted and measured side by side; `steps` of one run.
std::string prediction_table(const Prediction& prediction, const RunReport& report, int steps);
nlohmann::ordered_json prediction_json(const Prediction& prediction, const RunReport& report,
                                       int steps);

// By rank: local ops, collectives (waiting, moving), the rest.
std::string rank_table(const RunReport& report);
nlohmann::ordered_json rank_json(const RunReport& report);
nlohmann::ordered_json spread_json(const Spread& spread);

}  // namespace autopar::cli
