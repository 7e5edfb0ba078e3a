#include "report/propagation.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "report/unit.hpp"

namespace autopar {

namespace {

using Json = nlohmann::ordered_json;

Json redistribution_json(const Redistribution& r, const std::string& cost_model) {
  return {{price_key("", cost_model), r.seconds},
          {"sent_bytes", r.sent_bytes},
          {"reshards", r.reshards}};
}

Redistribution redistribution_of(const nlohmann::json& j, const std::string& cost_model) {
  return {price_at(j, "", cost_model), j.at("sent_bytes").get<double>(),
          j.at("reshards").get<int>()};
}

Json end_json(const ConflictEnd& end) {
  return {{"where", end.where}, {"spec", end.spec}, {"because", end.because}};
}

ConflictEnd end_of(const nlohmann::json& j) {
  return {j.at("where").get<std::string>(), j.at("spec").get<std::string>(),
          j.at("because").get<std::string>()};
}

constexpr Conflict::Kind kKinds[] = {Conflict::Kind::kPins, Conflict::Kind::kMeeting,
                                     Conflict::Kind::kRule};

std::string joined(const std::vector<std::string>& texts, std::size_t most, const char* between) {
  std::string text;
  for (std::size_t i = 0; i < texts.size() && i < most; ++i) {
    text += (i ? between : "") + texts[i];
  }
  if (texts.size() > most) text += " and " + std::to_string(texts.size() - most) + " more";
  return text;
}

std::string amounts(const Propagation& p, const std::string& cost_model) {
  TextTable table;
  table.right_aligned = {false, true, true, true, false};
  table.rows = {{"redistribution", "reshards", price_word(cost_model), "sent/device", ""}};
  const auto add = [&](const char* name, const Redistribution& r, const std::string& remark) {
    table.rows.push_back({name, std::to_string(r.reshards), format_price(r.seconds, cost_model),
                          format_bytes(r.sent_bytes), remark});
  };
  std::string above;
  if (p.exact && p.exact->seconds > 0) {
    char text[64];
    std::snprintf(text, sizeof text,
                  p.exact_gap > 0 ? "%.3g x the least found" : "%.3g x the least",
                  p.breadth_first.seconds / p.exact->seconds);
    above = text;
  }
  add("breadth first", p.breadth_first, above);
  if (p.exact) {
    const bool proven = p.exact_gap <= 0;
    char text[64];
    // The gap is a part of what was found.
    std::snprintf(text, sizeof text, "at most %.3g x the least",
                  1 / (1 - std::min(p.exact_gap, 1.0)));
    add(proven ? "exact (this plan)" : "least found (this plan)", *p.exact,
        proven ? "proven least" : text);
  }
  return to_text(table);
}

std::string counts(const std::vector<Conflict>& conflicts) {
  const char* const what[] = {"between two pins", "where what follows different pins meets",
                              "where no split of an op keeps the layout"};
  std::string text;
  for (Conflict::Kind kind : kKinds) {
    const auto n = std::count_if(conflicts.begin(), conflicts.end(),
                                 [&](const Conflict& c) { return c.kind == kind; });
    if (n == 0) continue;
    text +=
        (text.empty() ? "" : ", ") + std::to_string(n) + " " + what[static_cast<std::size_t>(kind)];
  }
  return text.empty() ? "none" : text;
}

std::string end_text(const ConflictEnd& end) {
  return shortened(end.where, 30) + " " + end.spec + " (" + shortened(end.because, 40) + ")";
}

std::string conflicts_table(const std::vector<Conflict>& conflicts, std::size_t rows,
                            const std::string& cost_model) {
  TextTable table;
  table.right_aligned = {false, false, false, false, false, true, true};
  table.rows = {
      {"conflict", "tensor", "from", "to", "inserted", price_word(cost_model), "sent/device"}};
  for (std::size_t i = 0; i < conflicts.size() && i < rows; ++i) {
    const Conflict& c = conflicts[i];
    const std::string inserted =
        (c.via.empty() ? "" : c.via + "; ") + joined(c.steps, c.steps.size(), "; ");
    table.rows.push_back({name_of(c.kind), shortened(c.tensor, 28), end_text(c.from),
                          end_text(c.to), inserted, format_price(c.seconds, cost_model),
                          format_bytes(c.sent_bytes)});
  }
  std::string text = to_text(table);
  if (conflicts.size() > rows) {
    text += "  and " + std::to_string(conflicts.size() - rows) + " more (report.json has all)\n";
  }
  return text;
}

}  // namespace

std::string propagation_table(const Report& report, std::size_t rows) {
  if (!report.propagation) return "";
  const Propagation& p = *report.propagation;
  std::string text =
      "  propagated from " + joined(p.seeds, 5, ", ") + " to " + std::to_string(p.reached) + " ops";
  if (p.unreached > 0) text += "; " + std::to_string(p.unreached) + " ops that no pin reaches";
  text += "\n\n" + amounts(p, report.cost_model) + "\n  conflicts: " + counts(p.conflicts) + "\n\n";
  if (!p.conflicts.empty()) text += conflicts_table(p.conflicts, rows, report.cost_model) + "\n";
  return text;
}

void add_propagation(const Report& report, std::size_t rows, Json& document) {
  if (!report.propagation) return;
  const Propagation& p = *report.propagation;
  Json& j = document["propagation"];
  j = {{"seeds", p.seeds}, {"reached", p.reached}, {"unreached", p.unreached}};
  j["breadth_first"] = redistribution_json(p.breadth_first, report.cost_model);
  if (p.exact) {
    j["exact"] = redistribution_json(*p.exact, report.cost_model);
    j["exact_gap"] = p.exact_gap;
  }
  Json& list = document["conflicts"];
  list = Json::array();
  for (std::size_t i = 0; i < p.conflicts.size() && (rows == 0 || i < rows); ++i) {
    const Conflict& c = p.conflicts[i];
    list.push_back({{"kind", name_of(c.kind)},
                    {"tensor", c.tensor},
                    {"from", end_json(c.from)},
                    {"to", end_json(c.to)},
                    {"via", c.via.empty() ? Json() : Json(c.via)},
                    {"steps", c.steps},
                    {price_key("", report.cost_model), c.seconds},
                    {"sent_bytes", c.sent_bytes}});
  }
}

std::optional<Propagation> propagation_of(const nlohmann::json& document,
                                          const std::string& cost_model) {
  if (!document.contains("propagation")) return std::nullopt;
  const nlohmann::json& j = document.at("propagation");
  Propagation p;
  p.seeds = j.at("seeds").get<std::vector<std::string>>();
  p.reached = j.at("reached").get<std::size_t>();
  p.unreached = j.at("unreached").get<std::size_t>();
  p.breadth_first = redistribution_of(j.at("breadth_first"), cost_model);
  if (j.contains("exact")) {
    p.exact = redistribution_of(j.at("exact"), cost_model);
    p.exact_gap = j.at("exact_gap").get<double>();
  }
  for (const nlohmann::json& c : document.at("conflicts")) {
    Conflict conflict;
    const auto kind = c.at("kind").get<std::string>();
    for (Conflict::Kind k : kKinds) {
      if (kind == name_of(k)) conflict.kind = k;
    }
    conflict.tensor = c.at("tensor").get<std::string>();
    conflict.from = end_of(c.at("from"));
    conflict.to = end_of(c.at("to"));
    if (!c.at("via").is_null()) conflict.via = c.at("via").get<std::string>();
    conflict.steps = c.at("steps").get<std::vector<std::string>>();
    conflict.seconds = price_at(c, "", cost_model);
    conflict.sent_bytes = c.at("sent_bytes").get<double>();
    p.conflicts.push_back(std::move(conflict));
  }
  return p;
}

}  // namespace autopar
