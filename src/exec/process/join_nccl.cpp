// Processes whose collectives go by NCCL. The control channel comes first: over it go NCCL's
// identifier and the failures of other ranks.
#include <numeric>

#include "exec/nccl/nccl.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr Seconds kForItsWords = 20;

// All ranks' texts on all ranks: gathered on rank 0, then handed out.
Result<std::vector<std::string>> exchange(ControlChannel& control, const std::string& own) {
  AUTOPAR_TRY(gathered, control.bus().gather(own));
  WireWriter writer;
  for (const std::string& text : gathered) writer.put_text(text);
  AUTOPAR_TRY(bytes, control.bus().broadcast(writer.take()));
  std::vector<std::string> all;
  WireReader reader(bytes);
  for (int rank = 0; rank < control.size(); ++rank) all.push_back(reader.text());
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  return all;
}

// torchrun says where rank 0 is; under other launchers MPI carries the address, unless it is said.
Result<Joined> join_control(const Launch& launch, Seconds timeout) {
  if (launch.launcher == "torchrun" || launch.port != 0) {
    return join_control_at_address(launch, timeout);
  }
  return join_control_by_mpi(timeout);
}

// Opens NCCL with the first groups, so that what goes wrong is an error of the run: rank 0 tells
// it.
class NcclRank : public GpuCommunicator {
 public:
  NcclRank(NcclWorld world, int gpu, CallLog& calls)
      : world_(std::move(world)), gpu_(gpu), calls_(calls) {}
  int gpu() const override { return gpu_; }
  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  Status prepare(const std::vector<GroupPartition>& partitions) override {
    RankGroup all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    const CallLog::Inside inside(calls_, all, "the making of NCCL's communicators");
    if (nccl_ == nullptr) {
      AUTOPAR_TRY(opened, make_nccl_communicator(world_));
      nccl_ = std::move(opened);
    }
    return nccl_->prepare(partitions);
  }
  Status prepare_messages(const std::vector<std::vector<std::int64_t>>& pairs) override {
    AUTOPAR_CHECK(nccl_ != nullptr, "messages before prepare()");
    RankGroup all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    const CallLog::Inside inside(calls_, all, "the making of NCCL's communicators of pairs");
    return nccl_->prepare_messages(pairs);
  }
  Status run(const CollectiveCall& call, const void* input, void* output) override {
    AUTOPAR_CHECK(nccl_ != nullptr, "a collective before prepare()");
    const CallLog::Inside inside(calls_, call);
    return nccl_->run(call, input, output);
  }
  Result<Bytes> gpu_memory() const override {
    AUTOPAR_CHECK(nccl_ != nullptr, "a question about the GPU before prepare()");
    return nccl_->gpu_memory();
  }
  Result<GpuRoom> gpu_room(std::size_t input_bytes, std::size_t output_bytes) override {
    AUTOPAR_CHECK(nccl_ != nullptr, "room on the GPU before prepare()");
    return nccl_->gpu_room(input_bytes, output_bytes);
  }
  void abort(const std::string& reason) override {
    nccl_ ? nccl_->abort(reason) : world_.tell(reason);
  }

 private:
  NcclWorld world_;
  int gpu_;
  CallLog& calls_;
  std::unique_ptr<GpuCommunicator> nccl_;
};

}  // namespace

Result<Joined> join_nccl(Seconds timeout) {
  AUTOPAR_TRY(launch, launch_of_environment());
  if (!launch) {
    return usage_error(
        "--ranks-by nccl: no launcher has started this process; start one process per GPU: "
        "torchrun --no-python --nproc-per-node N autopar run ..., or mpirun -n N autopar run ...");
  }
  AUTOPAR_TRY(joined, join_control(*launch, timeout));
  ControlChannel* control = joined.control.get();
  NcclWorld world;
  world.rank = control->rank();
  world.size = control->size();
  world.local_rank = launch->local_rank;
  world.exchange = [control](const std::string& own) { return exchange(*control, own); };
  // What the control channel says of calls that take too long comes first, and names who is
  // missing.
  control->limit_calls(timeout);
  world.timeout = timeout + kForItsWords;
  world.failure = [control]() -> std::optional<std::string> {
    if (!control->failed()) return std::nullopt;
    return control->failure()->message;
  };
  world.tell = [control](const std::string& reason) { control->report(runtime_error(reason)); };
  // Without a GPU prepare() says why.
  const auto gpu = nccl_gpu(world.local_rank);
  joined.communicator =
      std::make_unique<NcclRank>(std::move(world), gpu ? *gpu : -1, control->calls());
  if (const auto library = nccl_version()) joined.description += ", " + *library;
  return std::move(joined);
}

}  // namespace autopar
