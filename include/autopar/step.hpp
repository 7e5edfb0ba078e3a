// A step of several programs: what step.json and schedule.csv say. A chunk of the model is run by
// one set of ranks, micro-batch by micro-batch, in phases; an update ends the step.
//
//   Step step;
//   step.world_size = 8;
//   step.micro_batches = 2;
//   step.programs = {{"plan.c0.FB.onnx", 0, StepPhase::kForwardBackward, ranks},
//                    {"plan.c0.U.onnx", 0, StepPhase::kUpdate, ranks}};
//   step.lines = plain_schedule(step.programs, 2);   // "0FB0,0FB1,0U"
//   Status valid = verify(step);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/support.hpp"

namespace autopar {

enum class StepPhase : std::uint8_t {
  kForward,          // F
  kBackward,         // B: gradients of inputs and of weights
  kInputGradients,   // I: of inputs alone
  kWeightGradients,  // W: of weights alone
  kForwardBackward,  // FB: both passes in one program
  kReduce,           // R: after all passes, what updates need of each other
  kUpdate,           // U
};
const char* name_of(StepPhase phase);  // "F", "B", "I", "W", "FB", "R", "U"
std::optional<StepPhase> parse_step_phase(std::string_view name);
bool is_pass(StepPhase phase);  // runs once per micro-batch: all but R and U

// One program of one chunk, and the ranks that run it, in the order of its mesh.
struct StepProgram {
  std::string file;  // in the folder of step.json
  std::int64_t chunk = 0;
  StepPhase phase = StepPhase::kForwardBackward;
  std::vector<std::int64_t> ranks;
  bool operator==(const StepProgram&) const = default;
};

// One run of the program of that chunk and phase.
struct StepAction {
  std::int64_t chunk = 0;
  StepPhase phase = StepPhase::kForwardBackward;
  std::int64_t micro_batch = -1;  // -1: of all (R, U)
  auto operator<=>(const StepAction&) const = default;
};
using StepLine = std::vector<StepAction>;  // of the ranks that share their chunks, in its order
std::string to_text(const StepAction& action);  // "0FB3", "0U"

// A model input of which micro-batch i reads the i-th of equal parts along a dimension.
struct MicroInput {
  std::string name;
  std::int64_t dimension = 0;
  bool operator==(const MicroInput&) const = default;
};

// How a model output of all micro-batches becomes one.
enum class Combining : std::uint8_t { kMean, kSum, kLast, kConcat };
struct StepOutput {
  std::string name;
  Combining combining = Combining::kMean;
  std::int64_t dimension = 0;  // kConcat
  bool operator==(const StepOutput&) const = default;
};
std::string to_text(const StepOutput& output);  // "mean", "concat:1": without the name

// What the results of a step are compared with: the unsharded step on the whole batch, or, where a
// pass of a part of the batch gives another result (batch statistics, routing by token order), the
// unsharded passes of the micro-batches one after the other. These are then programs for one rank
// beside step.json, `train.<phase>.onnx`, with the values' names.
enum class StepReference : std::uint8_t { kWholeBatch, kPasses };

struct Step {
  std::int64_t world_size = 1;
  std::int64_t micro_batches = 1;
  // Of the batch, in each micro-batch: copies of the passes that the programs interleave.
  std::int64_t copies = 1;
  std::string schedule = "schedule.csv";  // file of the lines
  std::vector<StepProgram> programs;
  std::vector<MicroInput> micro_inputs = {};
  std::vector<StepOutput> outputs = {};  // but new.*, which leave as they are
  StepReference reference = StepReference::kWholeBatch;
  std::vector<StepLine> lines = {};
};

// The program of a chunk and phase; null: there is none.
const StepProgram* program_of(const Step& step, const StepAction& action);

// Errors (kInput), each with what was expected: files that are not plain names; ranks outside the
// world, in no program, twice in one, or of one chunk and phase twice; chunks whose programs have
// different ranks or phases that exclude each other; a line whose chunks have different ranks; a
// rank in two lines; an action without a program, or that does not stand exactly once.
Status verify(const Step& step);
// The same of all but its lines.
Status verify_programs(const Step& step);

// Names of values. `acc.<parameter>` is the gradient that passes add to, and what one gives is
// `new.acc.<parameter>`; these alone may lie as partial sums.
bool is_accumulator(std::string_view name);
bool is_next_accumulator(std::string_view name);

// schedule.csv: a line of cells per StepLine.
std::string schedule_text(const std::vector<StepLine>& lines);
// Reads it back, and PyTorch's schedule tables: messages (`1SEND_F0`) and what belongs to sharded
// parameters (`1UNSHARD`) are dropped, `(0F5;3B1)OVERLAP_F_B` is its two actions, `B` and `BW` mean
// `I` where a `W` for the same chunk and micro-batch stands in the table, and `I` and then `W`
// where the chunk has no program `B`; R and U that the table lacks come last. Empty lines mean
// nothing. Errors start with `where` and name line and cell.
Result<std::vector<StepLine>> parse_schedule(std::string_view text,
                                             const std::vector<StepProgram>& programs,
                                             const std::string& where);
// Of each set of ranks a line that takes the micro-batches one after the other, each chunk's passes
// in the order F, B, I, W or FB, then R and U. Good for chunks that do not need each other.
std::vector<StepLine> plain_schedule(const std::vector<StepProgram>& programs,
                                     std::int64_t micro_batches);

}  // namespace autopar
