#include "exec/nccl/comms.hpp"

#include <cstring>
#include <sstream>

#include "exec/nccl/splits.hpp"

namespace autopar {

namespace {

using Groups = std::vector<std::vector<std::int64_t>>;

// "0 1;2 3;"
std::string text_of(const Groups& groups) {
  std::string text;
  for (const auto& group : groups) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      text += (i == 0 ? "" : " ") + std::to_string(group[i]);
    }
    text += ";";
  }
  return text;
}

// Precondition: the text is one of text_of().
Groups groups_of(const std::string& text) {
  Groups groups;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line, ';');) {
    std::istringstream ranks(line);
    auto& group = groups.emplace_back();
    for (std::int64_t rank = 0; ranks >> rank;) group.push_back(rank);
  }
  return groups;
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

Result<std::unique_ptr<NcclComms>> NcclComms::create(const GpuLibraries& libraries,
                                                     const NcclWorld& world, Stop& stop) {
  std::unique_ptr<NcclComms> comms(new NcclComms(libraries, world, stop));
  if (auto status = comms->open_world(); !status) {
    comms->abort();
    return status.error();
  }
  return comms;
}

Status NcclComms::open_world() {
  ncclUniqueId id;
  std::string own;
  if (rank_ == 0) {
    const ncclResult_t result = nccl_.unique_id(&id);
    if (result != ncclSuccess) return error_of(nullptr, result);
    own.assign(id.internal, sizeof(id.internal));
  }
  AUTOPAR_TRY(all, exchange_(own));
  const std::string common = all.empty() ? "" : all[0];
  if (common.size() != sizeof(id.internal)) {
    return runtime_error("rank " + std::to_string(rank_) +
                         ": what came from rank 0 is no NCCL identifier; all ranks must be started "
                         "with the same command");
  }
  std::memcpy(id.internal, common.data(), sizeof(id.internal));
  ncclConfig_t config = non_blocking();
  const ncclResult_t issued = nccl_.init(&world_, size_, id, rank_, &config);
  return come_together(world_, issued, "the world of " + std::to_string(size_) + " ranks");
}

// Programs of pipeline stages have different groups, but all ranks must make all of them: those of
// rank 0 first.
Result<Groups> NcclComms::groups_of_all(const Groups& own) const {
  AUTOPAR_TRY(texts, exchange_(text_of(own)));
  Groups all;
  for (const std::string& text : texts) {
    for (auto& group : groups_of(text)) all.push_back(std::move(group));
  }
  return all;
}

// All ranks take part in all splits, in one order, before anything else runs on the world. NCCL
// assigns the new communicator some time after the call: its variable has to stay where it is.
Status NcclComms::open_groups(CommUse use, const Groups& own) {
  Groups wanted;  // all ranks of a group know whether it is there
  for (const auto& group : own) {
    if (groups_.count({use, group}) == 0) wanted.push_back(group);
  }
  AUTOPAR_TRY(groups, groups_of_all(wanted));
  AUTOPAR_TRY(splits, plan_splits(groups, size_, use == CommUse::kCollectives));
  for (const CommSplit& split : splits) {
    const int color = split.color_of(rank_);
    ncclComm_t* made = &unused_;
    std::string doing = "a split of the world that this rank is not in";
    if (color >= 0) {
      const auto& group = split.groups[static_cast<std::size_t>(color)];
      made = &groups_[{use, group}];
      doing = "the group " + to_text(group);
    }
    const ncclResult_t issued = nccl_.split(world_, color >= 0 ? color : NCCL_SPLIT_NOCOLOR,
                                            split.key_of(rank_), made, nullptr);
    // It says success where it has only begun: the world is asked, whatever it says.
    AUTOPAR_RETURN_IF_ERROR(
        come_together(world_, issued == ncclSuccess ? ncclInProgress : issued, doing));
    if (color >= 0) AUTOPAR_RETURN_IF_ERROR(come_into_being(*made, doing));
  }
  return Ok{};
}

// A communicator that a split makes: assigned by another thread, then in progress like any other.
Status NcclComms::come_into_being(ncclComm_t& comm, const std::string& doing) const {
  AUTOPAR_TRY(assigned, wait_until(
                            [&]() -> Result<bool> {
                              return __atomic_load_n(&comm, __ATOMIC_ACQUIRE) != nullptr;
                            },
                            timeout_, stop_));
  if (assigned == Waited::kDone) return come_together(comm, ncclInProgress, doing);
  return runtime_error("rank " + std::to_string(rank_) + ": NCCL did not make " + doing);
}

Status NcclComms::come_together(ncclComm_t comm, ncclResult_t issued,
                                const std::string& doing) const {
  const std::string where = "rank " + std::to_string(rank_) + ": NCCL cannot make " + doing + ": ";
  const auto waited = settle(comm, issued);
  if (!waited) return runtime_error(where + waited.error().message);
  if (*waited == Waited::kStopped) return runtime_error(where + stop_.reason());
  if (*waited == Waited::kDone) return Ok{};
  std::ostringstream text;
  text << where << "not all its ranks came within " << timeout_ << " s";
  return runtime_error(text.str());
}

NcclComms::~NcclComms() {
  for (auto& [group, comm] : groups_) close(comm);
  close(world_);
}

void NcclComms::close(ncclComm_t comm) const {
  if (comm == nullptr) return;
  const auto waited = settle(comm, nccl_.finalize(comm));
  if (waited && *waited == Waited::kDone) {
    nccl_.destroy(comm);
  } else {
    nccl_.abort(comm);
  }
}

// The world first: that also ends a split under way. The variables stay where they are, since NCCL
// may yet assign them.
void NcclComms::abort() {
  if (world_ != nullptr) nccl_.abort(world_);
  world_ = nullptr;
  for (auto& [group, comm] : groups_) {
    if (comm != nullptr) nccl_.abort(comm);
    comm = nullptr;
  }
}

ncclComm_t NcclComms::find(CommUse use, const std::vector<std::int64_t>& group) const {
  const auto found = groups_.find({use, group});
  if (found != groups_.end()) return found->second;
  return use == CommUse::kCollectives && is_world(group, size_) ? world_ : nullptr;
}

Result<Waited> NcclComms::settle(ncclComm_t comm, ncclResult_t issued) const {
  if (issued == ncclSuccess) return Waited::kDone;
  if (issued != ncclInProgress || comm == nullptr) return error_of(comm, issued);
  return wait_until(
      [&]() -> Result<bool> {
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = nccl_.async_error(comm, &state);
        if (asked != ncclSuccess) return error_of(comm, asked);
        if (state == ncclInProgress) return false;
        if (state != ncclSuccess) return error_of(comm, state);
        return true;
      },
      timeout_, stop_);
}

Status NcclComms::state_of(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = nccl_.async_error(comm, &state);
  if (asked != ncclSuccess) return error_of(comm, asked);
  if (state != ncclSuccess && state != ncclInProgress) return error_of(comm, state);
  return Ok{};
}

Error NcclComms::error_of(ncclComm_t comm, ncclResult_t result) const {
  std::string text = std::string("NCCL: ") + nccl_.error_string(result);
  const char* last = nccl_.last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  return runtime_error(std::move(text));
}

}  // namespace autopar
