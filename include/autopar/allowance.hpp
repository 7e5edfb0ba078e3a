// What a piece of work may take, counted and not timed, so that it ends at the same place
// everywhere; and, where the caller has a clock, that too.
//
//   Allowance allowance{.most_work = 1e9, .most_bytes = 1e9};
//   allowance.add(entries, bytes);
//   if (allowance.over()) return;  // what there is by now is worthless
#pragma once

#include <functional>
#include <limits>

namespace autopar {

struct Allowance {
  double most_work = std::numeric_limits<double>::infinity();   // steps of a few nanoseconds each
  double most_bytes = std::numeric_limits<double>::infinity();  // estimated, of what is kept
  std::function<bool()> stopped = {};                           // by a clock or a person
  double work = 0;
  double bytes = 0;

  void add(double more_work, double more_bytes) {
    work += more_work;
    bytes += more_bytes;
  }
  bool spent() const { return work > most_work || bytes > most_bytes; }
  bool over() const { return spent() || (stopped && stopped()); }
};

}  // namespace autopar
