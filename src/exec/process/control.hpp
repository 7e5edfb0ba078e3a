// The TCP connections that join the processes of a run: a star round rank 0. Small things go over
// it (identifiers, times, outputs to be compared), never the collectives of a program.
//
//   Result<std::unique_ptr<ControlChannel>> channel = ControlChannel::join({.rank = 1, ...});
//   Result<std::string> id = channel->broadcast(rank == 0 ? make_id() : "");
//
// A thread watches the connections. Where one ends without a word, its process was killed or has
// crashed: rank 0 says on stderr which rank that was, tells the others, and every process ends with
// exit code 5. Where a rank reports a failure, the calls of all others return it as their error,
// and a process that does not come to leave() within kGrace ends too.
//
// The thread also watches the calls in calls(): where one takes too long, or waits for a rank that
// has left, rank 0 asks all ranks what they are doing, which their watching threads answer whatever
// their main threads do, and the answer to who waits for whom is the failure of all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autopar/support.hpp"
#include "exec/process/call_log.hpp"
#include "exec/process/sockets.hpp"

namespace autopar {

class ControlChannel {
 public:
  static constexpr Seconds kGrace = 5;

  // Where rank 0 listens, to be carried to the others.
  struct Address {
    std::vector<std::string> hosts;  // numeric addresses or names, to be tried in order
    int port = 0;
    std::string cookie;  // a secret that every connection begins with
  };
  // Rank 0 waits for all others. Errors (kRuntime): not all came, or rank 0 could not be reached,
  // within `timeout`; the ranks that are missing are named.
  static Result<std::unique_ptr<ControlChannel>> accept(Listener listener, int size,
                                                        const std::string& cookie, Seconds timeout);
  static Result<std::unique_ptr<ControlChannel>> connect(const Address& address, int rank, int size,
                                                         Seconds timeout);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Collective calls, from one thread, in one order on all ranks. Errors (kRuntime): failure().
  Result<std::string> broadcast(std::string from_rank_0);
  Result<std::vector<std::string>> gather(std::string own);  // by rank; empty but on rank 0
  Status barrier();

  // The first failure that this rank knows of, in words that name the rank.
  std::optional<Error> failure() const;
  bool failed() const { return failed_; }
  // Where this rank is among its collectives, to be kept by the thread that issues them.
  CallLog& calls() { return calls_; }
  // From now on a call fails that takes longer, or for whose group a rank has come to leave().
  void limit_calls(Seconds timeout) { call_limit_ = timeout; }
  // Tells all ranks, unless a failure is known already.
  void report(const Error& own);
  // What to do at once when a failure becomes known: in the watching thread, or here where one is
  // known already.
  void on_failure(std::function<void()> action);
  // Before a process is ended from the watching thread, e.g. to remove temporary files.
  void on_sudden_end(std::function<void()> action);

  // The last call: waits until all ranks have come here, or have failed. Rank 0 says why before it
  // lets the others go.
  Status leave(const std::function<void(const Error&)>& say);

 private:
  enum class Frame : std::uint8_t { kHello, kData, kFailure, kBye, kLeft, kAsk, kWhere, kHere };
  struct Peer {
    int descriptor = -1;
    std::string name;     // "rank 3 (process 17 on host)"
    std::string process;  // "process 17 on host"
    std::deque<std::string> received;
    bool bye = false;
    Whereabouts last;  // of a rank that has come to leave()
    std::mutex writing;
  };
  // Rank 0 has asked all ranks what they are doing.
  struct Inquiry {
    int asker = 0;
    std::string why;
    std::string advice;  // what to try; may be empty
    Whereabouts asked;   // where the asker was
    std::chrono::steady_clock::time_point deadline;
    std::vector<Whereabouts> answers;  // by rank
    std::vector<bool> has_answered;
  };
  struct Asked {
    std::uint64_t call = 0;  // its number
    std::chrono::steady_clock::time_point first;
    std::chrono::steady_clock::time_point last;
  };

  ControlChannel(int rank, int size) : rank_(rank), size_(size) {}
  void start();
  void watch();
  bool read_frame(std::size_t peer);  // false: the connection has ended
  void tell_all(const Error& failure);
  void tell_left(int rank);
  void take_failure(const Error& failure);
  // Of the watching thread, in inquiry.cpp.
  void watch_own_call();
  void ask(const std::string& why, const std::string& advice);
  void begin_inquiry(int asker, std::string_view question);
  void tell_whereabouts(std::string_view number);
  void take_answer(std::size_t rank, std::string_view answer);
  void go_on_with_inquiry();
  void rank_0_is_silent(const std::string& why, const RankGroup& group);
  Whereabouts own_whereabouts() const;
  static void say_at_once(const Error& why);  // whatever the main thread does
  [[noreturn]] void end_process(const Error& why);
  void send(Peer& peer, Frame frame, std::string_view payload);
  Result<std::string> next(Peer& peer);
  bool all_gone() const;

  int rank_;
  int size_;
  // Rank 0: by rank, its own unused. Others: one, rank 0.
  std::vector<std::unique_ptr<Peer>> peers_;
  int wake_[2] = {-1, -1};  // a pipe that ends the watching thread
  std::thread watcher_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Error> failure_;
  std::atomic<bool> failed_ = false;
  std::map<std::int64_t, std::chrono::steady_clock::time_point> left_;  // when it was learnt
  bool leaving_ = false;
  CallLog calls_;
  std::atomic<Seconds> call_limit_ = 1e8;
  // Of the watching thread.
  std::optional<Asked> asked_;
  std::optional<Inquiry> inquiry_;
  std::uint64_t inquiries_ = 0;
  std::function<void()> on_failure_;
  std::function<void()> on_sudden_end_;
};

}  // namespace autopar
