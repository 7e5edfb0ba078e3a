// The NCCL communicators of one rank: the world, one per group that it is in, and one per pair that
// it exchanges messages in.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exec/nccl/library.hpp"
#include "exec/nccl/nccl.hpp"
#include "exec/nccl/waiting.hpp"

namespace autopar {

// NCCL wants all calls on a communicator in one order on all of its ranks. A message is received
// when its receiver comes to it, which may be before or behind a collective of the same two ranks:
// so messages have communicators of their own.
enum class CommUse : std::uint8_t { kCollectives, kMessages };

// All communicators are non-blocking: a call that NCCL has not finished is asked for until it is,
// so that a rank that never comes ends in a time-out instead of a hang.
class NcclComms {
 public:
  // The world. Every rank calls it; `libraries` and `stop` must outlive it.
  static Result<std::unique_ptr<NcclComms>> create(const GpuLibraries& libraries,
                                                   const NcclWorld& world, Stop& stop);
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  // A communicator for each group of any rank that is not there yet. Every rank calls it, with the
  // groups of its own program, while nothing is under way on the world.
  Status open_groups(CommUse use, const std::vector<std::vector<std::int64_t>>& groups);
  // The communicator of the group, whose order is the group's; null where there is none.
  ncclComm_t find(CommUse use, const std::vector<std::int64_t>& group) const;
  // Waits until NCCL has put on the stream what a call returned `issued` for: only then may more be
  // put there.
  Result<Waited> settle(ncclComm_t comm, ncclResult_t issued) const;
  // What has gone wrong on the communicator since.
  Status state_of(ncclComm_t comm) const;
  // Ends what is under way on all communicators and gives them up.
  void abort();

 private:
  NcclComms(const GpuLibraries& libraries, const NcclWorld& world, Stop& stop)
      : nccl_(libraries.nccl),
        rank_(world.rank),
        size_(world.size),
        timeout_(world.timeout),
        exchange_(world.exchange),
        stop_(stop) {}

  Status open_world();
  Result<std::vector<std::vector<std::int64_t>>> groups_of_all(
      const std::vector<std::vector<std::int64_t>>& own) const;
  Status come_into_being(ncclComm_t& comm, const std::string& doing) const;
  Status come_together(ncclComm_t comm, ncclResult_t issued, const std::string& doing) const;
  Error error_of(ncclComm_t comm, ncclResult_t result) const;
  void close(ncclComm_t comm) const;

  const NcclEntries& nccl_;
  int rank_;
  int size_;
  Seconds timeout_;
  std::function<Result<std::vector<std::string>>(const std::string&)> exchange_;
  Stop& stop_;
  ncclComm_t world_ = nullptr;
  ncclComm_t unused_ = nullptr;  // what a split gives that this rank is not in
  std::map<std::pair<CommUse, std::vector<std::int64_t>>, ncclComm_t> groups_;
};

}  // namespace autopar
