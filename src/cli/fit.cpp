// autopar fit.
#include "autopar/fit.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/profile_file.hpp"
#include "autopar/report.hpp"
#include "autopar/unfinished.hpp"
#include "cli/fit.hpp"
#include "cli/model_path.hpp"
#include "cli/outputs.hpp"
#include "planning/applied.hpp"
#include "planning/logging.hpp"
#include "planning/ready_made.hpp"

namespace autopar::cli {

namespace fs = std::filesystem;

namespace {

struct FitOptions {
  std::string table;
  std::string cluster;
  std::string profile;
  std::string only = "host_s,launch_s,matrix.fraction,memory.fraction";
  std::string output = "profile.json";
  std::string name = "fitted";
};

// A row of the table.
struct MeasuredPlan {
  std::string where;  // "runs.csv:3"
  std::string plan, model, cluster;
  std::int64_t batch = 0;  // 0: as the model says
  Seconds seconds = 0;
};

std::vector<std::string> cells_of(std::string line) {
  if (!line.empty() && line.back() == '\r') line.pop_back();
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      const bool doubled = quoted && i + 1 < line.size() && line[i + 1] == '"';
      if (doubled) cells.back() += line[++i];
      if (!doubled) quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  for (std::string& cell : cells) {
    const auto first = cell.find_first_not_of(' ');
    const auto last = cell.find_last_not_of(' ');
    cell = first == std::string::npos ? "" : cell.substr(first, last - first + 1);
  }
  return cells;
}

constexpr Seconds kLeastSeconds = 1e-9;  // of a measured step: what clocks tell apart, assumed

Status set_cell(MeasuredPlan& row, const std::string& column, const std::string& cell,
                const fs::path& folder) {
  if (column == "seconds") {
    const char* end = cell.data() + cell.size();
    const auto [stop, error] = std::from_chars(cell.data(), end, row.seconds);
    if (error != std::errc{} || stop != end || !(row.seconds >= kLeastSeconds) ||
        !std::isfinite(row.seconds)) {
      return input_error(row.where + ": seconds: expected a number from 1e-9 on, found '" + cell +
                         "'");
    }
    return Ok{};
  }
  if (cell.empty()) return Ok{};
  if (column == "batch") {
    const char* end = cell.data() + cell.size();
    const auto [stop, error] = std::from_chars(cell.data(), end, row.batch);
    if (error != std::errc{} || stop != end || row.batch < 1) {
      return input_error(row.where + ": batch: expected a positive integer, found '" + cell + "'");
    }
    return Ok{};
  }
  // Ready-made clusters have names; what is a file lies beside the table.
  const bool is_name = column == "cluster" && !fs::exists(folder / cell);
  const std::string path = is_name ? cell : (folder / cell).string();
  (column == "plan" ? row.plan : column == "model" ? row.model : row.cluster) = path;
  keep_from_replacing(path);
  if (column == "plan") keep_from_replacing((fs::path(path) / "strategy.json").string());
  return Ok{};
}

Result<std::vector<MeasuredPlan>> read_table(const std::string& path) {
  keep_from_replacing(path);
  AUTOPAR_TRY(text, read_file(path));
  if (text.rfind("\xEF\xBB\xBF", 0) == 0) text.erase(0, 3);  // as spreadsheets begin a table
  const fs::path folder = fs::path(path).parent_path();
  std::vector<MeasuredPlan> rows;
  std::vector<std::string> columns;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = path + ":" + std::to_string(++number);
    if (line.find_first_not_of(" \r") == std::string::npos || line[0] == '#') continue;
    const std::vector<std::string> cells = cells_of(line);
    if (columns.empty()) {
      for (const std::string& cell : cells) {
        if (cell != "plan" && cell != "seconds" && cell != "model" && cell != "cluster" &&
            cell != "batch") {
          return input_error(where + ": column '" + cell +
                             "' is unknown; columns are plan, seconds, model, cluster, batch");
        }
        if (std::count(cells.begin(), cells.end(), cell) > 1) {
          return input_error(where + ": column '" + cell + "' is there twice");
        }
      }
      for (const char* needed : {"plan", "seconds"}) {
        if (std::count(cells.begin(), cells.end(), needed) == 0) {
          return input_error(where + ": the first line must name the columns, and '" + needed +
                             "' is not among them");
        }
      }
      columns = cells;
      continue;
    }
    if (cells.size() != columns.size()) {
      return input_error(where + ": expected " + std::to_string(columns.size()) +
                         " cells as in the first line, found " + std::to_string(cells.size()));
    }
    MeasuredPlan row;
    row.where = where;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      AUTOPAR_RETURN_IF_ERROR(set_cell(row, columns[c], cells[c], folder));
    }
    if (row.plan.empty()) return input_error(where + ": plan: expected the folder of a plan");
    rows.push_back(std::move(row));
  }
  if (rows.empty()) {
    return input_error(path +
                       ": no measured times; expected a line 'plan,seconds' and a line per "
                       "measured plan");
  }
  return rows;
}

// What is left of a row to predict its time again and again.
struct PlanToPredict {
  std::unique_ptr<Applied> applied;

  Result<Seconds> seconds(const Profile& profile) const {
    const SearchRequest& request = *applied->request;
    Cluster cluster = request.cluster;
    cluster.profile = profile;
    RooflineModel model(std::move(cluster), applied->outcome.strategy.mesh);
    AUTOPAR_TRY(cost, evaluate(request, applied->outcome.strategy, model));
    return cost.time();
  }
};

// A model may be read with another batch than that of the plan, and another time predicted.
Status check_shapes(const MeasuredPlan& row, const PlanOptions& options, const Graph& graph) {
  const fs::path plan = fs::path(options.strategy_file).parent_path() / "plan.onnx";
  if (!fs::exists(plan)) return Ok{};
  const auto file = read_plan(plan.string());
  if (!file) return Error{file.error().code, row.where + ": " + file.error().message};
  for (const BoundaryValue& input : file->plan.inputs) {
    const auto found = std::find_if(graph.values.begin(), graph.values.end(),
                                    [&](const Value& v) { return v.name == input.name; });
    if (found == graph.values.end() || found->shape == input.shape) continue;
    return input_error(row.where + ": input '" + input.name + "' is " + to_text(input.shape) +
                       " in the plan and " + to_text(found->shape) + " in " + options.model +
                       ": give the plan's --dim, or its --batch in a column batch");
  }
  return Ok{};
}

Result<PlanToPredict> load_plan(const MeasuredPlan& row, const FitOptions& fit,
                                const std::string& profile, const std::vector<std::string>& dims) {
  const auto failed = [&](const Error& error) {
    return Error{error.code, row.where + ": " + error.message};
  };
  PlanOptions options;
  const bool is_file = fs::is_regular_file(row.plan);
  options.strategy_file = is_file ? row.plan : (fs::path(row.plan) / "strategy.json").string();
  if (!fs::exists(options.strategy_file)) {
    return input_error(row.where + ": " + row.plan +
                       ": no plan is there; expected a folder that search or apply wrote, with "
                       "strategy.json, or a strategy file");
  }
  options.model = row.model;
  if (options.model.empty()) {
    const std::string step =
        (fs::path(options.strategy_file).parent_path() / kTrainingFile).string();
    if (fs::exists(step)) {
      options.model = step;
    } else {
      const auto model = model_path_of_plan("", options.strategy_file);
      if (!model) return failed(model.error());
      options.model = *model;
    }
  }
  options.cluster = row.cluster.empty() ? fit.cluster : row.cluster;
  if (options.cluster.empty()) {
    return usage_error(row.where +
                       ": which cluster was this measured on? Give --cluster, or a "
                       "column cluster");
  }
  options.profile = profile;
  options.training.batch = row.batch;
  CommonOptions common;
  common.dims = dims;
  auto applied = apply_strategy(options, common);
  if (!applied) return failed(applied.error());
  AUTOPAR_RETURN_IF_ERROR(check_shapes(row, options, (*applied)->request->graph));
  return PlanToPredict{std::move(*applied)};
}

std::string percent(double log_error) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * (std::exp(log_error) - 1));
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string table_of(const std::vector<MeasuredPlan>& rows, const Profile& start,
                     const std::vector<std::string>& names, const ProfileFit& fit) {
  TextTable plans{{{"plan", "measured", "before", "", "fitted", "", "left out", ""}},
                  {false, true, true, true, true, true, true, true}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto away = [&](Seconds predicted) {
      char text[32];
      std::snprintf(text, sizeof text, "%+.1f %%", 100 * (predicted / rows[r].seconds - 1));
      return std::string(text);
    };
    plans.rows.push_back({rows[r].plan, format_seconds(rows[r].seconds),
                          format_seconds(fit.before[r]), away(fit.before[r]),
                          format_seconds(fit.after[r]), away(fit.after[r])});
    if (fit.left_out.empty()) continue;
    plans.rows.back().push_back(format_seconds(fit.left_out[r]));
    plans.rows.back().push_back(away(fit.left_out[r]));
  }
  TextTable numbers{{{"parameter", "before", "fitted"}}, {false, true, true}};
  for (const std::string& name : names) {
    numbers.rows.push_back(
        {name, number(*parameter_of(start, name)), number(*parameter_of(fit.profile, name))});
  }
  std::string text = to_text(plans) + "\n" + to_text(numbers) + "\n  error " +
                     percent(fit.error_before) + " before, " + percent(fit.error_after) + " fitted";
  if (!fit.left_out.empty()) text += ", " + percent(fit.error_left_out) + " of a row left out";
  return text + " (root mean square of the ratio's logarithm)\n";
}

std::string json_of(const std::vector<MeasuredPlan>& rows, const Profile& start,
                    const std::vector<std::string>& names, const ProfileFit& fit) {
  nlohmann::ordered_json j = {{"format", "autopar-fit"},
                              {"version", 1},
                              {"error_before", fit.error_before},
                              {"error_fitted", fit.error_after}};
  if (!fit.left_out.empty()) j["error_left_out"] = fit.error_left_out;
  for (const std::string& name : names) {
    j["parameters"][name] = {{"before", *parameter_of(start, name)},
                             {"fitted", *parameter_of(fit.profile, name)}};
  }
  j["without_effect"] = fit.without_effect;
  j["rows"] = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < rows.size(); ++r) {
    j["rows"].push_back({{"plan", rows[r].plan},
                         {"seconds", rows[r].seconds},
                         {"before_seconds", fit.before[r]},
                         {"fitted_seconds", fit.after[r]}});
    if (!fit.left_out.empty()) j["rows"].back()["left_out_seconds"] = fit.left_out[r];
  }
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<std::string> names_of(const std::string& only) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= only.size();) {
    const std::size_t end = std::min(only.find(',', begin), only.size());
    if (end > begin) names.push_back(only.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// Four digits: more are not known.
void round_parameters(const std::vector<std::string>& names, Profile& profile) {
  for (const std::string& name : names) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3e", *parameter_of(profile, name));
    const Status set = set_parameter(profile, name, std::strtod(text, nullptr));
    AUTOPAR_CHECK(set.ok(), "a rounded number lies within its bounds");
  }
}

Result<int> run(const FitOptions& options, const CommonOptions& common) {
  const std::vector<std::string> names = names_of(options.only);
  if (names.empty()) return usage_error("--only: expected names such as host_s,matrix.fraction");
  for (const std::string& name : names) {
    AUTOPAR_TRY(known, parameter_of(Profile(), name));
    static_cast<void>(known);
    if (std::count(names.begin(), names.end(), name) > 1) {
      return usage_error("--only: '" + name + "' is named twice");
    }
  }
  if (options.name.empty()) return usage_error("--name: expected a name");
  AUTOPAR_RETURN_IF_ERROR(check_writable(options.output));
  AUTOPAR_TRY(rows, read_table(options.table));
  AUTOPAR_TRY(began, profile_of_option(options.profile, ProfileFile()));
  const Profile start = std::move(began.profile);
  if (rows.size() < names.size()) {
    return usage_error(options.table + ": has " + std::to_string(rows.size()) + " rows for " +
                       std::to_string(names.size()) +
                       " parameters; measure more plans, or fit fewer: --only " + names[0]);
  }
  std::vector<PlanToPredict> plans;
  std::vector<Seconds> measured;
  for (const MeasuredPlan& row : rows) {
    AUTOPAR_TRY(plan, load_plan(row, options, options.profile.empty() ? "ideal" : options.profile,
                                common.dims));
    logging::debug("{}: {} is read", row.where, row.plan);
    plans.push_back(std::move(plan));
    measured.push_back(row.seconds);
  }
  Profile from = start;
  from.name =
      options.name;  // without one it would be the ideal profile, whose numbers are not read
  AUTOPAR_TRY(fit, fit_profile(from, names, measured, [&](const Profile& p, std::size_t row) {
                return plans[row].seconds(p);
              }));
  for (const std::string& name : fit.without_effect) {
    logging::warn("warning: no row depends on {}: it stays as it was", name);
  }
  if (!fit.is_nearer) {
    logging::warn(
        "warning: no numbers are nearer to the measured times than those of the profile: "
        "it stays as it was");
  }
  if (fit.is_nearer) round_parameters(names, fit.profile);
  const std::string sources =
      "autopar fit --only " + options.only + ": " + std::to_string(rows.size()) + " plans of " +
      fs::path(options.table).filename().string() + (start.ideal() ? "" : ", from " + start.name);
  AUTOPAR_RETURN_IF_ERROR(
      write_file_atomically(options.output, profile_to_json(fit.profile, sources)));
  if (common.json || !common.quiet) {
    std::cout << (common.json ? json_of(rows, start, names, fit)
                              : table_of(rows, start, names, fit));
  }
  std::cout.flush();
  if (!common.json) logging::info("wrote {}", options.output);
  return 0;
}

}  // namespace

Run add_fit(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<FitOptions>();
  app.add_option(
         "MEASURED", options->table,
         "table of measured plans: CSV with columns plan and seconds\n"
         "`plan` is a folder that search or apply wrote, or a strategy file, of one stage; "
         "`seconds` what its step took. Columns `model`, `cluster` and `batch` say these where the "
         "folder and --cluster do not. Paths are relative to the table; lines that begin with # "
         "are "
         "left out.")
      ->required()
      ->type_name("FILE");
  app.option_defaults()->group(group::kReading);
  app.add_option("--cluster", options->cluster,
                 "cluster.json, or the name of a ready-made cluster, of rows that name none")
      ->type_name("CLUSTER");
  app.add_option("--profile", options->profile,
                 "what to begin with: a profile.json or the name of a ready-made profile (default: "
                 "ideal)")
      ->type_name("NAME|FILE");
  app.add_option("--only", options->only,
                 "what is fitted (default host_s,launch_s,matrix.fraction,memory.fraction)\n"
                 "Others are matrix.half_k, attention.forward, attention.backward, "
                 "attention.half_length, attention.half_heads, memory.half_bytes, "
                 "memory.normalisation, memory.gather and bucket_bytes.")
      ->type_name("NAME,...");
  app.option_defaults()->group(group::kOutput);
  app.add_option("-o,--output", options->output, "the profile to write (default profile.json)")
      ->type_name("FILE");
  app.add_option("--name", options->name, "the profile's name (default fitted)");
  return [options, &common] { return run(*options, common); };
}

}  // namespace autopar::cli
