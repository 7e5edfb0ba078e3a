// An order in which the lines get on: each goes on until it needs what is not there, and is taken
// up again when it is. A value is made once and wakes one line, so this is linear in the number of
// actions.
#include <algorithm>

#include "pipeline/action_table.hpp"

namespace autopar {

namespace {

class Walk {
 public:
  Walk(const PipelineSchedule& schedule, const ActionTable& table)
      : schedule_(schedule),
        table_(table),
        made_(table.makers.size()),
        heads_(schedule.lines.size()),
        is_awake_(schedule.lines.size(), true) {
    for (const ActionPlace reduce : table.reduces) reduces_left_ += reduce.line >= 0;
    for (std::size_t l = schedule.lines.size(); l-- > 0;) awake_.push_back(l);
  }

  Result<std::vector<ActionPlace>> order() {
    while (!awake_.empty()) {
      const std::size_t line = awake_.back();
      awake_.pop_back();
      is_awake_[line] = false;
      go_on(line);
    }
    for (std::size_t l = 0; l < heads_.size(); ++l) {
      if (heads_[l] < schedule_.lines[l].size()) return circle(l);
    }
    return std::move(order_);
  }

 private:
  void go_on(std::size_t line) {
    const StepLine& actions = schedule_.lines[line];
    for (std::size_t& head = heads_[line]; head < actions.size(); ++head) {
      const StepAction& action = actions[head];
      if (!is_ready(action)) return;
      order_.push_back({static_cast<std::int32_t>(line), static_cast<std::int32_t>(head)});
      if (makes_activation(action.phase)) {
        made_[table_.activation(action.chunk, action.micro_batch)] = true;
        wake(action.chunk + 1);
      }
      if (makes_gradient(action.phase)) {
        made_[table_.gradient(action.chunk, action.micro_batch)] = true;
        wake(action.chunk - 1);
      }
      if (action.phase == StepPhase::kReduce && --reduces_left_ == 0) {
        for (std::int64_t chunk = 0; chunk < table_.chunks; ++chunk) wake(chunk);
      }
    }
  }

  bool is_ready(const StepAction& action) const {
    if (action.phase == StepPhase::kUpdate) return reduces_left_ == 0;
    for (const std::size_t value : table_.needs(action)) {
      if (!made_[value]) return false;
    }
    return true;
  }

  void wake(std::int64_t chunk) {
    if (chunk < 0 || chunk >= table_.chunks) return;
    const auto line =
        static_cast<std::size_t>(schedule_.stage_of_chunk[static_cast<std::size_t>(chunk)]);
    if (is_awake_[line]) return;
    is_awake_[line] = true;
    awake_.push_back(line);
  }

  // What the line that stands still needs first.
  ActionPlace missing(std::size_t line) const {
    const StepAction& action = schedule_.lines[line][heads_[line]];
    for (const std::size_t value : table_.needs(action)) {
      if (!made_[value]) return table_.makers[value];
    }
    for (const ActionPlace reduce : table_.reduces) {
      if (reduce.line < 0) continue;
      const std::size_t head = heads_[static_cast<std::size_t>(reduce.line)];
      if (static_cast<std::size_t>(reduce.index) >= head) return reduce;
    }
    AUTOPAR_CHECK(false, "a line that stands still and needs nothing");
  }

  // From any line that stands still one comes, from what it needs to who makes it, into the circle.
  Error circle(std::size_t line) const {
    std::vector<std::size_t> path;
    while (std::find(path.begin(), path.end(), line) == path.end()) {
      path.push_back(line);
      line = static_cast<std::size_t>(missing(line).line);
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), line));
    constexpr std::size_t kMost = 6;
    std::string text = "lines wait for each other in a circle: ";
    for (std::size_t i = 0; i < std::min(path.size(), kMost); ++i) {
      const ActionPlace needed = missing(path[i]);
      text += (i > 0 ? "; " : "") + line_text(static_cast<std::int64_t>(path[i])) + " is at " +
              to_text(schedule_.lines[path[i]][heads_[path[i]]]) + ", which needs " +
              to_text(action_at(schedule_, needed)) + " of " + line_text(needed.line);
    }
    return input_error(text + (path.size() > kMost ? "; ..." : ""));
  }

  const PipelineSchedule& schedule_;
  const ActionTable& table_;
  std::vector<char> made_;  // by value
  std::vector<std::size_t> heads_;
  std::vector<char> is_awake_;
  std::vector<std::size_t> awake_;
  std::size_t reduces_left_ = 0;
  std::vector<ActionPlace> order_;
};

}  // namespace

Result<std::vector<ActionPlace>> runnable_order(const PipelineSchedule& schedule,
                                                const ActionTable& table) {
  return Walk(schedule, table).order();
}

}  // namespace autopar
