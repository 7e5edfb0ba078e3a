// Schedules beside those of others: PyTorch's lists, and the bubble rates that Qi et al. (Zero
// Bubble Pipeline Parallelism, ICLR 2024) computed from profiled times. The files are looked for in
// AUTOPAR_SHARED/data/pipeline_schedules.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "autopar/pipeline.hpp"

namespace autopar::pipeline_data_test {

namespace {

// Nothing, and a message, where there is no such file.
std::optional<std::string> shared_text(const std::string& name) {
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::filesystem::path root = shared != nullptr && *shared != '\0'
                                         ? std::filesystem::path(shared)
                                         : std::filesystem::path(AUTOPAR_SOURCE) / ".." / "shared";
  const std::filesystem::path path = root / "data" / "pipeline_schedules" / name;
  if (!std::filesystem::exists(path)) {
    WARN("skipped, set AUTOPAR_SHARED: " << path.string() << " does not exist");
    return std::nullopt;
  }
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

PipelineSchedule parsed(const std::string& text, const std::vector<StepProgram>& programs = {}) {
  const auto lines = parse_schedule(text, programs, "text");
  INFO((lines.ok() ? "" : lines.error().message));
  REQUIRE(lines.ok());
  auto schedule = schedule_of_lines(*lines);
  INFO((schedule.ok() ? "" : schedule.error().message));
  REQUIRE(schedule.ok());
  return std::move(*schedule);
}

std::string why_not(const PipelineSchedule& schedule) {
  const Status valid = verify_schedule(schedule);
  return valid.ok() ? "" : valid.error().message;
}

// Actions of each phase of a chunk.
std::map<std::pair<std::int64_t, std::string>, int> count_of(const PipelineSchedule& schedule) {
  std::map<std::pair<std::int64_t, std::string>, int> count;
  for (const StepLine& line : schedule.lines) {
    for (const StepAction& action : line) ++count[{action.chunk, name_of(action.phase)}];
  }
  return count;
}

// Programs of chunks that have I and W.
std::vector<StepProgram> programs_apart(const PipelineSchedule& schedule) {
  std::vector<StepProgram> programs;
  for (std::size_t chunk = 0; chunk < schedule.stage_of_chunk.size(); ++chunk) {
    for (const StepPhase phase : {StepPhase::kForward, StepPhase::kInputGradients,
                                  StepPhase::kWeightGradients, StepPhase::kUpdate}) {
      programs.push_back({std::to_string(chunk) + name_of(phase),
                          static_cast<std::int64_t>(chunk),
                          phase,
                          {schedule.stage_of_chunk[chunk]}});
    }
  }
  return programs;
}

// What is written is read as the same, with programs too.
void check_both_ways(const std::string& text) {
  const PipelineSchedule schedule = parsed(text);
  CHECK(why_not(schedule) == "");
  CHECK(parsed(schedule_text(schedule.lines)) == schedule);
  PipelineSchedule apart = parsed(text, programs_apart(schedule));
  CHECK(why_not(apart) == "");
  PipelineSchedule expected = schedule;
  for (StepLine& line : expected.lines) {
    StepLine changed;
    for (StepAction action : line) {
      const bool whole = action.phase == StepPhase::kBackward;
      if (whole) action.phase = StepPhase::kInputGradients;
      changed.push_back(action);
      if (whole) changed.push_back({action.chunk, StepPhase::kWeightGradients, action.micro_batch});
    }
    line = changed;
  }
  add_updates(expected, false);
  CHECK(apart == expected);
}

}  // namespace

TEST_CASE("DualPipeV as PyTorch lists it", "[pipeline]") {
  const auto text = shared_text("pytorch_dualpipev_4rank_10mb.csv");
  if (!text) return;
  check_both_ways(*text);
  const auto made = make_schedule(ScheduleKind::kDualPipeV, {4, 2, 10});
  REQUIRE(made.ok());
  CHECK(parsed(*text) == *made);
}

TEST_CASE("lists of PyTorch's interleaved zero-bubble schedule", "[pipeline]") {
  // B means I here where there is a W.
  if (const auto text = shared_text("pytorch_zb1p_2rank_2stage_compute.csv")) {
    check_both_ways(*text);
    const PipelineSchedule schedule = parsed(*text);
    CHECK(schedule.stage_of_chunk == std::vector<std::int64_t>{0, 1, 0, 1});
    CHECK(schedule.micro_batches == 8);
    auto count = count_of(schedule);
    CHECK(count.size() == 12);
    for (std::int64_t chunk = 0; chunk < 4; ++chunk) {
      for (const char* phase : {"F", "I", "W"}) CHECK(count[{chunk, phase}] == 8);
    }
  }
  // The first rank's backward passes are whole here, and messages stand between.
  if (const auto text = shared_text("pytorch_zb1p_2rank_2stage_comms.csv")) {
    check_both_ways(*text);
    auto count = count_of(parsed(*text));
    CHECK(count.size() == 10);
    for (const std::int64_t chunk : {0, 2}) {
      for (const char* phase : {"F", "B"}) CHECK(count[{chunk, phase}] == 8);
    }
    for (const std::int64_t chunk : {1, 3}) {
      for (const char* phase : {"F", "I", "W"}) CHECK(count[{chunk, phase}] == 8);
    }
  }
}

namespace {

// Rows of a table with a line of names; lines that begin with # are comments.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& text) {
  std::vector<std::map<std::string, std::string>> rows;
  std::vector<std::string> names;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> cells;
    std::stringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
      continue;
    }
    cells.resize(names.size());
    rows.emplace_back();
    for (std::size_t i = 0; i < names.size(); ++i) rows.back()[names[i]] = cells[i];
  }
  return rows;
}

double bubble_rate(ScheduleKind kind, const PipelineShape& shape,
                   std::map<std::string, std::string>& row) {
  const auto schedule = make_schedule(kind, shape);
  REQUIRE(schedule.ok());
  const auto v = static_cast<double>(shape.chunks_per_stage);
  const auto ms = [&](const char* name) { return std::stod(row[name]) * 1e-3; };
  ChunkCost cost;
  cost.steady.forward = ms("t_f") / v;
  cost.steady.input_gradients = ms("t_b") / v;
  cost.steady.weight_gradients = ms("t_w") / v;
  cost.steady.backward = (ms("t_b") + ms("t_w")) / v;
  cost.send_forward = cost.send_backward = ms("t_comm");
  const auto times =
      simulate_schedule(*schedule, std::vector<ChunkCost>(schedule->stage_of_chunk.size(), cost));
  REQUIRE(times.ok());
  return times->bubble_rate;
}

}  // namespace

TEST_CASE("bubble rates of the zero-bubble tables", "[pipeline]") {
  const auto text = shared_text("zero_bubble_profiled_times.csv");
  if (!text) return;
  // Chunks per stage of their interleaved runs.
  const std::map<std::string, std::int64_t> chunks = {
      {"1.5B", 3}, {"6.2B", 4}, {"14.6B", 3}, {"28.3B", 2}};
  const auto four_digits = [](double rate) { return std::round(rate * 1e4) / 1e4; };
  int rows = 0;
  double largest = 0;
  for (auto& row : rows_of(*text)) {
    if (row["t_f"].empty()) continue;
    ++rows;
    INFO(row["model"] << " " << row["p"] << " " << row["m"]);
    const std::int64_t p = std::stoll(row["p"]), m = std::stoll(row["m"]);
    CHECK(four_digits(bubble_rate(ScheduleKind::k1F1B, {p, 1, m}, row)) ==
          std::stod(row["bubble_1f1b"]));
    CHECK(four_digits(bubble_rate(ScheduleKind::kZbH1, {p, 1, m}, row)) ==
          std::stod(row["bubble_zb_h1"]));
    const double interleaved =
        bubble_rate(ScheduleKind::kInterleaved, {p, chunks.at(row["model"]), m}, row);
    const double difference = std::abs(interleaved - std::stod(row["bubble_1f1b_i"]));
    largest = std::max(largest, difference);
    CHECK(difference < 0.004);
    // One that knows no times but equal ones, beside one that was fitted to them.
    CHECK(bubble_rate(ScheduleKind::kZbV, {p, 2, m}, row) <
          bubble_rate(ScheduleKind::kZbH1, {p, 1, m}, row));
  }
  CHECK(rows == 12);
  std::cout << "bubble rates: 1f1b and zb-h1 as in " << rows
            << " rows to four digits, interleaved within " << largest << "\n";
}

}  // namespace autopar::pipeline_data_test
