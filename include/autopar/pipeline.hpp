// Pipelines: in which order the stages of a step take their micro-batches, what that takes and what
// they hold meanwhile. A schedule is a list of actions per stage. It is made by one function per
// name; what verifies, simulates and executes it knows only the lists.
//
//   Result<PipelineSchedule> made = make_schedule(ScheduleKind::k1F1B, {4, 1, 8});
//   schedule_text(made->lines);                 // "0F0,0F1,0F2,0F3,0B0,0F4,...\n1F0,..."
//   in_flight(*made).of_stage;                  // 4, 3, 2, 1 micro-batches
//   std::vector<ChunkCost> costs(4, {.steady = {.forward = 1, .backward = 2}});
//   simulate_schedule(*made, costs)->makespan;  // (8 + 4 - 1) * 3 = 33
//
// A chunk's forward pass reads what the chunk before it made, its backward pass what the chunk
// behind it made. Numbers of chunks grow from the model's inputs to its outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autopar/step.hpp"
#include "autopar/support.hpp"

namespace autopar {

enum class ScheduleKind : std::uint8_t { kGPipe, k1F1B, kInterleaved, kZbH1, kZbV, kDualPipeV };
const char* name_of(ScheduleKind kind);  // gpipe, 1f1b, interleaved, zb-h1, zb-v, dualpipev
std::optional<ScheduleKind> parse_schedule_kind(std::string_view name);
std::vector<ScheduleKind> schedule_kinds();    // all, in the order of the enum
std::int64_t least_chunks(ScheduleKind kind);  // per stage

struct PipelineShape {
  std::int64_t stages = 1;
  std::int64_t chunks_per_stage = 1;
  std::int64_t micro_batches = 1;
  bool operator==(const PipelineShape&) const = default;
};

// Invariants, which verify_schedule checks: line s holds the actions of the chunks of stage s, and
// of each chunk and micro-batch F and either B or I and W, or FB alone; of a model that is not
// trained F alone, of all of them. R and U may stand once per chunk.
struct PipelineSchedule {
  std::int64_t micro_batches = 1;
  std::vector<std::int64_t> stage_of_chunk;
  std::vector<StepLine> lines;  // by stage
  bool operator==(const PipelineSchedule&) const = default;
};

// Whether the named schedule can have that shape. Errors (kInput): it cannot; with what to try
// instead.
Status verify_shape(ScheduleKind kind, const PipelineShape& shape);

// The passes in the order of the named schedule, without R and U. `dualpipev` has both B, and I and
// W, of one chunk (see backward_apart). Errors: as of verify_shape().
Result<PipelineSchedule> make_schedule(ScheduleKind kind, const PipelineShape& shape);

// Lines from elsewhere, such as parse_schedule's: chunks are where their actions stand. Errors
// (kInput): a chunk in two lines, or none of a number below the largest.
Result<PipelineSchedule> schedule_of_lines(std::vector<StepLine> lines);

// Whether it has no action of a backward pass: each micro-batch goes through the model once.
bool is_forward_only(const PipelineSchedule& schedule);
// The forward passes of a schedule, in its order.
PipelineSchedule forward_only(PipelineSchedule schedule);

// Of the chunks that have an I, every B becomes I and then W: a chunk has programs for the whole
// backward pass or for its parts.
PipelineSchedule backward_apart(PipelineSchedule schedule);

// Appends U of every chunk to the line of its stage, and R before these where asked for.
void add_updates(PipelineSchedule& schedule, bool reduce);

// Errors (kInput), with line and action: an action that is missing, stands twice, or in the line of
// another stage, or before what it needs; lines that wait for each other in a circle although
// sending waits for nobody. R comes behind all passes of its chunk, U behind these and behind the R
// of any chunk. Time and memory are linear in the number of actions.
Status verify_schedule(const PipelineSchedule& schedule);

// The largest numbers of micro-batches whose forward pass has begun and whose backward pass has not
// ended, which it has with B, W or FB; where there is none, with F. Of a valid schedule.
struct InFlight {
  std::vector<std::int64_t> of_chunk;
  std::vector<std::int64_t> of_stage;  // of all its chunks together, at one time
  bool operator==(const InFlight&) const = default;
};
InFlight in_flight(const PipelineSchedule& schedule);

struct PassSeconds {
  Seconds forward = 0;           // F
  Seconds backward = 0;          // B
  Seconds input_gradients = 0;   // I
  Seconds weight_gradients = 0;  // W
  Seconds forward_backward = 0;  // FB
};
// Of a micro-batch, to the stage of a chunk that is not the next one, or the one before.
struct FurtherMessage {
  std::int64_t to = 0;  // a chunk: behind the sender an activation, before it a gradient
  Seconds seconds = 0;
  bool for_reduce = false;  // of what R makes: R of that chunk reads it, not U alone
};
struct ChunkCost {
  PassSeconds steady;
  std::optional<PassSeconds> first = std::nullopt;  // of micro-batch 0, where it differs
  std::optional<PassSeconds> last = std::nullopt;   // of the last of several
  Seconds send_forward = 0;   // the activation of a micro-batch to the next chunk's stage
  Seconds send_backward = 0;  // its gradient to the stage of the chunk before
  std::vector<FurtherMessage> further = {};
  // What R makes, to chunks whose U or R reads it, on this stage too; chunks of one stage get it in
  // one message, which stands here for each. Not said: nothing is sent, and every U waits for it.
  std::optional<std::vector<FurtherMessage>> reduced = std::nullopt;
  Seconds reduce = 0;  // R
  Seconds update = 0;  // U
};

struct ActionTime {
  Seconds start = 0;
  Seconds end = 0;
  bool operator==(const ActionTime&) const = default;
};
struct ScheduleTimes {
  Seconds makespan = 0;                          // from 0 to the end of the last action
  std::vector<std::vector<ActionTime>> actions;  // as they stand in the lines
  // By chunk and micro-batch: when what the forward pass makes is at the stage of the next chunk.
  std::vector<std::vector<Seconds>> arrivals;
  std::vector<Seconds> busy;  // by stage: the sum of its actions
  std::vector<Seconds> idle;  // by stage: the rest of the makespan
  std::vector<Seconds> span;  // by stage: from the start of its first action to the end of its last
  // The part of the longest span that stages are idle, averaged over the stages. Where all stages
  // are busy for the same time it is (cost - m (F + B + W)) / cost of Qi et al., Zero Bubble
  // Pipeline Parallelism, ICLR 2024. A stage's waiting for its first micro-batch is no part of it.
  double bubble_rate = 0;
};

// Every action starts once the one before it in its line has ended and what it reads has arrived.
// A result leaves when its action ends, over a link from stage to stage that carries one message at
// a time in each direction, in the order of the sender's line; neither stage waits for it or is
// slowed down. A stage has such a link to itself. One ChunkCost per chunk. Errors
// (kInput): those of verify_schedule; a number of costs that is not that of the chunks; costs below
// 0 or not finite. Linear in the number of actions.
Result<ScheduleTimes> simulate_schedule(const PipelineSchedule& schedule,
                                        const std::vector<ChunkCost>& costs);

// How many passes of a chunk, in parts of passes of several paths; B counts as I and W.
struct PassCounts {
  double forward = 0;           // F
  double input_gradients = 0;   // I
  double weight_gradients = 0;  // W
  bool operator==(const PassCounts&) const = default;
};
// Per chunk the passes on a longest path: actions of which each has to wait for the one before it,
// and of which the last ends the schedule. Whatever chunks take, the schedule takes no less than
// what is on it. Messages are on none. Errors: as of simulate_schedule().
Result<std::vector<PassCounts>> longest_path(const PipelineSchedule& schedule,
                                             const std::vector<ChunkCost>& costs);

// The same of one schedule with many costs: it is verified, and its actions are put in order, once.
struct OrderedSchedule;
class ScheduleSimulator {
 public:
  // Errors (kInput): those of verify_schedule().
  static Result<ScheduleSimulator> of(PipelineSchedule schedule);
  // Errors (kInput): those of simulate_schedule() about costs.
  Result<ScheduleTimes> simulate(const std::vector<ChunkCost>& costs) const;
  Result<std::vector<PassCounts>> longest_path(const std::vector<ChunkCost>& costs) const;

 private:
  explicit ScheduleSimulator(std::shared_ptr<const OrderedSchedule> ordered)
      : ordered_(std::move(ordered)) {}
  std::shared_ptr<const OrderedSchedule> ordered_;
};

}  // namespace autopar
