// Messages of any length between rank 0 and the other ranks, and the collective calls over them.
//
//   Result<std::vector<std::string>> all = bus.gather(own);   // every rank, in one order
//
// Calls wait for as long as the others need, who may have long work to do, and end with the first
// failure that fail() is told: who watches the connections sees ranks that are dead, stopped or out
// of reach.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "exec/process/link.hpp"

namespace autopar {

class Bus {
 public:
  // Rank 0: a link to every other rank, the first null. Others: one, to rank 0. The links outlive
  // this.
  Bus(int rank, std::vector<Link*> links);

  // Collective calls, from one thread, in one order on all ranks. Errors: what fail() was told.
  Result<std::string> broadcast(std::string from_rank_0);
  Result<std::vector<std::string>> gather(std::string own);  // by rank; empty but on rank 0
  Status barrier();

  // Between rank 0 and another rank: `rank` is that of the other end.
  Status send(int rank, std::string_view message);
  Result<std::string> receive(int rank);
  // So many bytes may come from one rank before they are received; more are an error.
  void allow_unreceived(std::size_t bytes);

  // Of the receiving thread. Errors (kRuntime): more than may come.
  Status take(int rank, std::string_view piece, bool is_last);
  // Ends all calls, now and later, with this error.
  void fail(const Error& error);

 private:
  struct Mailbox {
    std::deque<std::string> messages;
    std::string begun;  // pieces of the next one
    std::size_t bytes = 0;
  };
  std::size_t index_of(int rank) const { return static_cast<std::size_t>(rank_ == 0 ? rank : 0); }
  bool has_failed() const;

  int rank_;
  std::vector<Link*> links_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mailbox> mailboxes_;  // as links_
  std::size_t most_unreceived_;
  std::optional<Error> failure_;
};

}  // namespace autopar
