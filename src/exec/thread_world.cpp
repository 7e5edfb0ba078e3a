#include "exec/thread_world.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "exec/collective_math.hpp"
#include "exec/whereabouts.hpp"

namespace autopar {

namespace {

// What must be equal in all calls of a meeting (the group is, or they would not meet).
bool same_call(const CollectiveCall& a, const CollectiveCall& b, bool one_program) {
  if (a.kind == CollectiveKind::kSend && b.kind == CollectiveKind::kRecv) {
    return a.tag == b.tag && a.dtype == b.dtype && a.input_shape == b.output_shape;
  }
  if (b.kind == CollectiveKind::kSend && a.kind == CollectiveKind::kRecv) {
    return same_call(b, a, one_program);
  }
  if (one_program && (a.op_name != b.op_name || a.seq != b.seq)) return false;
  return a.kind == b.kind && a.axis == b.axis && a.concat_axis == b.concat_axis &&
         a.root == b.root && a.reduce_op == b.reduce_op && a.dtype == b.dtype &&
         a.input_shape == b.input_shape;
}

}  // namespace

ThreadWorld::ThreadWorld(int size, Seconds timeout, std::vector<std::size_t> programs)
    : ranks_(static_cast<std::size_t>(size)),
      programs_(std::move(programs)),
      last_event_(Clock::now()),
      timeout_(timeout) {}

bool ThreadWorld::run_one_program(std::int64_t a, std::int64_t b) const {
  return programs_.empty() ||
         programs_[static_cast<std::size_t>(a)] == programs_[static_cast<std::size_t>(b)];
}

Status ThreadWorld::run(int rank, const CollectiveCall& call, const void* input, void* output) {
  const auto position = static_cast<std::size_t>(call.position);
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(mutex_);
  if (failure_) return runtime_error(*failure_);
  last_event_ = Clock::now();

  std::shared_ptr<Meeting>& open = open_[call.group];
  if (!open) open = std::make_shared<Meeting>(call.group.size());
  const std::shared_ptr<Meeting> meeting = open;
  for (std::size_t p = 0; p < call.group.size(); ++p) {
    const CollectiveCall* other = meeting->calls[p];
    if (other == nullptr) continue;
    if (same_call(*other, call, run_one_program(rank, call.group[p]))) continue;
    return stop("rank " + std::to_string(rank) + " calls " + to_text(call) + " where rank " +
                std::to_string(call.group[p]) + " calls " + to_text(*other) +
                ": the ranks of a group must issue the same collectives in the same order");
  }
  meeting->calls[position] = &call;
  meeting->inputs[position] = input;
  meeting->outputs[position] = output;
  if (++meeting->arrived == call.group.size()) {
    open.reset();  // the group's next call is another meeting
    for (std::int64_t other : call.group) {
      ranks_[static_cast<std::size_t>(other)].waiting_in = nullptr;
    }
    meeting->changed.notify_all();
  } else {
    self.waiting_in = &call;
    if (auto reason = deadlock()) return stop(*reason);
    wait_for_all(*meeting, lock);
    self.waiting_in = nullptr;
    if (meeting->arrived < call.group.size()) return runtime_error(*failure_);
  }
  lock.unlock();

  perform(call, meeting->inputs, meeting->outputs);

  // Leaving earlier would take away buffers that others still read or write.
  lock.lock();
  last_event_ = Clock::now();
  if (++meeting->done == call.group.size()) meeting->changed.notify_all();
  meeting->changed.wait(lock, [&] { return meeting->done == call.group.size(); });
  self.last_call = std::string(name_of(call.kind)) + " '" + call.op_name + "'";
  return Ok{};
}

void ThreadWorld::wait_for_all(Meeting& meeting, std::unique_lock<std::mutex>& lock) {
  wait_until(meeting.changed, lock, [&] { return meeting.arrived == meeting.calls.size(); });
}

void ThreadWorld::wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                             const std::function<bool()>& done) {
  const auto timeout = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(timeout_, 1e8)));
  while (!done() && !failure_) {
    const Clock::time_point deadline = last_event_ + timeout;
    changed.wait_until(lock, deadline);
    if (!done() && !failure_ && Clock::now() >= last_event_ + timeout) {
      std::ostringstream reason;
      reason << "nothing has happened for " << timeout_ << " s: " << who_waits()
             << "; if the local ops need longer, raise the time limit";
      stop(reason.str());
    }
  }
}

Status ThreadWorld::post(int rank, const CollectiveCall& call, const void* input) {
  const auto bytes =
      static_cast<std::size_t>(element_count(call.input_shape) * size_of(call.dtype));
  std::string message(static_cast<const char*>(input), bytes);
  const std::lock_guard lock(mutex_);
  if (failure_) return runtime_error(*failure_);
  last_event_ = Clock::now();
  Mailbox& mailbox = mail_[call.group];
  mailbox.messages.push_back(std::move(message));
  if (mailbox.awaited != nullptr) {
    mailbox.awaited = nullptr;
    ranks_[static_cast<std::size_t>(call.group[1])].waiting_in = nullptr;
    mailbox.changed.notify_all();
  }
  ranks_[static_cast<std::size_t>(rank)].last_call =
      std::string(name_of(call.kind)) + " '" + call.op_name + "'";
  return Ok{};
}

Status ThreadWorld::take(int rank, const CollectiveCall& call, void* output) {
  const auto bytes =
      static_cast<std::size_t>(element_count(call.output_shape) * size_of(call.dtype));
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(mutex_);
  if (failure_) return runtime_error(*failure_);
  last_event_ = Clock::now();
  Mailbox& mailbox = mail_[call.group];
  if (mailbox.messages.empty()) {
    self.waiting_in = mailbox.awaited = &call;
    if (auto reason = deadlock()) return stop(*reason);
    wait_until(mailbox.changed, lock, [&] { return !mailbox.messages.empty(); });
    self.waiting_in = mailbox.awaited = nullptr;
    if (mailbox.messages.empty()) return runtime_error(*failure_);
  }
  const std::string message = std::move(mailbox.messages.front());
  mailbox.messages.pop_front();
  self.last_call = std::string(name_of(call.kind)) + " '" + call.op_name + "'";
  AUTOPAR_CHECK(message.size() == bytes, "a message of another size: " + to_text(call));
  lock.unlock();
  std::memcpy(output, message.data(), bytes);
  return Ok{};
}

Error ThreadWorld::stop(std::string reason) {
  if (!failure_) failure_ = std::move(reason);
  for (auto& [group, meeting] : open_) {
    if (meeting) meeting->changed.notify_all();
  }
  for (auto& [pair, mailbox] : mail_) mailbox.changed.notify_all();
  return runtime_error(*failure_);
}

void ThreadWorld::finish(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_[static_cast<std::size_t>(rank)].finished = true;
  last_event_ = Clock::now();
  if (failure_) return;
  if (auto reason = deadlock()) stop(*reason);
}

void ThreadWorld::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  stop(reason);
}

std::optional<std::string> ThreadWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

// All ranks wait or have finished: nobody is left who could come to a meeting.
std::optional<std::string> ThreadWorld::deadlock() const {
  bool someone_waits = false;
  for (const Rank& rank : ranks_) {
    if (rank.waiting_in == nullptr && !rank.finished) return std::nullopt;
    someone_waits = someone_waits || rank.waiting_in != nullptr;
  }
  if (!someone_waits) return std::nullopt;
  return "the ranks wait for each other: " + who_waits();
}

std::string ThreadWorld::state_of(std::int64_t rank) const {
  const Rank& state = ranks_[static_cast<std::size_t>(rank)];
  Whereabouts where;
  if (state.waiting_in != nullptr) where.waits_in = to_text(*state.waiting_in);
  where.last_call = state.last_call;
  where.finished = state.finished;
  return state_text(rank, where);
}

// "AllReduce 'a' (...): ranks 0, 2 wait for rank 1; rank 1 has finished after AllGather 'b'".
std::string ThreadWorld::who_waits() const {
  std::string text;
  std::vector<std::int64_t> absent;
  std::size_t listed = 0;
  for (const auto& [group, meeting] : open_) {
    if (!meeting || meeting->arrived == 0) continue;
    std::vector<std::int64_t> present;
    std::vector<std::int64_t> others;
    const CollectiveCall* call = nullptr;
    for (std::size_t p = 0; p < group.size(); ++p) {
      (meeting->calls[p] == nullptr ? others : present).push_back(group[p]);
      if (meeting->calls[p] != nullptr) call = meeting->calls[p];
    }
    absent.insert(absent.end(), others.begin(), others.end());
    if (++listed > kListedRanks) continue;
    text += (text.empty() ? "" : "; ") + to_text(*call) + ": " + list_ranks(present) +
            (present.size() == 1 ? " waits for " : " wait for ") + list_ranks(others);
  }
  for (const auto& [pair, mailbox] : mail_) {
    if (mailbox.awaited == nullptr) continue;
    absent.push_back(pair[0]);
    if (++listed > kListedRanks) continue;
    text += (text.empty() ? "" : "; ") + to_text(*mailbox.awaited) + ": " + list_ranks({pair[1]}) +
            " waits for " + list_ranks({pair[0]});
  }
  std::sort(absent.begin(), absent.end());
  absent.erase(std::unique(absent.begin(), absent.end()), absent.end());
  for (std::size_t i = 0; i < absent.size() && i < kListedRanks; ++i) {
    text += "; " + state_of(absent[i]);
  }
  return text;
}

}  // namespace autopar
