// How much room a chunk's units get, so that the chunk fits that is made of them.
#pragma once

#include <algorithm>
#include <cstddef>

#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/unit_mix.hpp"

namespace autopar {

// What a chunk holds beside its units is known once it is planned: then these get what is left.
// Where what they saved before did not lower the peak of a chunk that did not fit by as much, they
// save more (secant method), and each time twice as much of that.
class UnitRoom {
 public:
  explicit UnitRoom(double limit) : limit_(limit) {}

  // Bytes for units of that way, after a chunk of such a mix that takes `bytes`.
  double next(const UnitMix& mix, double bytes) {
    double follows = 1;
    if (bytes > limit_) {
      const std::size_t way = mix.smaller.way;
      const double saved = before_.way == way ? before_.of_units - mix.bytes : 0;
      if (saved > 0) {
        const double part = (before_.of_chunk - bytes) / saved;
        follows = std::clamp(part / at_once_, tuning::chunks::kLeastFollowing, 1.0);
      }
      if (before_.of_chunk > 0) at_once_ *= 2;
      before_ = {way, mix.bytes, bytes};
    }
    return std::max(1.0, mix.bytes - (bytes - limit_) / follows);
  }

  bool is_hopeless() const { return at_once_ > tuning::chunks::kMostAtOnce; }

 private:
  struct Unfit {
    std::size_t way = 0;
    double of_units = 0, of_chunk = 0;  // bytes; 0: there was none
  };
  const double limit_;
  Unfit before_;
  double at_once_ = 1;
};

}  // namespace autopar
