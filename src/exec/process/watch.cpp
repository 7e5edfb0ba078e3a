// The thread of the control channel that watches the connections to the other ranks.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "exec/process/control.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLookAgain = 200;  // milliseconds
constexpr Seconds kAfterRank0 = 1;
constexpr Seconds kMostBetweenWords = 5;
constexpr Seconds kForLastWords = 1;
// A gap between two looks that is longer was this process's own: it was stopped and goes on.
constexpr Seconds kOwnPause = 2;

double seconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

void say_at_once(const Error& why) {  // whatever the main thread does
  const std::string text = "autopar: error: " + why.message + "\n";
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

}  // namespace

void ControlChannel::watch() {
  try {
    std::vector<std::size_t> readable;
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (peers_[p].link) hear(p);  // what came with the last words of the handshake
    }
    while (wait_for_peers(readable)) {
      for (std::size_t peer : readable) hear(peer);
      keep_in_touch();
      go_on_with_inquiry();
      watch_own_call();
      end_where_stuck();
    }
  } catch (const std::exception& exception) {
    end_process(runtime_error("rank " + std::to_string(rank_) +
                              " cannot watch the others any more: " + exception.what()));
  }
}

bool ControlChannel::wait_for_peers(std::vector<std::size_t>& readable) {
  std::vector<pollfd> entries{{wake_[0], POLLIN, 0}};
  std::vector<std::size_t> peers{0};
  for (std::size_t p = 0; p < peers_.size(); ++p) {
    const Peer& peer = peers_[p];
    if (!peer.link || peer.has_ended) continue;
    const int events = POLLIN | (peer.link->has_unsent() ? POLLOUT : 0);
    entries.push_back({peer.link->descriptor(), static_cast<short>(events), 0});
    peers.push_back(p);
  }
  readable.clear();
  if (poll(entries.data(), entries.size(), kLookAgain) < 0) {
    if (errno != EINTR) throw std::runtime_error(std::strerror(errno));
    return !is_over_;
  }
  char words[256];
  while (entries[0].revents != 0 && read(wake_[0], words, sizeof words) > 0) {
  }
  for (std::size_t i = 1; i < entries.size(); ++i) {
    if ((entries[i].revents & POLLOUT) != 0) peers_[peers[i]].link->send_unsent();
    if ((entries[i].revents & ~POLLOUT) != 0) readable.push_back(peers[i]);
  }
  return !is_over_;
}

void ControlChannel::hear(std::size_t index) {
  Peer& peer = peers_[index];
  Link::Arrivals arrivals = peer.link->receive();
  peer.heard = Clock::now();
  for (const Frame& frame : arrivals.frames) {
    if (const Status understood = understand(index, frame); !understood) {
      arrivals.problem = understood.error().message;
      break;
    }
  }
  if (arrivals.problem.empty() && !arrivals.ended) return;
  bool was_expected = failed();  // the rank has said why before it went
  {
    const std::lock_guard lock(mutex_);
    peer.has_ended = true;
    was_expected = was_expected || gone_[index];
    gone_[index] = true;
    changed_.notify_all();
  }
  if (!arrivals.problem.empty()) {
    take_failure(runtime_error(peer.name +
                               " has sent what is no message between ranks: " + arrivals.problem));
  } else if (!was_expected) {
    end_process(runtime_error(peer.name + " ended without a word: it was killed or crashed"));
  }
}

Status ControlChannel::understand(std::size_t index, const Frame& frame) {
  WireReader reader(frame.payload);
  switch (frame.kind) {
    case FrameKind::kPiece:
    case FrameKind::kLastPiece:
      return bus_->take(rank_of(index), frame.payload, frame.kind == FrameKind::kLastPiece);
    case FrameKind::kFailure: {
      Error failure;
      AUTOPAR_RETURN_IF_ERROR(read_failure(frame.payload, failure));
      take_failure(failure);
      return Ok{};
    }
    case FrameKind::kBye:
      return take_bye(index, frame.payload);
    case FrameKind::kLeft: {
      const int rank = reader.number<std::int32_t>();
      AUTOPAR_RETURN_IF_ERROR(reader.finish());
      note_left(rank);
      return Ok{};
    }
    case FrameKind::kAsk: {
      AUTOPAR_TRY(question, question_of(frame.payload));
      if (rank_ == 0) begin_inquiry(rank_of(index), std::move(question));
      return Ok{};
    }
    case FrameKind::kWhere: {
      WireWriter answer;
      answer.put(reader.number<std::uint64_t>());
      AUTOPAR_RETURN_IF_ERROR(reader.finish());
      answer.put_text(to_bytes(own_whereabouts()));
      peers_[index].link->post(FrameKind::kHere, answer.take());
      return Ok{};
    }
    case FrameKind::kHere: {
      const auto number = reader.number<std::uint64_t>();
      const std::string_view bytes = reader.view();
      AUTOPAR_RETURN_IF_ERROR(reader.finish());
      AUTOPAR_TRY(where, whereabouts_of(bytes));
      inquiry_.answer(rank_of(index), number, std::move(where));
      return Ok{};
    }
    case FrameKind::kAlive:
      return Ok{};
    case FrameKind::kHello:
    case FrameKind::kChallenge:
    case FrameKind::kProof:
    case FrameKind::kWelcome:
    case FrameKind::kRefusal:
      break;
  }
  return runtime_error("a word of the handshake after it");
}

Status ControlChannel::take_bye(std::size_t index, const std::string& payload) {
  if (rank_ == 0) {
    AUTOPAR_TRY(where, whereabouts_of(payload));
    peers_[index].last = std::move(where);
    tell_left(rank_of(index));
  }
  const std::lock_guard lock(mutex_);
  gone_[index] = true;
  changed_.notify_all();
  return Ok{};
}

// Says something to all now and then, and misses those of whom nothing is heard.
void ControlChannel::keep_in_touch() {
  const SteadyTime now = Clock::now();
  const Seconds limit = silence_limit_;
  const bool was_away = seconds_between(looked_, now) > std::min(kOwnPause, limit / 2);
  looked_ = now;
  for (Peer& peer : peers_) {
    if (!peer.link || peer.has_ended) continue;
    if (was_away) peer.heard = now;
    if (seconds_between(peer.spoke, now) > std::min(kMostBetweenWords, limit / 4)) {
      peer.link->post(FrameKind::kAlive, "");
      peer.spoke = now;
    }
    if (failed() || seconds_between(peer.heard, now) <= limit) continue;
    std::ostringstream text;
    text << "nothing was heard of " << peer.name << " for " << limit
         << " s: it is stopped, or its machine cannot be reached";
    const Error failure = runtime_error(text.str());
    if (rank_ == 1) say_at_once(failure);  // rank 0 does not, and one is enough
    take_failure(failure);
  }
}

void ControlChannel::watch_own_call() {
  if (failed()) return;
  const std::optional<CallLog::Stay> stay = calls_.stay();
  std::map<std::int64_t, Time> left;
  if (stay) {
    const std::lock_guard lock(mutex_);
    left = left_;
  }
  auto finding = call_watch_.look(rank_, stay, left, call_limit_, Clock::now());
  if (!finding) return;
  if (finding->rank_0_is_silent) return rank_0_is_silent(finding->why, stay->group);
  Question question{std::move(finding->why), std::move(finding->advice), own_whereabouts()};
  if (rank_ == 0) return begin_inquiry(0, std::move(question));
  peers_[0].link->post(FrameKind::kAsk, to_bytes(question));
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
  report(failure);
}

void ControlChannel::begin_inquiry(int asker, Question question) {
  if (failed() || inquiry_.is_under_way()) return;
  inquiry_number_ = inquiry_.begin(asker, std::move(question), Clock::now());
  WireWriter writer;
  writer.put(inquiry_number_);
  const std::string bytes = writer.take();
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    if (peers_[r].last) {
      inquiry_.answer(static_cast<int>(r), inquiry_number_, *peers_[r].last);
    } else if (!peers_[r].has_ended) {
      peers_[r].link->post(FrameKind::kWhere, bytes);
    }
  }
}

void ControlChannel::go_on_with_inquiry() {
  if (!inquiry_.is_under_way()) return;
  if (failed()) return inquiry_.drop();
  inquiry_.answer(0, inquiry_number_, own_whereabouts());
  std::vector<std::string> processes;
  for (const Peer& peer : peers_) processes.push_back(peer.process);
  const auto text = inquiry_.conclude(processes, Clock::now());
  if (text && !text->empty()) take_failure(runtime_error(*text));
}

// After a failure the main thread may be in a long local op, or in a library's call.
void ControlChannel::end_where_stuck() {
  if (!failed()) return;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
  }
  // Rank 0 goes first, since a launcher ends the others with whichever ends first.
  if (!end_at_) end_at_ = after(kGrace + (rank_ == 0 ? 0 : kAfterRank0));
  if (Clock::now() >= *end_at_) end_process(*failure());
}

// Nothing of this program may run after it: the main thread can be anywhere. The message goes out
// first, since a launcher may be about to end this process too.
void ControlChannel::end_process(const Error& why) {
  if (rank_ == 0 || (rank_ == 1 && peers_[0].has_ended)) say_at_once(why);
  if (rank_ == 0) tell_failure(why);
  on_sudden_end_.run();
  const SteadyTime until = after(kForLastWords);
  for (const Peer& peer : peers_) {
    while (peer.link && peer.link->has_unsent() && Clock::now() < until) {
      pollfd entry{peer.link->descriptor(), POLLOUT, 0};
      poll(&entry, 1, kLookAgain);
      peer.link->send_unsent();
    }
  }
  _exit(static_cast<int>(why.code));
}

}  // namespace autopar
