#include "exec/process/bus.hpp"

namespace autopar {

namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kMostUnsent = 8 << 20;  // more is left with the caller
constexpr std::size_t kMostUnreceived = std::size_t{1} << 30;

}  // namespace

Bus::Bus(int rank, std::vector<Link*> links)
    : rank_(rank),
      links_(std::move(links)),
      mailboxes_(links_.size()),
      most_unreceived_(kMostUnreceived) {}

bool Bus::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

void Bus::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  changed_.notify_all();
}

void Bus::allow_unreceived(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  most_unreceived_ = std::max(most_unreceived_, bytes);
}

Status Bus::take(int rank, std::string_view piece, bool is_last) {
  const std::lock_guard lock(mutex_);
  Mailbox& mailbox = mailboxes_[index_of(rank)];
  if (piece.size() > most_unreceived_ - mailbox.bytes) {
    return runtime_error("more than the " + std::to_string(most_unreceived_) +
                         " bytes that it may send before they are asked for");
  }
  mailbox.bytes += piece.size();
  mailbox.begun += piece;
  if (!is_last) return Ok{};
  mailbox.messages.push_back(std::move(mailbox.begun));
  mailbox.begun.clear();
  changed_.notify_all();
  return Ok{};
}

Result<std::string> Bus::receive(int rank) {
  std::unique_lock lock(mutex_);
  Mailbox& mailbox = mailboxes_[index_of(rank)];
  changed_.wait(lock, [&] { return failure_.has_value() || !mailbox.messages.empty(); });
  if (failure_) return *failure_;
  std::string message = std::move(mailbox.messages.front());
  mailbox.messages.pop_front();
  mailbox.bytes -= message.size();
  return message;
}

Status Bus::send(int rank, std::string_view message) {
  Link& link = *links_[index_of(rank)];
  while (true) {
    const std::string_view piece = message.substr(0, kPieceBytes);
    message.remove_prefix(piece.size());
    link.wait_until_sent(kMostUnsent, SteadyTime::max(), [this] { return has_failed(); });
    link.post(message.empty() ? FrameKind::kLastPiece : FrameKind::kPiece, piece);
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    if (message.empty()) return Ok{};
  }
}

Result<std::string> Bus::broadcast(std::string from_rank_0) {
  if (rank_ != 0) return receive(0);
  for (std::size_t r = 1; r < links_.size(); ++r) {
    AUTOPAR_RETURN_IF_ERROR(send(static_cast<int>(r), from_rank_0));
  }
  if (has_failed()) return *failure_;
  return from_rank_0;
}

Result<std::vector<std::string>> Bus::gather(std::string own) {
  if (rank_ != 0) {
    AUTOPAR_RETURN_IF_ERROR(send(0, own));
    return std::vector<std::string>();
  }
  std::vector<std::string> all{std::move(own)};
  for (std::size_t r = 1; r < links_.size(); ++r) {
    AUTOPAR_TRY(message, receive(static_cast<int>(r)));
    all.push_back(std::move(message));
  }
  return all;
}

Status Bus::barrier() {
  AUTOPAR_TRY(all, gather(""));
  static_cast<void>(all);
  AUTOPAR_TRY(go, broadcast(""));
  static_cast<void>(go);
  return Ok{};
}

}  // namespace autopar
