#include "planning/pipelines/waiting_values.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "planning/pipelines/message.hpp"

namespace autopar {

namespace {

Bytes bytes_of(const HandedValue& value, const Placed& placed) {
  return local_bytes(placed.spec, value.value.shape, value.value.dtype, placed.mesh);
}

class Waiting {
 public:
  explicit Waiting(const PipelinePlan& plan) : plan_(plan), stages_(plan.stage_bytes.size()) {
    passes_.resize(plan.chunks.size());
    for (std::vector<ActionTime>& of_chunk : passes_) {
      of_chunk.resize(static_cast<std::size_t>(plan.schedule.micro_batches));
    }
    for (std::size_t l = 0; l < plan.schedule.lines.size(); ++l) {
      for (std::size_t a = 0; a < plan.schedule.lines[l].size(); ++a) {
        const StepAction& action = plan.schedule.lines[l][a];
        if (action.phase != StepPhase::kForward) continue;
        const auto chunk = static_cast<std::size_t>(action.chunk);
        passes_[chunk][static_cast<std::size_t>(action.micro_batch)] = plan.times.actions[l][a];
      }
    }
  }

  void add(const Handed& handed) {
    const auto maker = static_cast<std::size_t>(handed.from);
    const std::int64_t from = plan_.schedule.stage_of_chunk[maker];
    // By stage and layout: a stage has a value once in each.
    std::map<std::pair<std::int64_t, std::string>, Reading> readings;
    for (const int to : handed.to) {
      const auto reader = static_cast<std::size_t>(to);
      const HandedValue value =
          handed_value(plan_.chunks[maker], plan_.chunks[reader], handed.value);
      const std::int64_t stage = plan_.schedule.stage_of_chunk[reader];
      const std::string layout = to_text(value.by_reader.spec, value.by_reader.mesh);
      Reading& reading = readings[{stage, layout}];
      reading.bytes = bytes_of(value, value.by_reader);
      reading.last = std::max(reading.last, reader);
      if (stage == from || reader != maker + 1) continue;
      for (std::size_t m = 0; m < passes_[maker].size(); ++m) {
        add(from, bytes_of(value, value.by_maker), passes_[maker][m].end, arrival(maker, m));
      }
    }
    for (const auto& [at, reading] : readings) {
      const bool is_sent = reading.last == maker + 1 && at.first != from;
      for (std::size_t m = 0; m < passes_[reading.last].size(); ++m) {
        const Seconds there = is_sent ? arrival(maker, m) : passes_[maker][m].end;
        add(at.first, reading.bytes, there, passes_[reading.last][m].start);
      }
    }
  }

  std::vector<Bytes> most() const {
    std::vector<Bytes> most_of;
    for (const Changes& changes : stages_) {
      Bytes now = 0, most = 0;
      for (const auto& [time, bytes] : changes) most = std::max(most, now += bytes);
      most_of.push_back(most);
    }
    return most_of;
  }

 private:
  // Of a stage, by time; at one time what goes goes first.
  using Changes = std::multimap<std::pair<Seconds, bool>, Bytes>;
  struct Reading {
    Bytes bytes = 0;
    std::size_t last = 0;  // the chunk that reads it last
  };

  Seconds arrival(std::size_t chunk, std::size_t micro_batch) const {
    return plan_.times.arrivals[chunk][micro_batch];
  }

  void add(std::int64_t stage, Bytes bytes, Seconds from, Seconds to) {
    if (!(from < to)) return;
    Changes& changes = stages_[static_cast<std::size_t>(stage)];
    changes.insert({{from, true}, bytes});
    changes.insert({{to, false}, -bytes});
  }

  const PipelinePlan& plan_;
  std::vector<std::vector<ActionTime>> passes_;  // by chunk and micro-batch
  std::vector<Changes> stages_;
};

}  // namespace

std::vector<Bytes> bytes_waiting(const PipelinePlan& plan) {
  Waiting waiting(plan);
  for (const Handed& handed : plan.handed) {
    if (handed.in_pass) waiting.add(handed);
  }
  return waiting.most();
}

}  // namespace autopar
