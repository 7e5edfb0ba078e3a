#include "planning/pipelines/chunk_of_parts.hpp"

#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

using tuning::chunks::kPartGain;
using tuning::chunks::kPartRounds;

std::shared_ptr<Planned> planned_of(PartsRequest& request, SearchOutcome outcome) {
  return std::make_shared<Planned>(
      Planned{std::move(request.inputs), std::move(request.request), std::move(outcome)});
}

ChunkOfParts::ChunkOfParts(const AskedChunk& asked, double room, Seconds longest,
                           UnitsInChunks& known, Plans plans)
    : asked_(asked),
      longest_(longest),
      known_(known),
      plans_(std::move(plans)),
      mixed_{.room = room},
      left_(room) {
  mixed_.slower_of_two = known.slower_of_two;
  for (const auto& [ways, part] : known.bytes_of_two) mixed_.room_of_two[ways] = room / part;
  if (!asked.hint.has_other_kinds) mixed_.slower_of = known.slower_of;
  for (const auto& [way, part] : known.bytes_in_chunk[asked.chunk])
    mixed_.room_of[way] = room / part;
  for (const auto& [way, part] : known.bytes_of) mixed_.room_of.emplace(way, room / part);
}

Result<bool> ChunkOfParts::ask() {
  if (is_done_ || rounds_ >= kPartRounds) return false;
  AUTOPAR_TRY(parts, asked_.hint.parts(mixed_, asked_.mesh));
  if (!parts) return false;
  const UnitMix& mix = parts->mix;
  const bool is_same = before_ && mix.ways() == before_->ways() && mix.bytes == before_->bytes &&
                       mix.of_larger == before_->of_larger;
  const bool is_little = best_ && mix.seconds > (1 - kPartGain) * best_->cost.time();
  if (is_same || is_little) return false;
  before_ = mix;
  parts_ = std::move(parts);
  return true;
}

Status ChunkOfParts::plan() {
  AUTOPAR_TRY(found, plans_(*parts_, requests_));
  found_ = std::move(found);
  return Ok{};
}

void ChunkOfParts::take() {
  const UnitMix& mix = parts_->mix;
  double bytes = found_->least_bytes;
  least_bytes_ = std::min(least_bytes_, bytes);
  if (found_->outcome) {
    ++rounds_;
    bytes = static_cast<double>(found_->outcome->cost.memory.total);
    const Seconds time = found_->outcome->cost.time();
    if (mix.seconds > 0) learn_time(mix, time / mix.seconds);
    if (!best_ || time < best_->cost.time()) {
      best_ = std::move(found_->outcome);
      best_request_ = requests_.at({parts_->recompute, parts_->mesh}).get();
      if (const Seconds alone = mix.seconds_alone(); alone > 0) slower_ = time / alone;
    }
    is_done_ = time <= longest_;
  }
  forget_mixed_levels();
  if (is_done_ || bytes == kInfinity) {
    is_done_ = true;
    return;
  }
  learn_room(mix, bytes);
  is_done_ = left_.is_hopeless();
}

// Of those that are not in the best plan: another one hardly has the same.
void ChunkOfParts::forget_mixed_levels() {
  std::erase_if(requests_, [&](const auto& request) {
    return request.first.first.size() > 1 && request.second.get() != best_request_;
  });
}

// So many times as long as it was taken to be.
void ChunkOfParts::learn_time(const UnitMix& mix, double slower) {
  if (mix.has_two_ways()) {
    mixed_.slower_of_two[mix.ways()] = mixed_.slower_of_both(mix.ways()) * slower;
    return;
  }
  const std::size_t way = mix.smaller.way;
  mixed_.slower_of[way] = mixed_.slower_on(way) * slower;
}

void ChunkOfParts::learn_room(const UnitMix& mix, double bytes) {
  const double room = left_.next(mix, bytes);
  if (mix.has_two_ways()) {
    known_.bytes_of_two[mix.ways()] = bytes / mix.bytes;
    mixed_.room_of_two[mix.ways()] = room;
    return;
  }
  const std::size_t way = mix.smaller.way;
  known_.bytes_in_chunk[asked_.chunk][way] = known_.bytes_of[way] = bytes / mix.bytes;
  mixed_.room_of[way] = room;
}

std::shared_ptr<Planned> ChunkOfParts::best() {
  if (!asked_.hint.has_other_kinds) known_.slower_of = mixed_.slower_of;
  known_.slower_of_two = mixed_.slower_of_two;
  if (!best_) return nullptr;
  return planned_of(*best_request_, std::move(*best_));
}

}  // namespace autopar
