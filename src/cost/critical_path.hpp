// What a step waits for, link by link of the chain that decides when it ends: each part of it on a
// stream begins when the part before it in the chain ends. A weight per op and stream that says how
// much of its time is on that chain is what a plan gains by less of it.
#pragma once

#include <vector>

#include "autopar/cost.hpp"

namespace autopar {

// Parts of a step, each with the one that it waited for.
class CriticalPath {
 public:
  using Part = int;
  static constexpr Part kNone = -1;

  Part add(std::size_t term, int link, Seconds seconds, Part after) {
    parts_.push_back({term, link, seconds, after, true});
    return static_cast<Part>(parts_.size()) - 1;
  }
  // What such a part takes longer since it shares its link: on the path, and no time of the link.
  Part beside(std::size_t term, int link, Seconds seconds, Part after) {
    const Part part = add(term, link, seconds, after);
    parts_.back().is_busy = false;
    return part;
  }
  static constexpr int kCompute = -1;  // in place of a link
  void end(Part last) { last_ = last; }

  // What goes over a link when compute comes to an op, and what of it is not done.
  void note_behind(OpId op, int link, Seconds behind) { behind_.push_back({op, link, behind}); }

  // Per op the part of the time of its compute and of its collectives over each link that is on the
  // path; of what it has none of, where the path is at that time. `whens`: the op of each term;
  // `times`: how often each op is run.
  std::vector<StreamPrices> prices(const std::vector<OpId>& whens,
                                   const std::vector<std::int64_t>& times) const;

 private:
  struct Step {
    std::size_t term;
    int link;
    Seconds seconds;
    Part after;
    bool is_busy;
  };
  struct Behind {
    OpId op;
    int link;
    Seconds seconds;
  };
  std::vector<Step> parts_;
  std::vector<Behind> behind_;
  Part last_ = kNone;
};

}  // namespace autopar
