#include "pipeline/action_table.hpp"

#include <algorithm>

namespace autopar {

namespace {

std::string where(ActionPlace place) { return line_text(place.line) + ": "; }

// Fills the table, action by action.
class Filling {
 public:
  explicit Filling(const PipelineSchedule& schedule) : schedule_(schedule) {}

  Result<ActionTable> filled() {
    AUTOPAR_RETURN_IF_ERROR(verify_placement());
    table_.chunks = static_cast<std::int64_t>(schedule_.stage_of_chunk.size());
    table_.micro_batches = schedule_.micro_batches;
    table_.has_backward = !is_forward_only(schedule_);
    const std::size_t passes = table_.index(table_.chunks, 0);
    table_.makers.resize(2 * passes);
    table_.weights.resize(passes);
    table_.reduces.resize(schedule_.stage_of_chunk.size());
    table_.updates.resize(schedule_.stage_of_chunk.size());
    last_pass_.resize(schedule_.stage_of_chunk.size(), -1);
    for (std::size_t l = 0; l < schedule_.lines.size(); ++l) {
      for (std::size_t i = 0; i < schedule_.lines[l].size(); ++i) {
        AUTOPAR_RETURN_IF_ERROR(add({static_cast<std::int32_t>(l), static_cast<std::int32_t>(i)}));
      }
    }
    for (std::int64_t chunk = 0; chunk < table_.chunks; ++chunk) {
      for (std::int64_t m = 0; m < table_.micro_batches; ++m) {
        AUTOPAR_RETURN_IF_ERROR(verify_passes(chunk, m));
      }
      AUTOPAR_RETURN_IF_ERROR(verify_end(static_cast<std::size_t>(chunk)));
    }
    return std::move(table_);
  }

 private:
  Status verify_placement() const {
    if (schedule_.micro_batches < 1) return input_error("expected at least one micro-batch");
    const auto stages = static_cast<std::int64_t>(schedule_.lines.size());
    for (std::size_t chunk = 0; chunk < schedule_.stage_of_chunk.size(); ++chunk) {
      const std::int64_t stage = schedule_.stage_of_chunk[chunk];
      if (stage >= 0 && stage < stages) continue;
      return input_error("chunk " + std::to_string(chunk) + " is on stage " +
                         std::to_string(stage) + "; expected 0 to " + std::to_string(stages - 1) +
                         ", as there are " + std::to_string(stages) + " lines");
    }
    return Ok{};
  }

  Status add(ActionPlace place) {
    const StepAction& action = action_at(schedule_, place);
    const auto title = [&] { return where(place) + to_text(action); };
    if (action.chunk < 0 || action.chunk >= table_.chunks) {
      return input_error(title() + ": expected a chunk from 0 to " +
                         std::to_string(table_.chunks - 1));
    }
    const auto chunk = static_cast<std::size_t>(action.chunk);
    if (schedule_.stage_of_chunk[chunk] != place.line) {
      return input_error(title() + " stands in the line of another stage; chunk " +
                         std::to_string(chunk) + " is on stage " +
                         std::to_string(schedule_.stage_of_chunk[chunk]) + ", " +
                         line_text(schedule_.stage_of_chunk[chunk]));
    }
    if (!is_pass(action.phase)) {
      if (action.micro_batch != -1) {
        return input_error(title() + ": expected no micro-batch: R and U run once");
      }
      const bool is_reduce = action.phase == StepPhase::kReduce;
      return enter((is_reduce ? table_.reduces : table_.updates)[chunk], place);
    }
    if (action.micro_batch < 0 || action.micro_batch >= table_.micro_batches) {
      return input_error(title() + ": expected a micro-batch from 0 to " +
                         std::to_string(table_.micro_batches - 1));
    }
    last_pass_[chunk] = place.index;
    if (action.phase == StepPhase::kWeightGradients) {
      return enter(table_.weights[table_.index(action.chunk, action.micro_batch)], place);
    }
    if (makes_activation(action.phase)) {
      const std::size_t value = table_.activation(action.chunk, action.micro_batch);
      AUTOPAR_RETURN_IF_ERROR(enter(table_.makers[value], place));
    }
    if (makes_gradient(action.phase)) {
      const std::size_t value = table_.gradient(action.chunk, action.micro_batch);
      AUTOPAR_RETURN_IF_ERROR(enter(table_.makers[value], place));
    }
    return Ok{};
  }

  Status enter(ActionPlace& slot, ActionPlace place) const {
    if (slot.line < 0) {
      slot = place;
      return Ok{};
    }
    const std::string action = to_text(action_at(schedule_, place));
    const std::string other = to_text(action_at(schedule_, slot));
    return input_error(where(place) + action +
                       (action == other ? " stands twice; expected exactly once"
                                        : " stands beside " + other +
                                              ", which is the same pass; expected one of them"));
  }

  // All passes of a micro-batch through a chunk are there, and each stands behind what it needs of
  // the same chunk.
  Status verify_passes(std::int64_t chunk, std::int64_t micro_batch) const {
    const std::int64_t stage = schedule_.stage_of_chunk[static_cast<std::size_t>(chunk)];
    const ActionPlace forward = table_.makers[table_.activation(chunk, micro_batch)];
    const ActionPlace backward = table_.makers[table_.gradient(chunk, micro_batch)];
    const ActionPlace weights = table_.weights[table_.index(chunk, micro_batch)];
    const auto missing = [&](StepPhase phase, const std::string& otherwise) {
      return input_error(line_text(stage) + ": " + to_text({chunk, phase, micro_batch}) +
                         " stands nowhere" + otherwise + "; expected exactly once");
    };
    if (forward.line < 0) return missing(StepPhase::kForward, "");
    if (!table_.has_backward) return Ok{};
    if (backward.line < 0) {
      return missing(StepPhase::kBackward, weights.line < 0 ? ", nor I and W in its place"
                                                            : ", nor I, to which its W belongs");
    }
    if (forward.index > backward.index) return before(backward, forward);
    const StepPhase phase = action_at(schedule_, backward).phase;
    if (phase == StepPhase::kInputGradients) {
      if (weights.line < 0) return missing(StepPhase::kWeightGradients, ", but its I does");
      if (backward.index > weights.index) return before(weights, backward);
    } else if (weights.line >= 0) {
      return input_error(where(weights) + to_text(action_at(schedule_, weights)) +
                         " stands beside " + to_text(action_at(schedule_, backward)) +
                         ", which has the gradients of weights already");
    }
    return Ok{};
  }

  // R and U come last.
  Status verify_end(std::size_t chunk) const {
    const ActionPlace reduce = table_.reduces[chunk];
    const ActionPlace update = table_.updates[chunk];
    for (const ActionPlace last : {reduce, update}) {
      if (last.line < 0 || last.index > last_pass_[chunk]) continue;
      return before(last, {last.line, last_pass_[chunk]});
    }
    if (reduce.line >= 0 && update.line >= 0 && update.index < reduce.index) {
      return before(update, reduce);
    }
    return Ok{};
  }

  Error before(ActionPlace early, ActionPlace late) const {
    return input_error(where(early) + to_text(action_at(schedule_, early)) + " stands before " +
                       to_text(action_at(schedule_, late)) + ", which it needs");
  }

  const PipelineSchedule& schedule_;
  ActionTable table_;
  std::vector<std::int32_t> last_pass_;  // by chunk: where it stands in the line
};

}  // namespace

std::string line_text(std::int64_t line) { return "line " + std::to_string(line + 1); }

bool makes_activation(StepPhase phase) {
  return phase == StepPhase::kForward || phase == StepPhase::kForwardBackward;
}

bool makes_gradient(StepPhase phase) {
  return phase == StepPhase::kBackward || phase == StepPhase::kInputGradients ||
         phase == StepPhase::kForwardBackward;
}

const StepAction& action_at(const PipelineSchedule& schedule, ActionPlace place) {
  return schedule
      .lines[static_cast<std::size_t>(place.line)][static_cast<std::size_t>(place.index)];
}

Needs ActionTable::needs(const StepAction& action) const {
  Needs needs;
  if (makes_activation(action.phase) && action.chunk > 0) {
    needs.values[needs.count++] = activation(action.chunk - 1, action.micro_batch);
  }
  if (makes_gradient(action.phase) && action.chunk + 1 < chunks) {
    needs.values[needs.count++] = gradient(action.chunk + 1, action.micro_batch);
  }
  return needs;
}

Result<ActionTable> table_of(const PipelineSchedule& schedule) {
  return Filling(schedule).filled();
}

}  // namespace autopar
