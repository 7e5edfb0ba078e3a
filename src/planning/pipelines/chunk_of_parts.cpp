#include "planning/pipelines/chunk_of_parts.hpp"

#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

using tuning::chunks::kPartGain;
using tuning::chunks::kPartRounds;

std::shared_ptr<const Planned> planned_of(PartsRequest& request, SearchOutcome outcome) {
  return std::make_shared<const Planned>(
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
  const bool is_same = before_ && mix.smaller.way == before_->smaller.way &&
                       mix.bytes == before_->bytes && mix.of_larger == before_->of_larger;
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
  const std::size_t way = mix.smaller.way;
  double bytes = found_->least_bytes;
  if (found_->outcome) {
    ++rounds_;
    bytes = static_cast<double>(found_->outcome->cost.memory.total);
    const Seconds time = found_->outcome->cost.time();
    if (mix.seconds > 0) mixed_.slower_of[way] = mixed_.slower_on(way) * time / mix.seconds;
    if (!best_ || time < best_->cost.time()) {
      best_ = std::move(found_->outcome);
      best_request_ = requests_.at({parts_->recompute, parts_->mesh}).get();
    }
    is_done_ = time <= longest_;
  }
  if (is_done_ || bytes == kInfinity) {
    is_done_ = true;
    return;
  }
  known_.bytes_in_chunk[asked_.chunk][way] = known_.bytes_of[way] = bytes / mix.bytes;
  mixed_.room_of[way] = left_.next(mix, bytes);
  is_done_ = left_.is_hopeless();
}

std::shared_ptr<const Planned> ChunkOfParts::best() {
  if (!asked_.hint.has_other_kinds) known_.slower_of = mixed_.slower_of;
  if (!best_) return nullptr;
  return planned_of(*best_request_, std::move(*best_));
}

}  // namespace autopar
