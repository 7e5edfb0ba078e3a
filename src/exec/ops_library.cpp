// libautopar_ops.so: the ops of ai.autopar for any user of ONNX Runtime.
//
//   options = onnxruntime.SessionOptions()
//   options.register_custom_ops_library("libautopar_ops.so")
//   session = onnxruntime.InferenceSession("plan.onnx", options)      # one process per rank
//
// The ranks are the processes that a launcher has started: mpirun or srun (MPI), torchrun (NCCL).
// AUTOPAR_RANKS_BY says "mpi", "nccl" or "none" where this is not to be found out from the
// launcher's variables; without a launcher there is one rank. The process joins the others when the
// library is first registered and leaves them when it ends; groups are made when they are first
// used, in the order of the collectives, which is the same on all ranks; under NCCL all groups of a
// session at its first collective, to which all ranks must come.
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "exec/collective_math.hpp"
#include "exec/collective_ops.hpp"
#include "exec/process/joined.hpp"

#define AUTOPAR_EXPORT __attribute__((visibility("default")))

namespace autopar {
namespace {

constexpr Seconds kTimeout = 60;

// A program of one rank: every group is that rank alone.
class LoneCommunicator : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Status run(const CollectiveCall& call, const void* input, void* output) override {
    perform(call, {input}, {output});
    return Ok{};
  }
  void abort(const std::string&) override {}
};

Result<std::string> wanted_ranks() {
  if (const char* chosen = std::getenv("AUTOPAR_RANKS_BY"); chosen != nullptr && *chosen != '\0') {
    return std::string(chosen);
  }
  AUTOPAR_TRY(launch, launch_of_environment());
  if (!launch) return std::string("none");
  return std::string(launch->launcher == "torchrun" ? "nccl" : "mpi");
}

Seconds timeout() {
  const char* text = std::getenv("AUTOPAR_TIMEOUT");
  const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
  return seconds > 0 ? seconds : kTimeout;
}

// This process among the ranks, for as long as it lives.
class Membership {
 public:
  static Result<Membership*> join() {
    static Membership membership;
    const std::lock_guard lock(membership.mutex_);
    // Once: after a join that failed the launcher's library may be half initialised.
    if (!membership.is_member_) membership.is_member_ = membership.become_member();
    if (!*membership.is_member_) return membership.is_member_->error();
    return &membership;
  }

  // Lives as long as the process: nobody says when the last session has gone.
  void add_ops_to(OrtSessionOptions* options) {
    const std::lock_guard lock(mutex_);
    ops_.push_back(std::make_unique<CollectiveOps>(*joined_.communicator));
    ops_.back()->begin_run();  // all that its sessions do counts as one
    if (makes_groups_together_) ops_.back()->prepare_at_first_call();
    ops_.back()->add_to(options);
  }

  ~Membership() {
    if (joined_.control == nullptr) return;
    const Status left = joined_.control->leave([](const Error&) {});
    if (left.ok() && joined_.finish) joined_.finish();
  }

 private:
  Status become_member() {
    AUTOPAR_TRY(ranks_by, wanted_ranks());
    if (ranks_by == "none") {
      joined_.communicator = std::make_unique<LoneCommunicator>();
      return Ok{};
    }
    AUTOPAR_TRY(joined, join_ranks(ranks_by, timeout()));
    joined_ = std::move(joined);
    makes_groups_together_ = ranks_by == "nccl";
    return Ok{};
  }

  std::mutex mutex_;
  std::optional<Status> is_member_;  // of the join; nothing before it
  Joined joined_;
  bool makes_groups_together_ = false;
  std::list<std::unique_ptr<CollectiveOps>> ops_;
};

}  // namespace
}  // namespace autopar

extern "C" AUTOPAR_EXPORT OrtStatus* ORT_API_CALL
RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* api_base) noexcept {
  const OrtApi* api = api_base->GetApi(ORT_API_VERSION);
  if (api == nullptr) {
    // An older table still has this entry at its place.
    return api_base->GetApi(1)->CreateStatus(
        ORT_FAIL, (std::string("libautopar_ops: ONNX Runtime is ") + api_base->GetVersionString() +
                   ", but 1." + std::to_string(ORT_API_VERSION) + " or newer is needed")
                      .c_str());
  }
  Ort::InitApi(api);
  try {
    const auto membership = autopar::Membership::join();
    if (!membership) {
      return api->CreateStatus(ORT_FAIL, ("libautopar_ops: " + membership.error().message).c_str());
    }
    (*membership)->add_ops_to(options);
    return nullptr;
  } catch (const std::exception& exception) {
    return api->CreateStatus(ORT_FAIL, exception.what());
  }
}
