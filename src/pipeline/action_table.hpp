// Where the actions of a schedule stand, what they need of each other, and an order in which all
// lines get on.
//
// What actions make and need are values: of each chunk and micro-batch the activation, which its
// forward pass makes and the next chunk's reads, and the gradient, which its backward pass makes
// and that of the chunk before reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autopar/pipeline.hpp"

namespace autopar {

// An action: its line, and where it stands there.
struct ActionPlace {
  std::int32_t line = -1;
  std::int32_t index = -1;
};

// What an action needs that other chunks made: up to two values.
struct Needs {
  std::size_t values[2] = {};
  std::size_t count = 0;
  const std::size_t* begin() const { return values; }
  const std::size_t* end() const { return values + count; }
};

struct ActionTable {
  std::int64_t chunks = 0;
  std::int64_t micro_batches = 0;
  bool has_backward = true;          // passes
  std::vector<ActionPlace> makers;   // by value
  std::vector<ActionPlace> weights;  // W, by chunk and micro-batch
  std::vector<ActionPlace> reduces;  // R, by chunk
  std::vector<ActionPlace> updates;  // U, by chunk

  std::size_t index(std::int64_t chunk, std::int64_t micro_batch) const {
    return static_cast<std::size_t>(chunk * micro_batches + micro_batch);
  }
  // Values: below makers.size().
  std::size_t activation(std::int64_t chunk, std::int64_t micro_batch) const {
    return 2 * index(chunk, micro_batch);
  }
  std::size_t gradient(std::int64_t chunk, std::int64_t micro_batch) const {
    return activation(chunk, micro_batch) + 1;
  }
  Needs needs(const StepAction& action) const;
};

bool makes_activation(StepPhase phase);  // F, FB
bool makes_gradient(StepPhase phase);    // B, I, FB

// Errors (kInput): those of verify_schedule but circles.
Result<ActionTable> table_of(const PipelineSchedule& schedule);
// All actions, those of a line as they stand, each behind what it needs. Errors (kInput): lines
// that wait for each other in a circle.
Result<std::vector<ActionPlace>> runnable_order(const PipelineSchedule& schedule,
                                                const ActionTable& table);

// A schedule with its actions where they stand, and in an order.
struct OrderedSchedule {
  PipelineSchedule schedule;
  ActionTable table;
  std::vector<ActionPlace> order;
};

const StepAction& action_at(const PipelineSchedule& schedule, ActionPlace place);
std::string line_text(std::int64_t line);  // "line 1": counted as in the file

}  // namespace autopar
