// How much room a chunk's units get, so that the chunk fits that is made of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>

#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/pipelines/unit_mix.hpp"

namespace autopar {

// What a chunk holds beside its units is known once it is planned: then these get what is left.
// Where what they saved before did not lower the peak of a chunk that did not fit by as much, they
// save more (secant method), and each time twice as much of that.
class UnitRoom {
 public:
  explicit UnitRoom(double limit) : limit_(limit) {}

  // Bytes for units of these ways, after a chunk of such a mix that takes `bytes`.
  double next(const UnitMix& mix, double bytes) {
    double follows = 1;
    if (bytes > limit_) {
      Unfit& before = unfit_[mix.ways()];
      const double saved = before.of_units - mix.bytes;
      if (saved > 0) {
        const double part = (before.of_chunk - bytes) / saved;
        follows = std::clamp(part / before.at_once, tuning::chunks::kLeastFollowing, 1.0);
      }
      if (before.of_chunk > 0) before.at_once *= 2;
      before.of_units = mix.bytes;
      before.of_chunk = bytes;
      ++tries_;
    }
    return std::max(1.0, mix.bytes - (bytes - limit_) / follows);
  }

  bool is_hopeless() const { return tries_ >= tuning::chunks::kMostUnfit; }

 private:
  struct Unfit {
    double of_units = 0, of_chunk = 0;  // bytes; 0: there was none
    double at_once = 1;
  };
  const double limit_;
  std::map<TwoWays, Unfit> unfit_;
  int tries_ = 0;
};

}  // namespace autopar
