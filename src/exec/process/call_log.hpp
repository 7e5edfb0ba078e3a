// Where this process is among its collectives, for who asks from another thread.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "autopar/exec.hpp"
#include "exec/whereabouts.hpp"

namespace autopar {

// Written by the thread that issues collectives, some hundred nanoseconds per call.
class CallLog {
 public:
  using Clock = std::chrono::steady_clock;

  // The rank is in a call, or in something else that waits for a group, for as long as it lives.
  // What is given must live as long.
  class Inside {
   public:
    Inside(CallLog& log, const CollectiveCall& call) : log_(log) {
      log_.enter(call.group, &call, nullptr);
    }
    Inside(CallLog& log, const RankGroup& group, const char* doing) : log_(log) {
      log_.enter(group, nullptr, doing);
    }
    ~Inside() { log_.come_out(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    CallLog& log_;
  };

  // The call that the rank is in.
  struct Stay {
    std::uint64_t number = 0;  // of all its calls
    Clock::time_point since;
    RankGroup group;
  };
  std::optional<Stay> stay() const;
  Whereabouts whereabouts() const;

 private:
  void enter(const RankGroup& group, const CollectiveCall* call, const char* doing);
  void come_out();

  mutable std::mutex mutex_;
  const CollectiveCall* call_ = nullptr;
  const char* doing_ = nullptr;       // where there is no call
  const RankGroup* group_ = nullptr;  // null: in no call
  Clock::time_point since_;
  std::uint64_t number_ = 0;
  std::string last_call_;
  std::map<RankGroup, std::uint64_t> meetings_;
};

std::string to_bytes(const Whereabouts& where);
// Errors (kRuntime): the bytes are not of to_bytes().
Result<Whereabouts> whereabouts_of(std::string_view bytes);

}  // namespace autopar
