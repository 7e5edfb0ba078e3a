// The calls of one rank in a run: its programs in the order of its line, with the values that pass
// between them.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "exec/rank.hpp"

namespace autopar {

class RankCalls {
 public:
  RankCalls(Rank& rank, const RunRequest& request, const Wiring& wiring, const RankFeeds& feeds);

  // All steps; the slices of the rank's results. Throws Ort::Exception.
  std::vector<Ort::Value> run();

 private:
  using Value = std::shared_ptr<Ort::Value>;
  using Made = std::pair<Port, std::int64_t>;  // an output of one micro-batch, or of all (-1)
  // One value on its way: which movement, of which micro-batch, in which step.
  using Message = std::tuple<int, std::size_t, std::int64_t>;

  void begin_step(int step);
  void call(const ProgramCall& call);
  void end_step();
  std::vector<Ort::Value> results();

  Ort::Value input(const ProgramCall& call, std::size_t input);
  Ort::Value accumulator(const ProgramCall& call, const BoundaryValue& value);
  Ort::Value made(const ProgramCall& call, const InputSource& source);
  void keep(const ProgramCall& call, std::size_t output, Value value);
  void let_go(const ProgramCall& call);
  using Moved = std::pair<std::size_t, std::int64_t>;  // movement, micro-batch
  void let_go_of_moved(const Moved& moved);

  // What the rank has of a moved value: put together of its own slice and messages.
  Value moved(std::size_t movement, std::int64_t micro_batch, int step, const Value& own);
  void send(std::size_t movement, const Ort::Value& value);
  std::string receive(std::int64_t from, const Message& message);
  std::size_t bytes_of(std::size_t movement, std::int64_t from, std::int64_t to) const;
  void expect_messages(const std::vector<std::size_t>& movements, std::int64_t micro_batch);
  CollectiveCall message_call(CollectiveKind kind, std::size_t movement, std::int64_t from,
                              std::int64_t to) const;

  Rank& rank_;
  const RunRequest& request_;
  const Wiring& wiring_;
  const RankFeeds& feeds_;
  const std::int64_t self_;
  int step_ = 0;
  int call_number_ = 0;

  std::map<std::pair<std::int64_t, std::string>, Value> accumulators_;  // by chunk and name
  std::map<Made, Value> made_;
  std::map<Made, int> readers_;       // calls of this rank that are yet to read it
  std::map<Port, Value> state_;       // next values that are read now
  std::map<Port, Value> next_state_;  // of updates, read in the next step
  std::map<Moved, Value> arrived_;
  std::map<Moved, int> moved_readers_;           // calls of this rank that are yet to read it
  std::map<std::size_t, int> readers_of_moved_;  // by movement: inputs of this rank's programs
  std::map<std::size_t, std::map<std::int64_t, Value>> parts_;  // by result and micro-batch
  std::map<Port, std::vector<std::size_t>> movements_of_;
  std::map<Port, int> readers_of_;  // inputs of this rank's programs, for the same micro-batch
  // Messages of each rank to this one, in the order in which it sends them.
  std::map<std::int64_t, std::deque<Message>> expected_;
  std::map<std::pair<std::int64_t, Message>, std::string> early_;  // were before the one awaited
};

}  // namespace autopar
