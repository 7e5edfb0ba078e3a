// Equal layers as one: ops that look alike as far as one can see from them decide alike, and the
// values around them lie alike, so that a level of the recursion takes as long for a hundred layers
// as for a few.
//
// Alike is meant as in colour refinement (Weisfeiler, Leman 1968), ended after some rounds, since
// the ends of a chain of layers would tell all of them apart. What a level costs is the sum over
// all ops and values all the same: everything counts as often as it is there.
#pragma once

#include "search/rec/wiring.hpp"

namespace autopar::rec {

struct Groups {
  struct OpGroup {
    int first = -1;  // the first of its ops
    double count = 0;
    int first_port = -1;  // its ports are those up to the next group's
  };
  struct StarGroup {
    int first = -1;  // the first of its stars
    double count = 0;
  };
  // Ops of a group touch stars of one group so, so many times.
  struct Port {
    int star = -1;            // group
    const Touch* touch = {};  // of some op of the group: what it says of output and ports
    double count = 0;
  };
  // Stars whose next values are stars of another group, so many times.
  struct Update {
    int star = -1, updated_by = -1;  // groups
    double count = 0;
  };

  std::vector<int> group_of_op, group_of_star;
  std::vector<OpGroup> ops;  // by their first ops
  std::vector<StarGroup> stars;
  std::vector<Port> ports;      // of an op group, by star
  std::vector<Update> updates;  // by star

  std::size_t first_port(std::size_t op) const {
    return op < ops.size() ? static_cast<std::size_t>(ops[op].first_port) : ports.size();
  }
};

// Both keep pointers into the wiring.
Groups each_alone(const Wiring& wiring);
// `mark_of_star`: stars with different marks are not alike; empty: all have the same. O(rounds *
// size of the graph).
Groups alike(const Wiring& wiring, const std::vector<int>& mark_of_star);

}  // namespace autopar::rec
