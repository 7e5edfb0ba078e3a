// The table of a schedule as text.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "autopar/step.hpp"

namespace autopar {

namespace {

// What a cell says, before it is known which programs there are.
struct Cell {
  std::int64_t chunk = 0;
  std::string phase;  // also "BW"
  std::int64_t micro_batch = -1;
};

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Digits at the front, which go; nothing where there are none or they are no sensible number.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int64_t number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

// Of PyTorch's tables, what is no computation.
bool is_left_out(std::string_view phase) {
  for (const char* name :
       {"SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"}) {
    if (phase == name) return true;
  }
  return false;
}

// Nothing: no action.
Result<std::optional<Cell>> cell_of(std::string_view text, const std::string& where) {
  const auto wrong = [&] {
    return input_error(where + "'" + std::string(text) +
                       "': expected <chunk><phase><micro-batch>, such as 0F3, with a phase of F, "
                       "B, I, W, FB, R or U");
  };
  std::string_view rest = text;
  Cell cell;
  const auto chunk = take_number(rest);
  if (!chunk) return wrong();
  cell.chunk = *chunk;
  std::size_t end = 0;
  while (end < rest.size() && !(rest[end] >= '0' && rest[end] <= '9')) ++end;
  cell.phase = rest.substr(0, end);
  rest.remove_prefix(end);
  if (!rest.empty()) {
    const auto micro_batch = take_number(rest);
    if (!micro_batch || !rest.empty()) return wrong();
    cell.micro_batch = *micro_batch;
  }
  if (is_left_out(cell.phase)) return std::optional<Cell>();
  if (cell.phase != "BW" && !parse_step_phase(cell.phase)) return wrong();
  return std::optional<Cell>(cell);
}

// `(0F5;3B1)OVERLAP_F_B` is two.
Result<std::vector<Cell>> cells_of(std::string_view text, const std::string& where) {
  std::vector<std::string_view> parts = {text};
  if (!text.empty() && text.front() == '(') {
    const std::size_t end = text.find(')');
    if (end == std::string_view::npos) {
      return input_error(where + "'" + std::string(text) + "': expected ')' behind the actions");
    }
    parts = parts_of(text.substr(1, end - 1), ';');
  }
  std::vector<Cell> cells;
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    AUTOPAR_TRY(cell, cell_of(part, where));
    if (cell) cells.push_back(*cell);
  }
  return cells;
}

using Cells = std::vector<std::vector<Cell>>;

Result<Cells> table_of(std::string_view text, const std::string& where) {
  Cells table;
  std::size_t number = 0;
  for (const std::string_view line : parts_of(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    table.emplace_back();
    for (const std::string_view part : parts_of(line, ',')) {
      AUTOPAR_TRY(cells, cells_of(part, where + ": line " + std::to_string(number) + ": "));
      table.back().insert(table.back().end(), cells.begin(), cells.end());
    }
  }
  return table;
}

bool has_program(const std::vector<StepProgram>& programs, std::int64_t chunk, StepPhase phase) {
  return std::any_of(programs.begin(), programs.end(), [&](const StepProgram& program) {
    return program.chunk == chunk && program.phase == phase;
  });
}

// R and U of chunks that have them, where the table does not.
void add_last_phases(const std::vector<StepProgram>& programs, std::vector<StepLine>& lines) {
  for (const StepPhase phase : {StepPhase::kReduce, StepPhase::kUpdate}) {
    std::set<std::int64_t> told;
    for (const StepLine& line : lines) {
      for (const StepAction& action : line) {
        if (action.phase == phase) told.insert(action.chunk);
      }
    }
    for (StepLine& line : lines) {
      std::set<std::int64_t> chunks;
      for (const StepAction& action : line) chunks.insert(action.chunk);
      for (const std::int64_t chunk : chunks) {
        if (!told.insert(chunk).second || !has_program(programs, chunk, phase)) continue;
        line.push_back({chunk, phase, -1});
      }
    }
  }
}

}  // namespace

std::string schedule_text(const std::vector<StepLine>& lines) {
  std::string text;
  for (const StepLine& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) text += (i > 0 ? "," : "") + to_text(line[i]);
    text += "\n";
  }
  return text;
}

Result<std::vector<StepLine>> parse_schedule(std::string_view text,
                                             const std::vector<StepProgram>& programs,
                                             const std::string& where) {
  AUTOPAR_TRY(table, table_of(text, where));
  std::set<std::pair<std::int64_t, std::int64_t>> apart;  // have a W of their own
  for (const auto& cells : table) {
    for (const Cell& cell : cells) {
      if (cell.phase == "W") apart.insert({cell.chunk, cell.micro_batch});
    }
  }
  std::vector<StepLine> lines;
  for (const auto& cells : table) {
    StepLine& line = lines.emplace_back();
    for (const Cell& cell : cells) {
      const bool backward = cell.phase == "B" || cell.phase == "BW";
      const bool has_w = apart.count({cell.chunk, cell.micro_batch}) > 0;
      if (!backward) {
        line.push_back({cell.chunk, *parse_step_phase(cell.phase), cell.micro_batch});
      } else if (has_w) {
        line.push_back({cell.chunk, StepPhase::kInputGradients, cell.micro_batch});
      } else if (has_program(programs, cell.chunk, StepPhase::kInputGradients)) {
        line.push_back({cell.chunk, StepPhase::kInputGradients, cell.micro_batch});
        line.push_back({cell.chunk, StepPhase::kWeightGradients, cell.micro_batch});
      } else {
        line.push_back({cell.chunk, StepPhase::kBackward, cell.micro_batch});
      }
    }
  }
  add_last_phases(programs, lines);
  return lines;
}

std::vector<StepLine> plain_schedule(const std::vector<StepProgram>& programs,
                                     std::int64_t micro_batches) {
  std::map<std::vector<std::int64_t>, std::size_t> line_of;  // by ranks, sorted
  std::vector<std::vector<const StepProgram*>> by_line;
  for (const StepProgram& program : programs) {
    std::vector<std::int64_t> ranks = program.ranks;
    std::sort(ranks.begin(), ranks.end());
    const auto [at, is_new] = line_of.emplace(ranks, by_line.size());
    if (is_new) by_line.emplace_back();
    by_line[at->second].push_back(&program);
  }
  std::vector<StepLine> lines;
  for (auto& line_programs : by_line) {
    std::stable_sort(line_programs.begin(), line_programs.end(), [](const auto* a, const auto* b) {
      return std::pair(a->chunk, a->phase) < std::pair(b->chunk, b->phase);
    });
    StepLine& line = lines.emplace_back();
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      for (const StepProgram* program : line_programs) {
        if (is_pass(program->phase)) line.push_back({program->chunk, program->phase, m});
      }
    }
    for (const StepPhase phase : {StepPhase::kReduce, StepPhase::kUpdate}) {
      for (const StepProgram* program : line_programs) {
        if (program->phase == phase) line.push_back({program->chunk, phase, -1});
      }
    }
  }
  return lines;
}

}  // namespace autopar
