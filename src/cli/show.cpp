// autopar show: what a file is shows in its content.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/report.hpp"
#include "cli/inputs.hpp"
#include "cli/show_json.hpp"

namespace autopar::cli {

namespace {

struct ShowOptions {
  std::string file;
  bool ops = false;
  std::size_t rows = 8;
};

std::string joined(const std::vector<std::vector<std::int64_t>>& counts) {
  std::string text = "[";
  for (std::size_t i = 0; i < counts.size(); ++i) text += (i ? "," : "") + to_text(counts[i]);
  return text + "]";
}

std::string show_strategy_file(const StrategyFile& file) {
  std::string text = "strategy of " + file.model_name + " on " + file.cluster_name + ", searcher " +
                     file.searcher + "\nmesh";
  for (const auto& axis : file.mesh) text += " " + axis.name + "=" + std::to_string(axis.size);
  if (file.cost) {
    text += "\n" + format_seconds(file.cost->seconds) + ", lower bound " +
            format_seconds(file.cost->lower_bound_seconds) + ", " +
            format_bytes(static_cast<double>(file.cost->memory_bytes)) + " per device";
  }
  TextTable ops{{{"op", "assignment", "in_strategy", "out_strategy"}}, {}};
  for (const auto& [name, pin] : file.pins.ops) {
    std::string assignment;
    if (pin.assignment) {
      for (const auto& [axis, factor] : *pin.assignment) {
        assignment += (assignment.empty() ? "" : " ") + axis + ":" + factor;
      }
    }
    ops.rows.push_back({name, assignment, pin.in_strategy ? joined(*pin.in_strategy) : "",
                        pin.out_strategy ? joined(*pin.out_strategy) : ""});
  }
  TextTable values{{{"tensor", "spec", "hub", "output"}}, {}};
  for (const auto& [name, pin] : file.pins.values) {
    values.rows.push_back({name, pin.spec, pin.hub_spec, pin.output_spec});
  }
  return text + "\n\n" + to_text(ops) + "\n" + to_text(values);
}

Result<std::string> show_plan(const PlanFile& file, bool all_ops) {
  const Plan& plan = file.plan;
  std::string text = "plan for " + std::to_string(file.world_size) + " ranks, mesh " +
                     to_text(plan.mesh) + ", " + std::to_string(plan.program.ops.size()) +
                     " ops\n\n";
  TextTable boundary{{{"boundary", "kind", "type", "shape", "spec", "shape on a rank"}}, {}};
  const auto add = [&](const std::vector<BoundaryValue>& values, const char* kind) {
    for (const BoundaryValue& v : values) {
      boundary.rows.push_back({v.name, kind, name_of(v.dtype), to_text(v.shape),
                               to_text(v.spec, plan.mesh),
                               to_text(local_shape(v.spec, v.shape, plan.mesh))});
    }
  };
  add(plan.inputs, "input");
  add(plan.outputs, "output");
  AUTOPAR_TRY(collectives, collectives_of(plan));
  TextTable steps{{{"collective", "what", "on a rank", "sent/rank"}}, {false, false, true, true}};
  for (const ProgramCollective& c : collectives) {
    if (!communicates(c.collective.kind) && !all_ops) continue;
    const double bytes = static_cast<double>(c.input_bytes);
    steps.rows.push_back({plan.program.op(c.op).name, to_text(c.collective, plan.mesh),
                          format_bytes(bytes),
                          format_bytes(sent_bytes(c.collective, bytes, plan.mesh))});
  }
  text += to_text(boundary) + "\n" +
          (steps.rows.size() > 1 ? to_text(steps) : "  no communication between the ranks\n");
  return all_ops ? text + "\n" + to_text(plan.program) : text;
}

std::string format_of(const std::string& bytes) {
  const auto document = nlohmann::json::parse(bytes, nullptr, false);
  if (!document.is_object() || !document.contains("format")) return "";
  return document["format"].is_string() ? document["format"].get<std::string>() : "";
}

// Where a file is JSON, all of it; of any other file nothing, since plans can be large.
Result<std::string> read_json(const std::string& path) {
  char first = 0;
  if (std::ifstream(path) >> first && first != '{') return std::string();
  return read_file(path);
}

// Piece by piece.
bool holds(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  std::string piece;
  std::vector<char> block(std::size_t{1} << 20);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())) || file.gcount() > 0) {
    piece.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (piece.find(text) != std::string::npos) return true;
    piece.erase(0, piece.size() - std::min(piece.size(), text.size()));
  }
  return false;
}

Result<int> show(const ShowOptions& options, const CommonOptions& common) {
  AUTOPAR_TRY(path, find_cluster(options.file));
  AUTOPAR_TRY(bytes, read_json(path));
  const std::string format = format_of(bytes);
  if (format == "autopar-cluster") {
    AUTOPAR_TRY(file, read_cluster(path));
    std::cout << (common.json ? bytes : show_cluster(file.cluster));
    return 0;
  }
  if (format == "autopar-strategy") {
    AUTOPAR_TRY(file, read_strategy(path));
    std::cout << (common.json ? bytes : show_strategy_file(file));
    return 0;
  }
  if (format == "autopar-report") {
    AUTOPAR_TRY(report, report_of_json(bytes, path));
    std::cout << (common.json ? bytes : to_table(report, options.rows));
    return 0;
  }
  if (format == "autopar-price" || format == "autopar-run") {
    std::cout << bytes;
    return 0;
  }
  if (holds(path, "autopar.world_size")) {
    AUTOPAR_TRY(plan, read_plan(path));
    AUTOPAR_TRY(text, common.json ? show_plan_json(plan) : show_plan(plan, options.ops));
    std::cout << text;
    return 0;
  }
  AUTOPAR_TRY(dims, parse_dims(common.dims));
  ImportOptions import_options;
  import_options.dims = dims;
  AUTOPAR_TRY(model, import_model(path, import_options));
  std::cout << (common.json ? show_model_json(model, options.ops)
                            : show_graph(model.graph, options.ops));
  return 0;
}

}  // namespace

Run add_show(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<ShowOptions>();
  app.add_option("FILE", options->file, "model, cluster, strategy, plan or report")->required();
  app.add_flag("--ops", options->ops, "every op");
  app.add_option("--rows", options->rows, "costliest ops and reshards of a report to list");
  return [options, &common] { return show(*options, common); };
}

}  // namespace autopar::cli
