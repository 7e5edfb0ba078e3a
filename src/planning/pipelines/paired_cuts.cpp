#include "planning/pipelines/paired_cuts.hpp"

#include <algorithm>

namespace autopar {

namespace {

// What takes so many times two as long has no limit that is of use.
constexpr int kMostDoubled = 20;

class PairedCuts {
 public:
  PairedCuts(std::size_t stages, std::size_t end, const std::vector<PairedLimit>& limits)
      : stages_(stages), end_(end), limits_(limits) {}

  // Whether there are cuts with which no stage takes longer. Of what the stages so far leave, from
  // `a` to `b`, the least `b` for each `a`: with chunks that may be empty, what is left of cuts of
  // more are cuts of less.
  bool fit(Seconds longest) const {
    std::vector<std::size_t> ends(end_ + 1, kNone);
    ends[0] = end_;
    for (std::size_t s = 0; s + 1 < stages_; ++s) {
      std::vector<std::size_t> next(end_ + 1, kNone);
      for (std::size_t a = 0; a <= end_; ++a) {
        if (ends[a] != kNone) lay(s, a, ends[a], longest, next);
      }
      ends = std::move(next);
    }
    for (std::size_t a = 0; a <= end_; ++a) {
      if (ends[a] != kNone && fills(a, ends[a], longest)) return true;
    }
    return false;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  bool fits(std::size_t s, std::size_t a, std::size_t i, std::size_t j, std::size_t b,
            Seconds longest) const {
    return std::all_of(limits_.begin(), limits_.end(), [&](const PairedLimit& limit) {
      return limit.apart + limit.of_chunk(s, a, i) + limit.of_chunk(2 * stages_ - 1 - s, j, b) <=
             longest;
    });
  }

  // All first chunks of a stage, each with the longest other one that goes with it.
  void lay(std::size_t s, std::size_t a, std::size_t b, Seconds longest,
           std::vector<std::size_t>& next) const {
    std::size_t j = b;
    for (std::size_t i = a; i <= b; ++i) {
      while (i == a && j > i && fits(s, a, i, j - 1, b, longest)) --j;
      while (j <= b && (j < i || !fits(s, a, i, j, b, longest))) ++j;
      if (j > b) return;
      next[i] = std::min(next[i], j);
    }
  }

  // The last stage takes all that is left.
  bool fills(std::size_t a, std::size_t b, Seconds longest) const {
    for (std::size_t i = a; i <= b; ++i) {
      if (fits(stages_ - 1, a, i, i, b, longest)) return true;
    }
    return false;
  }

  const std::size_t stages_, end_;
  const std::vector<PairedLimit>& limits_;
};

}  // namespace

Seconds longest_of_pairs(std::size_t stages, std::size_t end, Seconds least,
                         const std::vector<PairedLimit>& limits) {
  const PairedCuts cuts(stages, end, limits);
  if (!(least > 0) || cuts.fit(least)) return least;
  Seconds below = least, above = 2 * least;
  for (int doubled = 0; !cuts.fit(above); ++doubled) {
    if (doubled == kMostDoubled) return least;
    below = above;
    above *= 2;
  }
  while (above - below > kPairedStep * below) {
    const Seconds middle = (below + above) / 2;
    (cuts.fit(middle) ? above : below) = middle;
  }
  return below;
}

}  // namespace autopar
