// The named schedules: one function each, and a row in the table.
#include <algorithm>
#include <deque>
#include <initializer_list>
#include <utility>

#include "autopar/pipeline.hpp"

namespace autopar {

namespace {

// A kind of action of a stage, for one of its own chunks, counted from 0. The micro-batch is the
// next one.
struct Slot {
  StepPhase phase;
  std::size_t own = 0;
};
constexpr Slot kF0{StepPhase::kForward, 0}, kF1{StepPhase::kForward, 1};
constexpr Slot kB0{StepPhase::kBackward, 0}, kB1{StepPhase::kBackward, 1};
constexpr Slot kI0{StepPhase::kInputGradients, 0}, kI1{StepPhase::kInputGradients, 1};
constexpr Slot kW0{StepPhase::kWeightGradients, 0}, kW1{StepPhase::kWeightGradients, 1};

// Writes the line of a stage. Forward and backward passes of a chunk take the micro-batches in
// their order, and W takes them as their I came. Slots beyond the last micro-batch are left out.
class LineWriter {
 public:
  LineWriter(std::vector<std::int64_t> chunks, std::int64_t micro_batches)
      : chunks_(std::move(chunks)),
        micro_batches_(micro_batches),
        forward_(chunks_.size()),
        backward_(chunks_.size()) {}

  void add(Slot slot) {
    if (slot.phase == StepPhase::kWeightGradients) {
      for (std::size_t i = 0; i < waiting_.size(); ++i) {
        if (waiting_[i].chunk == chunks_[slot.own]) return add_weights(i);
      }
      return;
    }
    std::int64_t& next = (slot.phase == StepPhase::kForward ? forward_ : backward_)[slot.own];
    if (next == micro_batches_) return;
    const StepAction action{chunks_[slot.own], slot.phase, next++};
    line_.push_back(action);
    if (slot.phase == StepPhase::kInputGradients) waiting_.push_back(action);
  }
  void repeat(std::int64_t times, std::initializer_list<Slot> slots) {
    for (std::int64_t i = 0; i < times; ++i) {
      const std::size_t before = line_.size();
      for (const Slot& slot : slots) add(slot);
      if (line_.size() == before) return;  // nor would the next round add anything
    }
  }
  // W of the I that has waited longest, of any chunk.
  void add_oldest_weights() {
    if (!waiting_.empty()) add_weights(0);
  }
  StepLine take() { return std::move(line_); }

 private:
  void add_weights(std::size_t i) {
    line_.push_back({waiting_[i].chunk, StepPhase::kWeightGradients, waiting_[i].micro_batch});
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::vector<std::int64_t> chunks_;
  std::int64_t micro_batches_;
  std::vector<std::int64_t> forward_;   // by own chunk: the next micro-batch
  std::vector<std::int64_t> backward_;  // B or I
  std::deque<StepAction> waiting_;      // an I whose W has not come
  StepLine line_;
};

// Chunk c on stage c mod S: each stage sends to the next one, the last to the first.
std::vector<std::int64_t> loop_placement(const PipelineShape& shape) {
  std::vector<std::int64_t> stage_of_chunk;
  for (std::int64_t chunk = 0; chunk < shape.stages * shape.chunks_per_stage; ++chunk) {
    stage_of_chunk.push_back(chunk % shape.stages);
  }
  return stage_of_chunk;
}

// Two chunks per stage, there and back: the last stage has the two in the middle, the first one the
// first and the last.
std::vector<std::int64_t> v_placement(const PipelineShape& shape) {
  std::vector<std::int64_t> stage_of_chunk;
  for (std::int64_t stage = 0; stage < shape.stages; ++stage) stage_of_chunk.push_back(stage);
  for (std::int64_t stage = shape.stages; stage-- > 0;) stage_of_chunk.push_back(stage);
  return stage_of_chunk;
}

// Huang et al., GPipe, NeurIPS 2019: all forward passes, then all backward passes. These come in
// the order of the micro-batches, as PyTorch lists them; the paper has them the other way round,
// which takes as long.
StepLine gpipe(LineWriter line, const PipelineShape& shape, std::int64_t) {
  line.repeat(shape.micro_batches, {kF0});
  line.repeat(shape.micro_batches, {kB0});
  return line.take();
}

// PipeDream-Flush of Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, ICML 2021,
// known as 1F1B: a stage takes as many forward passes ahead as there are stages behind it, then one
// forward and one backward pass in turn.
StepLine one_forward_one_backward(LineWriter line, const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t ahead = std::min(shape.stages - 1 - stage, shape.micro_batches);
  line.repeat(ahead, {kF0});
  line.repeat(shape.micro_batches - ahead, {kF0, kB0});
  line.repeat(ahead, {kB0});
  return line.take();
}

// Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using
// Megatron-LM, SC 2021, section 2.2.2: 1F1B in which a stage takes S micro-batches through its
// first chunk, then the same ones through its second, and so on; the backward passes begin with the
// last chunk.
StepLine interleaved(LineWriter line, const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t chunks = shape.chunks_per_stage;
  const std::int64_t passes = shape.micro_batches * chunks;
  const std::int64_t ahead =
      std::min(2 * (shape.stages - 1 - stage) + (chunks - 1) * shape.stages, passes);
  for (std::int64_t i = 0; i < passes + ahead; ++i) {
    const std::int64_t backward = i - ahead;
    if (i < passes) {
      line.add({StepPhase::kForward, static_cast<std::size_t>(i / shape.stages % chunks)});
    }
    if (backward >= 0) {
      const std::int64_t own = chunks - 1 - backward / shape.stages % chunks;
      line.add({StepPhase::kBackward, static_cast<std::size_t>(own)});
    }
  }
  return line.take();
}

// ZB-H1 of Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2.2, by hand for equal
// times of F, I and W: 1F1B in which stage s keeps s micro-batches waiting for their W, so that all
// stages hold S micro-batches, and does W where 1F1B waits for gradients at the end.
StepLine zb_h1(LineWriter line, const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t ahead = std::min(shape.stages - 1 - stage, shape.micro_batches);
  const std::int64_t steady = shape.micro_batches - ahead;
  const std::int64_t without = std::min(stage, steady);
  line.repeat(ahead, {kF0});
  line.repeat(without, {kF0, kI0});
  line.repeat(steady - without, {kF0, kI0, kW0});
  line.repeat(ahead, {kI0, kW0});
  line.repeat(without, {kW0});
  return line.take();
}

// ZB-V of the same paper, section 6 and its figure, for equal times of F, I and W: chunk 0 of stage
// s is the s-th of the model, chunk 1 the s-th from its end, so that the first stage begins the
// backward passes as soon as the last one. With fewer than 2 S - 1 micro-batches it is what is left
// of the line for so many.
StepLine zb_v(LineWriter line, const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t behind = shape.stages - 1 - stage;
  const std::int64_t micro_batches = std::max(2 * shape.stages - 1, shape.micro_batches);
  line.repeat(2 * behind + 1, {kF0});
  line.repeat(stage, {kF1, kF0});
  line.repeat(behind + 1, {kF1, kI1, kW1});
  line.repeat(micro_batches - shape.stages - behind, {kF0, kI0, kW0, kF1, kI1, kW1});
  line.repeat(behind, {kI0, kW0, kF1, kI1, kW1});
  line.repeat(stage, {kI0, kI1});
  line.repeat(behind + 1, {kI0, kW0});
  line.repeat(stage, {kW1});
  line.repeat(stage, {kW0});
  return line.take();
}

// DualPipeV of DeepSeek (the DualPipe of the DeepSeek-V3 report, arXiv 2412.19437, cut in half:
// without its second copy of the parameters), in the order of PyTorch's lists. Where one chunk's F
// and the other's B stand side by side in the middle, the communication of each can go on beside
// the compute of the other.
StepLine dual_pipe_v(LineWriter line, const PipelineShape& shape, std::int64_t stage) {
  const std::int64_t behind = shape.stages - 1 - stage;
  line.repeat(2 * behind, {kF0});
  line.repeat(stage + 1, {kF0, kF1});
  line.repeat(behind, {kI1, kW1, kF1});
  line.repeat(shape.micro_batches - shape.stages - behind, {kF0, kB1, kF1, kB0});
  line.repeat(behind, {kB1, kF1, kB0});
  // The backward passes that no forward pass is left for: the first half of them whole, then their
  // W fill the waiting for the last gradients.
  for (std::int64_t i = 0; i < 2 * (stage + 1); ++i) {
    if (i <= stage) {
      line.add(i % 2 == 0 ? kB1 : kB0);
    } else {
      line.add(i % 2 == 0 ? kI1 : kI0);
    }
  }
  for (std::int64_t i = 0; i < behind; ++i) {
    line.add_oldest_weights();
    line.add(kI0);
  }
  for (std::int64_t i = 0; i <= stage; ++i) line.add_oldest_weights();
  return line.take();
}

// Megatron's order deals out S micro-batches at a time.
Status whole_groups(const PipelineShape& shape) {
  const std::int64_t rest = shape.micro_batches % shape.stages;
  if (rest == 0) return Ok{};
  const std::int64_t less = shape.micro_batches - rest;
  return input_error("schedule interleaved: expected a multiple of the " +
                     std::to_string(shape.stages) + " stages as number of micro-batches, found " +
                     std::to_string(shape.micro_batches) + "; try " +
                     (less > 0 ? std::to_string(less) + " or " : "") +
                     std::to_string(less + shape.stages) + " micro-batches, or 1f1b");
}

// Every stage has a middle in which both of its chunks take forward and backward passes.
Status twice_the_stages(const PipelineShape& shape) {
  if (shape.micro_batches >= 2 * shape.stages) return Ok{};
  return input_error("schedule dualpipev: expected at least twice as many micro-batches as the " +
                     std::to_string(shape.stages) + " stages, found " +
                     std::to_string(shape.micro_batches) + "; try " +
                     std::to_string(2 * shape.stages) + " micro-batches, or zb-v");
}

Status any_number(const PipelineShape&) { return Ok{}; }

struct Row {
  ScheduleKind kind;
  const char* name;
  std::int64_t least_chunks;  // per stage
  std::int64_t most_chunks;
  Status (*micro_batches)(const PipelineShape&);  // which numbers of them it takes
  std::vector<std::int64_t> (*placement)(const PipelineShape&);
  StepLine (*line)(LineWriter, const PipelineShape&, std::int64_t stage);
};
constexpr std::int64_t kAny = std::int64_t{1} << 30;
constexpr Row kRows[] = {
    {ScheduleKind::kGPipe, "gpipe", 1, 1, any_number, loop_placement, gpipe},
    {ScheduleKind::k1F1B, "1f1b", 1, 1, any_number, loop_placement, one_forward_one_backward},
    {ScheduleKind::kInterleaved, "interleaved", 2, kAny, whole_groups, loop_placement, interleaved},
    {ScheduleKind::kZbH1, "zb-h1", 1, 1, any_number, loop_placement, zb_h1},
    {ScheduleKind::kZbV, "zb-v", 2, 2, any_number, v_placement, zb_v},
    {ScheduleKind::kDualPipeV, "dualpipev", 2, 2, twice_the_stages, v_placement, dual_pipe_v},
};

const Row& row_of(ScheduleKind kind) {
  for (const Row& row : kRows) {
    if (row.kind == kind) return row;
  }
  AUTOPAR_CHECK(false, "a schedule without a row");
}

std::string shape_text(const PipelineShape& shape) {
  return std::to_string(shape.stages) + " stages with " + std::to_string(shape.chunks_per_stage) +
         " chunks each and " + std::to_string(shape.micro_batches) + " micro-batches";
}

bool takes(const Row& row, std::int64_t chunks) {
  return row.least_chunks <= chunks && chunks <= row.most_chunks;
}

// "gpipe, 1f1b or zb-h1": those that take so many chunks per stage.
std::string names_with(std::int64_t chunks) {
  std::string names, last;
  for (const Row& row : kRows) {
    if (!takes(row, chunks)) continue;
    if (!last.empty()) names += (names.empty() ? "" : ", ") + last;
    last = row.name;
  }
  return names.empty() ? last : names + " or " + last;
}

// Micro-batches of all chunks beyond this are a mistake.
constexpr std::int64_t kMostPasses = std::int64_t{1} << 26;

Status verify_numbers(const Row& row, const PipelineShape& shape) {
  const std::string where = std::string("schedule ") + row.name + ": ";
  for (const std::int64_t size : {shape.stages, shape.chunks_per_stage, shape.micro_batches}) {
    if (size >= 1) continue;
    return input_error(where + "expected at least 1 of each, found " + shape_text(shape));
  }
  if (shape.chunks_per_stage > kMostPasses / shape.stages ||
      shape.micro_batches > kMostPasses / (shape.stages * shape.chunks_per_stage)) {
    return input_error(where + shape_text(shape) + " are too many; expected a product of up to " +
                       std::to_string(kMostPasses));
  }
  if (!takes(row, shape.chunks_per_stage)) {
    return input_error(where + "expected " + std::to_string(row.least_chunks) +
                       (row.most_chunks == kAny ? " or more" : "") +
                       (row.most_chunks == 1 ? " chunk" : " chunks") + " per stage, found " +
                       std::to_string(shape.chunks_per_stage) + "; try " +
                       names_with(shape.chunks_per_stage));
  }
  return Ok{};
}

}  // namespace

const char* name_of(ScheduleKind kind) { return row_of(kind).name; }

std::int64_t least_chunks(ScheduleKind kind) { return row_of(kind).least_chunks; }

std::optional<ScheduleKind> parse_schedule_kind(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.kind;
  }
  return std::nullopt;
}

std::vector<ScheduleKind> schedule_kinds() {
  std::vector<ScheduleKind> kinds;
  for (const Row& row : kRows) kinds.push_back(row.kind);
  return kinds;
}

Status verify_shape(ScheduleKind kind, const PipelineShape& shape) {
  const Row& row = row_of(kind);
  AUTOPAR_RETURN_IF_ERROR(verify_numbers(row, shape));
  return row.micro_batches(shape);
}

Result<PipelineSchedule> make_schedule(ScheduleKind kind, const PipelineShape& shape) {
  AUTOPAR_RETURN_IF_ERROR(verify_shape(kind, shape));
  const Row& row = row_of(kind);
  PipelineSchedule schedule;
  schedule.micro_batches = shape.micro_batches;
  schedule.stage_of_chunk = row.placement(shape);
  std::vector<std::vector<std::int64_t>> chunks_of(static_cast<std::size_t>(shape.stages));
  std::int64_t chunk = 0;
  for (const std::int64_t stage : schedule.stage_of_chunk) {
    chunks_of[static_cast<std::size_t>(stage)].push_back(chunk++);
  }
  std::int64_t stage = 0;
  for (std::vector<std::int64_t>& chunks : chunks_of) {
    LineWriter line(std::move(chunks), shape.micro_batches);
    schedule.lines.push_back(row.line(std::move(line), shape, stage++));
  }
  return schedule;
}

}  // namespace autopar
