// The part of the control channel that finds out who waits for whom.
#include <algorithm>
#include <sstream>

#include "exec/process/control.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kForAnswers = std::chrono::seconds(3);  // a busy machine may need them
constexpr auto kAskAgain = std::chrono::seconds(1);    // rank 0 may have been asked by another
constexpr auto kForRank0 = std::chrono::seconds(8);    // to say anything
// What a rank has sent before it left may still be on its way.
constexpr auto kOnItsWay = std::chrono::seconds(2);

std::string nothing_for(Seconds limit) {
  std::ostringstream text;
  text << "nothing has happened for " << limit << " s";
  return text.str();
}

}  // namespace

// Also where the main thread is in a call of a library that it does not come out of.
void ControlChannel::watch_own_call() {
  if (failed_) return;
  const std::optional<CallLog::Stay> stay = calls_.stay();
  if (!stay) return asked_.reset();
  const Clock::time_point now = Clock::now();
  std::string why;
  std::string advice;
  {
    const std::lock_guard lock(mutex_);
    for (std::int64_t rank : stay->group) {
      const auto gone = left_.find(rank);
      if (rank == rank_ || gone == left_.end()) continue;
      if (now - std::max(gone->second, stay->since) < kOnItsWay) continue;
      why = "rank " + std::to_string(rank) + " has left the run";
      break;
    }
  }
  const Seconds limit = call_limit_;
  if (why.empty()) {
    if (std::chrono::duration<double>(now - stay->since).count() <= limit) return;
    why = nothing_for(limit);
    advice = "if the local ops need longer, raise the time limit";
  }
  if (!asked_ || asked_->call != stay->number) {
    asked_ = Asked{stay->number, now, now};
    return ask(why, advice);
  }
  if (rank_ != 0 && now - asked_->first > kForRank0) return rank_0_is_silent(why, stay->group);
  if (now - asked_->last < kAskAgain) return;
  asked_->last = now;
  ask(why, advice);
}

void ControlChannel::ask(const std::string& why, const std::string& advice) {
  WireWriter question;
  question.put_text(why);
  question.put_text(advice);
  question.put_text(to_bytes(own_whereabouts()));
  const std::string bytes = question.take();
  if (rank_ == 0) return begin_inquiry(0, bytes);
  send(*peers_[0], Frame::kAsk, bytes);
}

// Then what this rank knows must do. One rank of the group says it, before any of them ends.
void ControlChannel::rank_0_is_silent(const std::string& why, const RankGroup& group) {
  std::int64_t first = rank_;
  for (std::int64_t rank : group) {
    if (rank != 0) first = std::min(first, rank);
  }
  const Error failure = runtime_error(
      why + ": rank " + std::to_string(rank_) + " waits in " + own_whereabouts().waits_in +
      "; rank 0, which would know for whom, does not answer: it is stopped, or its machine "
      "cannot be reached");
  if (first == rank_) say_at_once(failure);
  take_failure(failure);
  WireWriter payload;
  payload.put<std::int32_t>(static_cast<int>(failure.code));
  payload.put_text(failure.message);
  send(*peers_[0], Frame::kFailure, payload.take());
}

Whereabouts ControlChannel::own_whereabouts() const {
  Whereabouts where = calls_.whereabouts();
  const std::lock_guard lock(mutex_);
  where.finished = leaving_;
  return where;
}

// One at a time: what it finds is the failure of all, and who asks in vain asks again.
void ControlChannel::begin_inquiry(int asker, std::string_view question) {
  if (failed_ || inquiry_) return;
  WireReader reader(question);
  Inquiry inquiry;
  inquiry.asker = asker;
  inquiry.why = reader.text();
  inquiry.advice = reader.text();
  inquiry.deadline = Clock::now() + kForAnswers;
  inquiry.answers.resize(static_cast<std::size_t>(size_));
  inquiry.has_answered.assign(static_cast<std::size_t>(size_), false);
  inquiry.asked = whereabouts_of(reader.view());
  inquiry.answers[static_cast<std::size_t>(asker)] = inquiry.asked;
  WireWriter number;
  number.put(++inquiries_);
  const std::string bytes = number.take();
  std::vector<Peer*> here;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t r = 1; r < peers_.size(); ++r) {
      if (!peers_[r]->bye) {
        here.push_back(peers_[r].get());
        continue;
      }
      inquiry.answers[r] = peers_[r]->last;
      inquiry.has_answered[r] = true;
    }
  }
  inquiry_ = std::move(inquiry);
  for (Peer* peer : here) send(*peer, Frame::kWhere, bytes);
}

void ControlChannel::tell_whereabouts(std::string_view number) {
  WireWriter answer;
  answer.put(WireReader(number).number<std::uint64_t>());
  answer.put_text(to_bytes(own_whereabouts()));
  send(*peers_[0], Frame::kHere, answer.take());
}

void ControlChannel::take_answer(std::size_t rank, std::string_view answer) {
  WireReader reader(answer);
  if (!inquiry_ || reader.number<std::uint64_t>() != inquiries_) return;  // too late
  inquiry_->answers[rank] = whereabouts_of(reader.view());
  inquiry_->has_answered[rank] = true;
}

// The end of an inquiry: all have answered, or will not.
void ControlChannel::go_on_with_inquiry() {
  if (!inquiry_) return;
  if (failed_) return inquiry_.reset();
  Inquiry& inquiry = *inquiry_;
  inquiry.answers[0] = own_whereabouts();
  inquiry.has_answered[0] = true;
  const auto& has_answered = inquiry.has_answered;
  const bool all = std::find(has_answered.begin(), has_answered.end(), false) == has_answered.end();
  if (!all && Clock::now() < inquiry.deadline) return;
  for (std::size_t r = 1; r < inquiry.answers.size(); ++r) {
    // The asker has told where it is.
    if (has_answered[r] || static_cast<int>(r) == inquiry.asker) continue;
    inquiry.answers[r].answers = false;
    inquiry.answers[r].name = peers_[r]->process;
  }
  const Whereabouts& asker = inquiry.answers[static_cast<std::size_t>(inquiry.asker)];
  std::string text;
  const bool still_waits =
      asker.waits_in == inquiry.asked.waits_in && asker.meetings == inquiry.asked.meetings;
  if (still_waits) {
    text = inquiry.why + ": " + who_waits(inquiry.answers, inquiry.asker);
    if (!inquiry.advice.empty()) text += "; " + inquiry.advice;
  }
  inquiry_.reset();
  if (!text.empty()) take_failure(runtime_error(text));
}

}  // namespace autopar
