// A Communicator between processes of an MPI job. Bytes go by MPI; what a collective computes is
// the code that ranks as threads run (collective_math), in the same order: the same bits.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/exec.hpp"
#include "exec/mpi/mpi_table.h"
#include "exec/process/call_log.hpp"

namespace autopar {

// What a rank that waits learns about the others.
struct Surroundings {
  std::function<bool()> failed;                   // any rank has; cheap
  std::function<std::optional<Error>()> failure;  // the first one, once failed() says so
  std::function<void(const std::string&)> abort;  // tells the others
  CallLog* calls = nullptr;     // to be kept; who watches it sees calls that take too long
  bool oversubscribed = false;  // more ranks than cores: wait by sleeping
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(const AutoparMpiTable& mpi, int rank, int size, Surroundings surroundings);
  ~MpiCommunicator() override;
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status prepare(const std::vector<GroupPartition>& partitions) override;
  // AllReduce and ReduceScatter: every position gets its part of all inputs (all-to-all), reduces
  // them in the group's order, and for AllReduce the parts are gathered: as many bytes as a ring
  // sends. Parts that are not contiguous are packed.
  Status run(const CollectiveCall& call, const void* input, void* output) override;
  Status post(const CollectiveCall& call, const void* input) override;
  Status take(const CollectiveCall& call, void* output) override;
  Status settle() override;
  void abort(const std::string& reason) override { surroundings_.abort(reason); }

 private:
  Result<AutoparMpiGroup*> group_of(const std::vector<std::int64_t>& ranks);
  Status wait(AutoparMpiRequest* request, const CollectiveCall& call);
  Status all_reduce(const CollectiveCall& call, const char* input, char* output);
  Status reduce_scatter(const CollectiveCall& call, const char* input, char* output);
  Status all_gather(const CollectiveCall& call, const char* input, char* output);
  Status all_to_all(const CollectiveCall& call, const char* input, char* output);
  Status broadcast(const CollectiveCall& call, const char* input, char* output);
  Status permute(const CollectiveCall& call, const char* input, char* output);
  Status send(const CollectiveCall& call, const char* input, char* output);
  Status receive(const CollectiveCall& call, char* output, int tag);
  // Parts for all positions in `packed`, as many in `received`.
  Status exchange(const CollectiveCall& call, std::size_t part);
  // From `part`, one of `packed` and `reduced`, to all in `received`.
  Status gather(const CollectiveCall& call, const std::string& part);

  const AutoparMpiTable& mpi_;
  int rank_;
  int size_;
  Surroundings surroundings_;
  std::map<std::vector<std::int64_t>, AutoparMpiGroup*> groups_;
  // All that MPI is given to read or write. A request that is given up, since another rank has
  // failed, stays under way, and peers may go on with it: its buffers then live as long as the
  // process.
  struct Buffers {
    std::string packed;
    std::string reduced;
    std::string received;
  };
  void give_up_buffers();
  // Messages under way, in the order of their posting.
  struct Posted {
    CollectiveCall call;
    std::unique_ptr<Buffers> buffers;  // `packed`
    AutoparMpiRequest* request = nullptr;
  };
  std::vector<Posted> posted_;
  std::unique_ptr<Buffers> buffers_ = std::make_unique<Buffers>();
  char error_[AUTOPAR_MPI_ERROR_BYTES] = "";
};

}  // namespace autopar
