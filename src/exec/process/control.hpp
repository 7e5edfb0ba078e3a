// What joins the processes of a run: a TCP connection between rank 0 and each of the others. Small
// things go over it (identifiers, times, outputs to be compared), never the collectives of a
// program.
//
//   Result<std::unique_ptr<ControlChannel>> channel = ControlChannel::connect(address, 1, 4, 60);
//   Result<std::string> id = channel->bus().broadcast(rank == 0 ? make_id() : "");
//
// How processes find and know each other is in handshake.hpp, the bytes in frames.hpp and link.hpp,
// messages in bus.hpp, failures in failure.hpp, who waits for whom in inquiry.hpp. Here is the
// thread that watches the connections. Where one ends without a word, its process was killed or has
// crashed: rank 0 says on stderr which rank that was, tells the others, and every process ends with
// exit code
// 5. Where a rank reports a failure, the calls of all others return it as their error, and a
// process that does not come to leave() within kGrace ends too. A rank of which nothing is heard
// for too long is stopped or out of reach, which is a failure as well: watching threads say
// something now and then, whatever their main threads do.
//
// The thread also watches the calls in calls(): where one takes too long, or waits for a rank that
// has left, rank 0 asks all ranks what they are doing, which their watching threads answer, and the
// answer to who waits for whom is the failure of all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "autopar/support.hpp"
#include "exec/process/bus.hpp"
#include "exec/process/call_log.hpp"
#include "exec/process/failure.hpp"
#include "exec/process/handshake.hpp"
#include "exec/process/inquiry.hpp"
#include "exec/process/link.hpp"
#include "exec/process/sockets.hpp"

namespace autopar {

class ControlChannel {
 public:
  static constexpr Seconds kGrace = 5;

  // Rank 0 waits for all others. Errors: as accept_ranks() and reach_rank_0(). After joining, a
  // rank may be silent for `timeout` and a little more.
  static Result<std::unique_ptr<ControlChannel>> accept(Listener listener, int size,
                                                        const std::string& secret, Seconds timeout);
  static Result<std::unique_ptr<ControlChannel>> connect(const Rank0Address& address, int rank,
                                                         int size, Seconds timeout);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Its calls end with failure().
  Bus& bus() { return *bus_; }

  // The first failure that this rank knows of, in words that name the rank.
  std::optional<Error> failure() const { return failure_.known(); }
  bool failed() const { return failure_.has_happened(); }
  // Tells all ranks, unless a failure is known already.
  void report(const Error& own);
  // What to do at once when a failure becomes known, by any thread, while the result lives.
  [[nodiscard]] FirstFailure::Registration on_failure(std::function<void()> action) {
    return failure_.on_first(std::move(action));
  }
  // Before a process is ended from the watching thread, e.g. to remove temporary files. Waits for
  // an action that is running.
  void on_sudden_end(std::function<void()> action) { on_sudden_end_.set(std::move(action)); }

  // Where this rank is among its collectives, to be kept by the thread that issues them.
  CallLog& calls() { return calls_; }
  // From now on a call fails that takes longer, or for whose group a rank has come to leave().
  void limit_calls(Seconds timeout) { call_limit_ = timeout; }
  // From now on a rank that is silent for so long counts as stopped. All ranks must say the same,
  // since each speaks a few times in that time.
  void limit_silence(Seconds timeout) { silence_limit_ = timeout; }

  // The last call: waits until all ranks have come here, or have failed. Rank 0 says why before it
  // lets the others go.
  Status leave(const std::function<void(const Error&)>& say);

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct Peer {
    std::unique_ptr<Link> link;  // null: rank 0's own
    std::string name;            // "rank 3 (process 17 on host)"
    std::string process;         // "process 17 on host"
    // Of the watching thread.
    bool has_ended = false;
    Time heard;
    Time spoke;
    std::optional<Whereabouts> last;  // of a rank that has come to leave()
  };

  ControlChannel(int rank, std::vector<JoinedRank> joined, Seconds timeout);
  void start();
  void wake();

  // Of the watching thread.
  void watch();
  bool wait_for_peers(std::vector<std::size_t>& readable);  // false: this object goes
  void hear(std::size_t peer);
  Status understand(std::size_t peer, const Frame& frame);
  Status take_bye(std::size_t peer, const std::string& payload);
  void keep_in_touch();
  void watch_own_call();
  void go_on_with_inquiry();
  void end_where_stuck();
  void begin_inquiry(int asker, Question question);
  void rank_0_is_silent(const std::string& why, const RankGroup& group);
  [[noreturn]] void end_process(const Error& why);

  // Of any thread.
  bool take_failure(const Error& failure);
  void tell_failure(const Error& failure);
  void note_left(int rank);
  void tell_left(int rank);
  bool all_gone() const;  // with the lock
  void wait_until_sent(Seconds at_most) const;
  Whereabouts own_whereabouts() const;
  int rank_of(std::size_t peer) const { return rank_ == 0 ? static_cast<int>(peer) : 0; }

  int rank_;
  int size_;
  std::vector<Peer> peers_;  // rank 0: by rank, its own unused; others: one, rank 0
  int wake_[2] = {-1, -1};   // a pipe to the watching thread
  std::unique_ptr<Bus> bus_;
  FirstFailure failure_;
  ActionSlot on_sudden_end_;
  CallLog calls_;
  std::atomic<Seconds> call_limit_ = 1e8;
  std::atomic<Seconds> silence_limit_;
  std::atomic<bool> is_over_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> gone_;             // as peers_: it has come to leave(), or has ended
  std::map<std::int64_t, Time> left_;  // when it was learnt
  bool leaving_ = false;

  // Of the watching thread.
  CallWatch call_watch_;
  Inquiry inquiry_;
  std::uint64_t inquiry_number_ = 0;
  Time looked_;                 // at the peers, the last time
  std::optional<Time> end_at_;  // of a process that does not leave after a failure

  std::thread watcher_;
};

}  // namespace autopar
