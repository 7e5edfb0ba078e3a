#include <cstdio>

#include "autopar/report.hpp"

namespace autopar {

namespace {

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", fraction * 100);
  return text;
}

std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

std::string head(const Report& r) {
  std::string text = r.model + ": " + std::to_string(r.ops) + " ops, " +
                     format_count(r.parameter_count) + " parameters (" +
                     format_bytes(static_cast<double>(r.parameter_bytes)) + ")\n";
  text += r.cluster + ": " + std::to_string(r.devices) + " devices, mesh " + to_text(r.mesh) + " (";
  for (std::size_t a = 0; a < r.mesh.axes.size(); ++a) {
    text += (a ? " x " : "") + r.mesh.axes[a].name + "=" + std::to_string(r.mesh.axes[a].size);
  }
  return text + ")\n\n";
}

std::string verdict(const Report& r) {
  if (!r.bounded) return r.searcher == "given" ? "as given, no bound" : "a baseline, no bound";
  if (r.proven) return "proven optimal over the meshes tried";
  return "at most " + percent(r.gap) + " above the optimum (lower bound " +
         format_seconds(r.lower_bound) + ")" + (r.interrupted ? "; stopped early" : "");
}

std::string plans(const Report& r) {
  TextTable table;
  table.right_aligned = {false, true, true, true, false};
  table.rows = {{"plan", "time", "vs this", "memory/device", ""}};
  table.rows.push_back({r.searcher, format_seconds(r.seconds), "1.00 x",
                        format_bytes(static_cast<double>(r.memory.total)), verdict(r)});
  for (const Baseline& b : r.baselines) {
    if (!b.found) {
      table.rows.push_back({b.name, "-", "-", "-", "not possible"});
      continue;
    }
    char ratio[32];
    std::snprintf(ratio, sizeof ratio, "%.2f x", r.seconds > 0 ? b.seconds / r.seconds : 1.0);
    table.rows.push_back({b.name, format_seconds(b.seconds), ratio,
                          format_bytes(static_cast<double>(b.memory_bytes)),
                          b.fits ? "" : "does not fit"});
  }
  return to_text(table) + "\n";
}

std::string parts(const Report& r) {
  TextTable table;
  table.right_aligned = {false, false, true, true, true};
  table.rows = {{"where the time goes", "axes", "count", "time", "sent/device"}};
  table.rows.push_back({"compute", "", std::to_string(r.ops), format_seconds(r.compute), ""});
  for (const CollectiveSummary& c : r.collectives) {
    table.rows.push_back({c.kind, c.axes, std::to_string(c.count), format_seconds(c.seconds),
                          c.sent_bytes > 0 ? format_bytes(c.sent_bytes) : ""});
  }
  table.rows.push_back({"total", "", "", format_seconds(r.seconds), ""});
  return to_text(table) + "\n";
}

std::string memory(const Report& r) {
  const auto bytes = [](Bytes b) { return format_bytes(static_cast<double>(b)); };
  std::string text = "  memory peak " + bytes(r.memory.total) + " per device";
  if (r.memory_limit > 0) text += " of " + bytes(r.memory_limit);
  return text + " (inputs and parameters " + bytes(r.memory.parameters) + ", activations " +
         bytes(r.memory.activations) + ", constants " + bytes(r.memory.constants) + ", reshards " +
         bytes(r.memory.reshards) + ") during " + r.memory_op + "\n\n";
}

std::string costliest_ops(const Report& r, std::size_t rows) {
  TextTable table;
  table.right_aligned = {false, false, false, true, true};
  table.rows = {{"costliest ops", "type", "split", "compute", "communication"}};
  for (std::size_t i = 0; i < r.op_costs.size() && i < rows; ++i) {
    const OpSummary& op = r.op_costs[i];
    table.rows.push_back({shortened(op.name, 44), op.type,
                          op.in_strategy + (op.assignment.empty() ? "" : " " + op.assignment),
                          format_seconds(op.compute), format_seconds(op.communication)});
  }
  return to_text(table);
}

std::string costliest_reshards(const Report& r, std::size_t rows) {
  if (r.reshards.empty()) return "";
  TextTable table;
  table.right_aligned = {false, false, false, false, true, true};
  table.rows = {{"costliest reshards", "for", "from -> to", "by", "time", "sent/device"}};
  for (std::size_t i = 0; i < r.reshards.size() && i < rows; ++i) {
    const ReshardSummary& s = r.reshards[i];
    std::string steps;
    for (const std::string& step : s.steps) steps += (steps.empty() ? "" : "; ") + step;
    table.rows.push_back({shortened(s.tensor, 28), shortened(s.reader, 28), s.from + " -> " + s.to,
                          steps, format_seconds(s.seconds), format_bytes(s.sent_bytes)});
  }
  return "\n" + to_text(table);
}

std::string meshes(const Report& r) {
  if (r.trials.size() < 2) return "";
  TextTable table;
  table.right_aligned = {false, true, true, false};
  table.rows = {{"mesh", "time", "lower bound", ""}};
  for (const MeshTrial& t : r.trials) {
    const char* what = t.pruned ? "cannot beat the best" : t.feasible ? "" : "nothing fits";
    table.rows.push_back({to_text(t.mesh), t.feasible ? format_seconds(t.cost) : "-",
                          format_seconds(t.lower_bound), what});
  }
  return "\n" + to_text(table);
}

}  // namespace

std::string to_table(const Report& report, std::size_t rows) {
  std::string text = head(report) + plans(report) + parts(report) + memory(report) +
                     costliest_ops(report, rows) + costliest_reshards(report, rows) +
                     meshes(report);
  for (const std::string& warning : report.warnings) text += "\nwarning: " + warning;
  return report.warnings.empty() ? text : text + "\n";
}

}  // namespace autopar
