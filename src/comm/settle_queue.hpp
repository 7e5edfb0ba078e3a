// States by the seconds in which they are reached, for Dijkstra's algorithm: what is taken out
// never grows less. Buckets as in R. B. Dial, "Algorithm 360: shortest-path forest with topological
// ordering", CACM 1969, but of a fixed share of the seconds (a sixteenth of a power of two) and
// sorted when their turn comes, so that the order is exact.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "autopar/mesh.hpp"

namespace autopar {

class SettleQueue {
 public:
  SettleQueue() { first_.fill(-1); }

  void push(Seconds seconds, int state) {
    const int bucket = bucket_of(seconds);
    if (bucket <= now_) return insert({seconds, state, -1});
    entries_.push_back({seconds, state, first_[at(bucket)]});
    first_[at(bucket)] = static_cast<std::int32_t>(entries_.size()) - 1;
    filled_[at(bucket / 64)] |= std::uint64_t{1} << (bucket % 64);
  }
  bool empty() {
    if (due_.empty()) open_next();
    return due_.empty();
  }
  // A state that is reached in the fewest seconds. Precondition: not empty.
  int pop() {
    const int state = due_.back().state;
    due_.pop_back();
    return state;
  }
  void clear();

 private:
  struct Entry {
    Seconds seconds;
    std::int32_t state;
    std::int32_t next;  // in the same bucket; -1: none
  };
  static constexpr int kPerOctave = 4;  // bits
  static constexpr int kBuckets = 64 << kPerOctave;
  static constexpr int kLeastExponent = -40;  // of two; all that is less is in one bucket

  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  // Positive numbers are in the order of their bits: exponent, then mantissa.
  static int bucket_of(Seconds seconds) {
    constexpr int kFirst = (1023 + kLeastExponent) << kPerOctave;
    const int bits = static_cast<int>(std::bit_cast<std::uint64_t>(seconds) >> (52 - kPerOctave));
    return bits <= kFirst ? 0 : bits - kFirst >= kBuckets ? kBuckets - 1 : bits - kFirst;
  }
  void insert(const Entry& entry);
  void open_next();

  std::vector<Entry> entries_;  // of the buckets after the one that is due
  std::vector<Entry> due_;      // in falling order
  int now_ = -1;                // the bucket that is due
  std::array<std::int32_t, kBuckets> first_;
  std::array<std::uint64_t, kBuckets / 64> filled_ = {};  // bits of buckets
};

}  // namespace autopar
