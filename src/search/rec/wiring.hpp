// What of a graph stays the same at all levels: which ops are alike, and which values join them.
#pragma once

#include <vector>

#include "autopar/search.hpp"

namespace autopar::rec {

// How one op touches one value: the ports that read it, or the output that makes it.
struct Touch {
  int star = -1;
  int output = -1;         // -1: the op reads the value
  std::vector<int> ports;  // reading: ascending
  int kind = -1;           // the same number where output and ports are
};

// A value that an op reads or the graph returns; constants lie whole everywhere and have no star.
struct StarOf {
  ValueId value;
  bool stored = false;     // an input or parameter
  bool is_output = false;  // leaves the graph, reduced
  int update_of = -1;      // the star of the input whose next value this is
  int updated_by = -1;     // the other way round
  int kind = -1;           // the same number where type and what is said above are alike
};

struct Wiring {
  std::vector<int> class_of_op;  // ops of equal signature behave alike
  std::vector<OpId> op_of_class;
  std::vector<int> batch_factor_of_class;
  std::vector<std::vector<Touch>> touches_of_op;
  std::vector<StarOf> stars;
};
// Ops that are pinned, or make or read something pinned, are classes of their own. O(size of the
// graph).
Wiring wiring_of(const SearchRequest& request);

}  // namespace autopar::rec
