// The meeting place of ranks that are threads of one process.
//
//   ThreadWorld world(4, 60.0);
//   // in the thread of rank r:
//   ThreadCommunicator communicator(world, r);
//   Status status = communicator.run(call, input, output);
//   world.finish(r);
//
// The k-th call of a group's ranks for that group is one meeting: they wait until all have come,
// each does its part of the work on the others' buffers, and all leave when all are done. Waiting
// is on condition variables, never spinning, so that many ranks fit on few cores.
//
// The world stops (every call returns an error) when
// - ranks of a group meet with different calls;
// - no rank can go on, because all that have not finished wait for another: found at once;
// - nothing has happened for `timeout` seconds while a rank waits;
// - a rank says so (abort).
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "autopar/exec.hpp"

namespace autopar {

class ThreadWorld {
 public:
  // `programs`: which one each rank runs; empty: all the same. In ranks of one program the calls
  // that meet are of one op, too.
  ThreadWorld(int size, Seconds timeout, std::vector<std::size_t> programs = {});
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const { return static_cast<int>(ranks_.size()); }
  // Precondition: call.group[call.position] == rank, and every rank calls from one thread.
  Status run(int rank, const CollectiveCall& call, const void* input, void* output);
  // As those of Communicator.
  Status post(int rank, const CollectiveCall& call, const void* input);
  Status take(int rank, const CollectiveCall& call, void* output);
  // The rank makes no further calls; whoever waits for it learns so at once.
  void finish(int rank);
  void abort(const std::string& reason);
  // Why the world stopped.
  std::optional<std::string> failure() const;

 private:
  struct Meeting {
    explicit Meeting(std::size_t group_size)
        : calls(group_size), inputs(group_size), outputs(group_size) {}
    std::vector<const CollectiveCall*> calls;  // by position; null: has not come
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    std::size_t arrived = 0;
    std::size_t done = 0;
    std::condition_variable changed;
  };
  // What one rank has posted to another and that one has not taken.
  struct Mailbox {
    std::deque<std::string> messages;
    const CollectiveCall* awaited = nullptr;  // the receiver waits in this call
    std::condition_variable changed;
  };
  struct Rank {
    const CollectiveCall* waiting_in = nullptr;  // the call that waits for others to come
    std::string last_call;                       // the one it came out of
    bool finished = false;
  };

  Error stop(std::string reason);
  bool run_one_program(std::int64_t a, std::int64_t b) const;
  void wait_for_all(Meeting& meeting, std::unique_lock<std::mutex>& lock);
  // Until `done`, or until the world has stopped, which it does after the time limit.
  void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                  const std::function<bool()>& done);
  std::optional<std::string> deadlock() const;
  std::string who_waits() const;
  std::string state_of(std::int64_t rank) const;

  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> programs_;
  std::map<std::vector<std::int64_t>, std::shared_ptr<Meeting>> open_;  // not yet complete
  std::map<std::vector<std::int64_t>, Mailbox> mail_;                   // by sender and receiver
  std::optional<std::string> failure_;
  Clock::time_point last_event_;
  Seconds timeout_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }
  Status run(const CollectiveCall& call, const void* input, void* output) override {
    return world_.run(rank_, call, input, output);
  }
  Status post(const CollectiveCall& call, const void* input) override {
    return world_.post(rank_, call, input);
  }
  Status take(const CollectiveCall& call, void* output) override {
    return world_.take(rank_, call, output);
  }
  void abort(const std::string& reason) override { world_.abort(reason); }

 private:
  ThreadWorld& world_;
  int rank_;
};

}  // namespace autopar
