#include "planning/pipelines/unit_shelf.hpp"

namespace autopar {

std::uint64_t UnitShelf::new_owner() {
  const std::scoped_lock lock(mutex_);
  return owners_++;
}

std::shared_ptr<const void> UnitShelf::find(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, place->second);
  return kept_.front().problem;
}

void UnitShelf::put(const Key& key, std::shared_ptr<const void> problem, double bytes) {
  const std::scoped_lock lock(mutex_);
  if (const auto before = places_.find(key); before != places_.end()) remove(before->second);
  kept_.push_front({key, std::move(problem), bytes});
  places_[key] = kept_.begin();
  bytes_ += bytes;
  while (bytes_ > most_bytes_ && kept_.size() > 1) remove(std::prev(kept_.end()));
}

void UnitShelf::clear(std::uint64_t owner) {
  const std::scoped_lock lock(mutex_);
  for (auto place = places_.lower_bound({owner, 0});
       place != places_.end() && place->first.first == owner;) {
    const auto kept = (place++)->second;
    remove(kept);
  }
}

void UnitShelf::remove(std::list<Kept>::iterator kept) {
  bytes_ -= kept->bytes;
  places_.erase(kept->key);
  kept_.erase(kept);
}

}  // namespace autopar
