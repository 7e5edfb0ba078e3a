#include "exec/process/call_log.hpp"

#include "exec/collective_math.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

void CallLog::enter(const RankGroup& group, const CollectiveCall* call, const char* doing) {
  const std::lock_guard lock(mutex_);
  call_ = call;
  doing_ = doing;
  group_ = &group;
  since_ = Clock::now();
  ++number_;
  ++meetings_[group];
}

void CallLog::come_out() {
  const std::lock_guard lock(mutex_);
  if (call_ != nullptr) {
    last_call_ = name_of(call_->kind);
    last_call_ += " '" + call_->op_name + "'";
  }
  call_ = nullptr;
  group_ = nullptr;
}

std::optional<CallLog::Stay> CallLog::stay() const {
  const std::lock_guard lock(mutex_);
  if (group_ == nullptr) return std::nullopt;
  return Stay{number_, since_, *group_};
}

Whereabouts CallLog::whereabouts() const {
  const std::lock_guard lock(mutex_);
  Whereabouts where;
  where.last_call = last_call_;
  where.meetings = meetings_;
  if (group_ == nullptr) return where;
  where.waits_in = call_ != nullptr ? to_text(*call_) : doing_;
  where.group = *group_;
  return where;
}

namespace {

void put_group(WireWriter& writer, const RankGroup& group) {
  writer.put<std::uint64_t>(group.size());
  for (std::int64_t rank : group) writer.put(rank);
}

RankGroup take_group(WireReader& reader) {
  RankGroup group(reader.count(sizeof(std::int64_t)));
  for (std::int64_t& rank : group) rank = reader.number<std::int64_t>();
  return group;
}

}  // namespace

std::string to_bytes(const Whereabouts& where) {
  WireWriter writer;
  writer.put_text(where.waits_in);
  put_group(writer, where.group);
  writer.put_text(where.last_call);
  writer.put(where.finished);
  writer.put<std::uint64_t>(where.meetings.size());
  for (const auto& [group, times] : where.meetings) {
    put_group(writer, group);
    writer.put(times);
  }
  return writer.take();
}

Result<Whereabouts> whereabouts_of(std::string_view bytes) {
  WireReader reader(bytes);
  Whereabouts where;
  where.waits_in = reader.text();
  where.group = take_group(reader);
  where.last_call = reader.text();
  where.finished = reader.number<bool>();
  for (std::size_t left = reader.count(2 * sizeof(std::uint64_t)); left > 0; --left) {
    RankGroup group = take_group(reader);
    where.meetings[std::move(group)] = reader.number<std::uint64_t>();
  }
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  return where;
}

}  // namespace autopar
