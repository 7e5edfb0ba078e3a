#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <tuple>

#include "autopar/report.hpp"
#include "report/contradiction.hpp"
#include "report/propagation.hpp"
#include "report/unit.hpp"
#include "support/counted.hpp"

namespace autopar {

std::string most_above_optimum(double gap) {
  const double times = 1 / (1 - std::min(gap, 1.0));
  char text[64];
  if (times < 1.1) {
    std::snprintf(text, sizeof text, "at most %.3g %% above the optimum", (times - 1) * 100);
  } else {
    std::snprintf(text, sizeof text, "at most %.3g x the optimum", times);
  }
  return text;
}

namespace {

std::string price(const Report& r, double value) { return format_price(value, r.cost_model); }

std::string head(const Report& r) {
  std::string text = r.model + ": " + std::to_string(r.ops) + " ops, " +
                     format_count(r.parameter_count) + " parameters (" +
                     format_bytes(static_cast<double>(r.parameter_bytes)) + ")\n";
  text += r.cluster + ": " + std::to_string(r.devices) + " devices, mesh " + to_text(r.mesh) + " (";
  for (std::size_t a = 0; a < r.mesh.axes.size(); ++a) {
    text += (a ? " x " : "") + r.mesh.axes[a].name + "=" + std::to_string(r.mesh.axes[a].size);
  }
  text += ")\n";
  if (unit_of(r.cost_model) != "seconds") {
    text += "cost model " + r.cost_model + ": costs are in " + unit_of(r.cost_model) +
            ", not seconds\n";
  }
  return text + "\n";
}

// The bound is one over other meshes than the plan's own.
std::string verdict_on_others(const Report& r) {
  const std::string least = price(r, r.lower_bound);
  return (r.gap > 0 ? "no plan on the meshes tried is below " + least
                    : "below every plan on the meshes tried") +
         "; not proven on its own mesh " + to_text(r.mesh) +
         (r.interrupted ? "; stopped early" : "");
}

// Of which the bound says nothing.
std::string meshes_text(std::size_t count, const char* why) {
  if (count == 0) return "";
  return ", " + counted(count, "mesh", "meshes") + " " + why;
}

std::string verdict(const Report& r) {
  if (!r.bounded && r.interrupted) return "stopped early, no bound";
  if (!r.bounded && r.propagation) return "propagated, no bound";
  if (!r.bounded) return r.searcher == "given" ? "as given, no bound" : "no bound";
  if (r.proven) {
    return std::string("proven optimal over the meshes tried") +
           (r.meshes_left_out > 0 ? ", " + std::to_string(r.meshes_left_out) + " left out" : "");
  }
  if (!r.bounds_own_mesh) return verdict_on_others(r);
  if (!contradiction(r.lower_bound, r.seconds).empty()) {
    return "BELOW ITS BOUND of " + price(r, r.lower_bound);
  }
  return most_above_optimum(r.gap) + " (lower bound " + price(r, r.lower_bound) + ")" +
         (r.interrupted ? "; stopped early" : "") + meshes_text(r.meshes_not_tried, "not tried") +
         meshes_text(r.meshes_left_out, "left out");
}

// What would help, where the search ended without a proof.
std::string end_of_search(const Report& r) {
  std::string text;
  if (r.ended_by == "gap") text = "the gap that was asked for is reached";
  if (r.ended_by == "interrupt") text = "it was interrupted";
  if (r.ended_by == "time limit") text = "the time limit was reached; a longer one may find more";
  if (r.ended_by == "effort") {
    text =
        "the effort of the search is spent; --time-limit 2m goes on for so long, --gap 0.5% until "
        "the plan is so close to the bound";
  }
  return text.empty() ? "" : "  ended: " + text + "\n\n";
}

std::string plans(const Report& r) {
  TextTable table;
  table.right_aligned = {false, true, true, true, false};
  table.rows = {{"plan", price_word(r.cost_model), "vs this", "memory/device", ""}};
  table.rows.push_back({r.searcher, price(r, r.seconds), "1.00 x",
                        format_bytes(static_cast<double>(r.memory.total)), verdict(r)});
  for (const Baseline& b : r.baselines) {
    if (!b.found) {
      table.rows.push_back({b.name, "-", "-", "-", "not possible"});
      continue;
    }
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f x", r.seconds > 0 ? b.seconds / r.seconds : 1.0);
    table.rows.push_back({b.name, price(r, b.seconds), ratio,
                          format_bytes(static_cast<double>(b.memory_bytes)),
                          b.fits ? "" : "does not fit"});
  }
  return to_text(table) + "\n";
}

constexpr std::size_t kTemplatesShown = 10;

// The best templates of the searcher uniform, and those that are faster and do not fit.
std::string templates(const Report& r) {
  TextTable table;
  table.right_aligned = {false, true, true, true, false};
  table.rows = {{"template", price_word(r.cost_model), "vs this", "memory/device", ""}};
  std::size_t shown = 0;
  for (const SearcherTrial& t : r.picked.tried) {
    const bool is_faster = !t.found && t.cost > 0 && t.cost < r.seconds;
    if (!is_faster && (!t.found || shown == kTemplatesShown)) continue;
    shown += t.found ? 1 : 0;
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f x", r.seconds > 0 ? t.cost / r.seconds : 1.0);
    table.rows.push_back({t.searcher, price(r, t.cost), ratio,
                          format_bytes(static_cast<double>(t.memory)),
                          t.found ? "" : "does not fit"});
  }
  return to_text(table) + "  " + r.picked.why + "\n\n";
}

// What auto tried, and why it took what it took.
std::string picked(const Report& r) {
  if (r.picked.searcher.empty()) return "";
  if (r.searcher == "uniform") return templates(r);
  std::string text;
  for (const SearcherTrial& t : r.picked.tried) {
    // Not found, a cost is what a plan would at least have.
    const std::string cost = t.found ? price(r, t.cost) : t.cost > 0 ? "not cheaper" : "no plan";
    text += (text.empty() ? "" : ", ") + t.searcher + " " + cost;
  }
  return "  auto took the plan of " + r.picked.searcher + ", the cheapest of " + text + "; " +
         r.picked.why + "\n\n";
}

// What a step does that sends nothing, since its name is no collective's that users know.
std::string local_step(const std::string& kind) {
  if (kind == name_of(CollectiveKind::kShardSlice)) return "keeps a rank's own part";
  if (kind == name_of(CollectiveKind::kMakePartial)) {
    return "starts a partial sum: one rank of a group keeps its values, the others put zeros";
  }
  return "";
}

// How long each stream is busy.
std::string streams(const Report& r) {
  if (!r.step) return "";
  Seconds exposed = 0;
  for (const Seconds waited : r.step->exposed) exposed += waited;
  std::string text = "  profile " + r.profile + ": compute is busy for " +
                     price(r, r.step->compute) + ", collectives for " +
                     price(r, r.step->communication) + " (compute waits for " + price(r, exposed);
  for (const auto& [tier, seconds] : r.links) text += "; " + tier + " " + price(r, seconds);
  return text + "), the host that issues them for " + price(r, r.step->host) + "\n\n";
}

std::string parts(const Report& r) {
  TextTable table;
  table.right_aligned = {false, false, true, true, true, true, false};
  table.rows = {{"where the " + price_word(r.cost_model) + " goes", "axes", "count",
                 price_word(r.cost_model), "sent/device", r.step ? "compute waits" : "", ""}};
  table.rows.push_back({"compute", "", std::to_string(r.ops), price(r, r.compute), "", "", ""});
  for (const CollectiveSummary& c : r.collectives) {
    table.rows.push_back({c.kind, c.axes, std::to_string(c.count), price(r, c.seconds),
                          c.sent_bytes > 0 ? format_bytes(c.sent_bytes) : "",
                          c.exposed > 0 ? price(r, c.exposed) : "", local_step(c.kind)});
  }
  if (r.step) {
    const auto [what, by] = beside_streams(r.compute + r.communication, r.seconds);
    table.rows.push_back({what, "", "", by, "", "", ""});
  }
  table.rows.push_back({"total", "", "", price(r, r.seconds), "", "", ""});
  return to_text(table) + "\n";
}

std::string memory(const Report& r) {
  const auto bytes = [](Bytes b) { return format_bytes(static_cast<double>(b)); };
  std::string text = "  memory peak " + bytes(r.memory.total) + " per device";
  if (r.upper_memory > r.memory.total) {
    text += ", up to " + bytes(r.upper_memory) + " with the runtime,";
  }
  if (r.memory_limit > 0) text += " of " + bytes(r.memory_limit);
  if (!r.memory_op.empty()) text += ", during " + r.memory_op;
  if (r.memory_parts) {
    const MemoryParts& parts = *r.memory_parts;
    text += "\n    parameters " + bytes(parts.parameters) +
            (parts.accumulators > 0 ? ", accumulators " + bytes(parts.accumulators) : "") +
            ", optimizer states " + bytes(parts.states) + ", kept activations " +
            bytes(parts.kept) + ",\n    temporaries " + bytes(parts.temporaries) + ", data " +
            bytes(parts.data) + ", constants " + bytes(parts.constants) + "\n";
  } else {
    text += "\n    inputs and parameters " + bytes(r.memory.parameters) + ", activations " +
            bytes(r.memory.activations) + ", constants " + bytes(r.memory.constants) +
            ", reshards " + bytes(r.memory.reshards) + "\n";
  }
  return text +
         (r.repeated_ops == 0 ? ""
                              : "    " + std::to_string(r.repeated_ops) +
                                    " ops repeated in the backward pass (recompute " + r.recompute +
                                    "), so that fewer activations are kept\n") +
         "\n";
}

// Samples and tokens in a second, and how much of the devices' peak the model itself uses.
std::string training(const Report& r) {
  if (!r.training || !(r.seconds > 0)) return "";
  const TrainingWork& work = *r.training;
  std::string text = "  " + training_line(work, r.seconds, r.devices) + "\n";
  if (work.micro_batches > 1) {
    text += "    in " + std::to_string(work.micro_batches) +
            " micro-batches: one pass over each, gradients summed, one update\n";
    if (work.copies > 1) {
      text += "    " + std::to_string(work.copies) +
              " passes at a time, interleaved: collectives of one beside the compute of another\n";
    }
  }
  if (work.zero != "auto") text += "    parameters and states as --zero " + work.zero + " asks\n";
  return text + "\n";
}

// What else was planned: passes and recomputation, and what came of each.
std::string tried(const Report& r) {
  if (r.tried.size() < 2) return "";
  std::string text = "  planned as";
  for (const PlanTrial& trial : r.tried) {
    const bool first = &trial == &r.tried.front();
    text += (first ? " " : ", ") + counted(trial.micro_batches, "pass", "passes") +
            (trial.recompute == "none" ? "" : ", recompute " + trial.recompute) +
            (trial.moving ? ", with moving parts" : "") +
            (trial.of_parts ? ", of like parts" : "") + ": " +
            (trial.cost > 0            ? format_price(trial.cost, r.cost_model)
             : trial.only_cheaper_ones ? "nothing cheaper"
                                       : "nothing fits");
  }
  return text + "\n\n";
}

// Layers repeat: rows that differ in their names only become one, under the name of the first, with
// the number of them.
template <class Row, class KeyOf>
std::vector<std::pair<Row, int>> merged(const std::vector<Row>& rows, KeyOf key_of) {
  std::map<decltype(key_of(rows.front())), std::size_t> place;
  std::vector<std::pair<Row, int>> result;
  for (const Row& row : rows) {
    const auto [at, is_new] = place.try_emplace(key_of(row), result.size());
    if (is_new) result.emplace_back(row, 0);
    ++result[at->second].second;
  }
  return result;
}

std::string with_count(const std::string& name, std::size_t width, int count) {
  return shortened(name, width) + (count > 1 ? " and " + std::to_string(count - 1) + " alike" : "");
}

std::string costliest_ops(const Report& r, std::size_t rows) {
  auto ops = merged(r.op_costs, [](const OpSummary& op) {
    return std::tie(op.type, op.in_strategy, op.assignment, op.compute, op.communication);
  });
  std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) {
    return (a.first.compute + a.first.communication) * a.second >
           (b.first.compute + b.first.communication) * b.second;
  });
  TextTable table;
  table.right_aligned = {false, false, false, true, true};
  table.rows = {{"costliest ops", "type", "split", "compute", "communication"}};
  for (std::size_t i = 0; i < ops.size() && i < rows; ++i) {
    const auto& [op, count] = ops[i];
    table.rows.push_back({with_count(op.name, 36, count), op.type,
                          op.in_strategy + (op.assignment.empty() ? "" : " " + op.assignment),
                          price(r, op.compute * count), price(r, op.communication * count)});
  }
  return to_text(table);
}

std::string costliest_reshards(const Report& r, std::size_t rows) {
  if (r.reshards.empty()) return "";
  auto reshards = merged(r.reshards, [](const ReshardSummary& s) {
    return std::tie(s.from, s.to, s.steps, s.seconds, s.sent_bytes);
  });
  std::stable_sort(reshards.begin(), reshards.end(), [](const auto& a, const auto& b) {
    return a.first.seconds * a.second > b.first.seconds * b.second;
  });
  TextTable table;
  table.right_aligned = {false, false, false, true, true};
  table.rows = {
      {"costliest reshards", "from -> to", "by", price_word(r.cost_model), "sent/device"}};
  for (std::size_t i = 0; i < reshards.size() && i < rows; ++i) {
    const auto& [s, count] = reshards[i];
    std::string steps;
    for (const std::string& step : s.steps) steps += (steps.empty() ? "" : "; ") + step;
    table.rows.push_back({with_count(s.tensor, 28, count), s.from + " -> " + s.to, steps,
                          price(r, s.seconds * count), format_bytes(s.sent_bytes * count)});
  }
  return "\n" + to_text(table);
}

std::string end_of(const MeshTrial& t) {
  std::string text = t.end == TrialEnd::kPlan       ? ""
                     : t.end == TrialEnd::kPruned   ? "pruned: cannot beat the best by enough"
                     : t.end == TrialEnd::kTooLarge ? "left out"
                                                    : name_of(t.end);
  if (!t.why.empty()) text += ": " + t.why;
  if (t.stopped) text += text.empty() ? "stopped early" : "; stopped early";
  return text;
}

std::string meshes(const Report& r) {
  if (r.trials.size() < 2) return "";
  TextTable table;
  table.right_aligned = {false, true, true, false};
  table.rows = {{"mesh", price_word(r.cost_model), "lower bound", ""}};
  for (const MeshTrial& t : r.trials) {
    const bool has_bound = t.end != TrialEnd::kNotTried && t.end != TrialEnd::kPinsNotKept &&
                           t.end != TrialEnd::kTooLarge;
    table.rows.push_back({to_text(t.mesh), t.end == TrialEnd::kPlan ? price(r, t.cost) : "-",
                          has_bound ? price(r, t.lower_bound) : "-", end_of(t)});
  }
  return "\n" + to_text(table);
}

std::string phases(const Report& r) {
  if (r.phases.empty()) return "";
  std::string text;
  Seconds total = 0;
  for (const auto& [phase, seconds] : r.phases) {
    total += seconds;
    text += ", " + phase + " " + format_seconds(seconds);
  }
  return "\n  took " + format_seconds(total) + ": " + text.substr(2) + "\n";
}

}  // namespace

std::string to_table(const Report& report, std::size_t rows) {
  std::string text = head(report) + plans(report) + end_of_search(report) + picked(report) +
                     parts(report) + streams(report) + memory(report) + training(report) +
                     tried(report) + propagation_table(report, rows) + costliest_ops(report, rows) +
                     costliest_reshards(report, rows) + meshes(report);
  text += phases(report);
  for (const std::string& warning : report.warnings) text += "\nwarning: " + warning;
  return report.warnings.empty() ? text : text + "\n";
}

}  // namespace autopar
