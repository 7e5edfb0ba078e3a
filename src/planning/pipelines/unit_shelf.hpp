// Search problems of units that were built and may be asked for again. All together they take no
// more than so many bytes: those that were not asked for the longest go, and are built anew if they
// are asked for after all, which changes no result.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace autopar {

class UnitShelf {
 public:
  // Whose, and which of its problems.
  using Key = std::pair<std::uint64_t, std::size_t>;

  explicit UnitShelf(double most_bytes) : most_bytes_(most_bytes) {}

  std::uint64_t new_owner();
  // Null: it is not there, or no longer.
  std::shared_ptr<const void> find(const Key& key);
  // The last one stays, however large it is.
  void put(const Key& key, std::shared_ptr<const void> problem, double bytes);
  // What an owner has.
  void clear(std::uint64_t owner);

 private:
  struct Kept {
    Key key;
    std::shared_ptr<const void> problem;
    double bytes = 0;
  };
  void remove(std::list<Kept>::iterator kept);

  const double most_bytes_;
  std::mutex mutex_;
  std::list<Kept> kept_;  // the last one that was asked for first
  std::map<Key, std::list<Kept>::iterator> places_;
  double bytes_ = 0;
  std::uint64_t owners_ = 0;
};

}  // namespace autopar
