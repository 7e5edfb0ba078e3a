#include "autopar/step.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace autopar {

namespace {

struct PhaseName {
  StepPhase phase;
  const char* name;
};
constexpr PhaseName kPhases[] = {
    {StepPhase::kForward, "F"},          {StepPhase::kBackward, "B"},
    {StepPhase::kInputGradients, "I"},   {StepPhase::kWeightGradients, "W"},
    {StepPhase::kForwardBackward, "FB"}, {StepPhase::kReduce, "R"},
    {StepPhase::kUpdate, "U"},
};

std::string quoted(const std::string& text) { return "'" + text + "'"; }

std::string list_of(const std::vector<std::int64_t>& numbers) {
  constexpr std::size_t kMost = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(numbers.size(), kMost); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  }
  return text + (numbers.size() > kMost ? ", ...]" : "]");
}

std::string title_of(const StepProgram& program) {
  return "program " + quoted(program.file) + " (chunk " + std::to_string(program.chunk) +
         ", phase " + name_of(program.phase) + ")";
}

// A name in the folder, not a way out of it.
bool is_plain_name(const std::string& name) {
  if (name.empty() || name == "." || name == "..") return false;
  return name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

Status verify_program(const StepProgram& program, const Step& step) {
  if (!is_plain_name(program.file)) {
    return input_error(title_of(program) +
                       ": expected the name of a file in the folder of step.json");
  }
  if (program.chunk < 0) return input_error(title_of(program) + ": expected a chunk of 0 or more");
  if (program.ranks.empty()) return input_error(title_of(program) + ": has no ranks");
  std::set<std::int64_t> seen;
  for (const std::int64_t rank : program.ranks) {
    if (rank < 0 || rank >= step.world_size) {
      return input_error(title_of(program) + ": rank " + std::to_string(rank) +
                         " is outside the world of " + std::to_string(step.world_size) + " ranks");
    }
    if (seen.insert(rank).second) continue;
    return input_error(title_of(program) + ": lists rank " + std::to_string(rank) + " twice");
  }
  return Ok{};
}

using Phases = std::map<StepPhase, const StepProgram*>;  // of one chunk
using Chunks = std::map<std::int64_t, Phases>;

Result<Chunks> chunks_of(const Step& step) {
  Chunks chunks;
  for (const StepProgram& program : step.programs) {
    Phases& phases = chunks[program.chunk];
    if (!phases.empty() && phases.begin()->second->ranks != program.ranks) {
      return input_error(title_of(program) + ": has the ranks " + list_of(program.ranks) + ", " +
                         quoted(phases.begin()->second->file) + " of the same chunk " +
                         list_of(phases.begin()->second->ranks) +
                         "; all programs of a chunk have the same ranks in the same order");
    }
    if (phases.emplace(program.phase, &program).second) continue;
    return input_error(title_of(program) + ": " + quoted(phases.at(program.phase)->file) +
                       " is of the same chunk and phase");
  }
  return chunks;
}

// The full backward phase, or its two parts; both passes in one program, or apart.
Status verify_phases(std::int64_t chunk, const Phases& phases) {
  const auto has = [&](StepPhase phase) { return phases.count(phase) > 0; };
  const auto error = [&](const std::string& what) {
    return input_error("chunk " + std::to_string(chunk) + ": " + what);
  };
  const bool apart = has(StepPhase::kInputGradients) || has(StepPhase::kWeightGradients);
  if (has(StepPhase::kForwardBackward) &&
      (has(StepPhase::kForward) || has(StepPhase::kBackward) || apart)) {
    return error("has a program FB, which is both passes, and one of F, B, I or W beside it");
  }
  if (has(StepPhase::kBackward) && apart) {
    return error("has a program B, which is the whole backward pass, and I or W beside it");
  }
  if (has(StepPhase::kInputGradients) != has(StepPhase::kWeightGradients)) {
    return error("has one of I and W; expected both, or B");
  }
  return Ok{};
}

Status verify_lines(const Step& step) {
  std::map<std::int64_t, std::size_t> line_of_rank;
  std::map<StepAction, int> count;
  for (std::size_t l = 0; l < step.lines.size(); ++l) {
    const std::string where = step.schedule + ": line " + std::to_string(l + 1) + ": ";
    std::set<std::int64_t> ranks;
    for (const StepAction& action : step.lines[l]) {
      const StepProgram* program = program_of(step, action);
      if (program == nullptr) {
        return input_error(where + to_text(action) + ": there is no program for chunk " +
                           std::to_string(action.chunk) + ", phase " + name_of(action.phase));
      }
      const std::set<std::int64_t> own(program->ranks.begin(), program->ranks.end());
      if (ranks.empty()) ranks = own;
      if (ranks != own) {
        return input_error(where + to_text(action) + " is of other ranks than " +
                           to_text(step.lines[l][0]) +
                           "; a line holds the chunks of the same ranks");
      }
      if (is_pass(action.phase) !=
          (action.micro_batch >= 0 && action.micro_batch < step.micro_batches)) {
        return input_error(where + to_text(action) + ": expected " +
                           (is_pass(action.phase) ? "a micro-batch from 0 to " +
                                                        std::to_string(step.micro_batches - 1)
                                                  : "no micro-batch: R and U run once"));
      }
      ++count[action];
    }
    for (const std::int64_t rank : ranks) {
      const auto [at, is_new] = line_of_rank.emplace(rank, l);
      if (is_new) continue;
      return input_error(where + "rank " + std::to_string(rank) + " runs the chunks of line " +
                         std::to_string(at->second + 1) +
                         " too; all actions of a rank stand in one line");
    }
  }
  for (const StepProgram& program : step.programs) {
    const bool pass = is_pass(program.phase);
    for (std::int64_t m = 0; m < (pass ? step.micro_batches : 1); ++m) {
      const StepAction action{program.chunk, program.phase, pass ? m : -1};
      const auto found = count.find(action);
      const int times = found == count.end() ? 0 : found->second;
      if (times == 1) continue;
      return input_error(step.schedule + ": " + to_text(action) + " stands " +
                         (times == 0 ? "nowhere" : std::to_string(times) + " times") +
                         "; expected exactly once");
    }
  }
  return Ok{};
}

// What comes after the passes of a chunk stands behind them.
Status verify_ends(const Step& step) {
  for (std::size_t l = 0; l < step.lines.size(); ++l) {
    std::map<std::int64_t, StepAction> ended;  // by chunk
    for (const StepAction& action : step.lines[l]) {
      if (!is_pass(action.phase)) ended.emplace(action.chunk, action);
      const auto end = ended.find(action.chunk);
      if (!is_pass(action.phase) || end == ended.end()) continue;
      return input_error(step.schedule + ": line " + std::to_string(l + 1) + ": " +
                         to_text(action) + " stands behind " + to_text(end->second) +
                         "; R and U run once, after all passes of their chunk");
    }
  }
  return Ok{};
}

// Numbers of micro-batches and ranks beyond these are mistakes.
constexpr std::int64_t kMostMicroBatches = std::int64_t{1} << 20;
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;

}  // namespace

const char* name_of(StepPhase phase) {
  for (const PhaseName& row : kPhases) {
    if (row.phase == phase) return row.name;
  }
  AUTOPAR_CHECK(false, "a phase without a name");
}

std::optional<StepPhase> parse_step_phase(std::string_view name) {
  for (const PhaseName& row : kPhases) {
    if (name == row.name) return row.phase;
  }
  return std::nullopt;
}

bool is_pass(StepPhase phase) { return phase != StepPhase::kReduce && phase != StepPhase::kUpdate; }

std::string to_text(const StepAction& action) {
  return std::to_string(action.chunk) + name_of(action.phase) +
         (action.micro_batch >= 0 ? std::to_string(action.micro_batch) : "");
}

std::string to_text(const StepOutput& output) {
  switch (output.combining) {
    case Combining::kMean:
      return "mean";
    case Combining::kSum:
      return "sum";
    case Combining::kLast:
      return "last";
    case Combining::kConcat:
      return "concat:" + std::to_string(output.dimension);
  }
  AUTOPAR_CHECK(false, "an output that is not combined");
}

bool is_accumulator(std::string_view name) { return name.substr(0, 4) == "acc."; }

bool is_next_accumulator(std::string_view name) { return name.substr(0, 8) == "new.acc."; }

const StepProgram* program_of(const Step& step, const StepAction& action) {
  for (const StepProgram& program : step.programs) {
    if (program.chunk == action.chunk && program.phase == action.phase) return &program;
  }
  return nullptr;
}

Status verify_programs(const Step& step) {
  if (step.world_size < 1 || step.world_size > kMostRanks) {
    return input_error("world_size: expected 1 to " + std::to_string(kMostRanks) + ", found " +
                       std::to_string(step.world_size));
  }
  if (step.micro_batches < 1 || step.micro_batches > kMostMicroBatches) {
    return input_error("micro_batches: expected 1 to " + std::to_string(kMostMicroBatches) +
                       ", found " + std::to_string(step.micro_batches));
  }
  if (!is_plain_name(step.schedule)) {
    return input_error("schedule: expected the name of a file in the folder of step.json, found " +
                       quoted(step.schedule));
  }
  if (step.programs.empty()) return input_error("programs: there are none");
  std::set<std::int64_t> ranks;
  for (const StepProgram& program : step.programs) {
    AUTOPAR_RETURN_IF_ERROR(verify_program(program, step));
    ranks.insert(program.ranks.begin(), program.ranks.end());
  }
  for (std::int64_t rank = 0; rank < step.world_size; ++rank) {
    if (ranks.count(rank) > 0) continue;
    return input_error("rank " + std::to_string(rank) + " of the world of " +
                       std::to_string(step.world_size) + " runs no program");
  }
  AUTOPAR_TRY(chunks, chunks_of(step));
  for (const auto& [chunk, phases] : chunks) {
    AUTOPAR_RETURN_IF_ERROR(verify_phases(chunk, phases));
  }
  std::set<std::string> names;
  for (const MicroInput& input : step.micro_inputs) {
    if (input.dimension < 0) {
      return input_error("micro_inputs: " + quoted(input.name) +
                         ": expected a dimension from 0 on");
    }
    if (names.insert(input.name).second) continue;
    return input_error("micro_inputs: " + quoted(input.name) + " stands there twice");
  }
  names.clear();
  for (const StepOutput& output : step.outputs) {
    if (names.insert(output.name).second) continue;
    return input_error("outputs: " + quoted(output.name) + " stands there twice");
  }
  return Ok{};
}

Status verify(const Step& step) {
  AUTOPAR_RETURN_IF_ERROR(verify_programs(step));
  AUTOPAR_RETURN_IF_ERROR(verify_lines(step));
  return verify_ends(step);
}

}  // namespace autopar
