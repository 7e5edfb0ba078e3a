// Sums of products whose operands are told by letters, as in Einsum, where dimensions of extent 1
// stand for any extent.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "autopar/builder.hpp"

namespace autopar {

struct Lettered {
  ValueId value;
  std::string letters;  // one per dimension, none twice
};
// The sum over all letters that `letters` lacks, in the shape `target` (one extent per letter; 1:
// the letter is summed over as well). Letters that no operand has are repeated. `extents` are those
// of the letters.
ValueId contract(GraphBuilder& to, std::vector<Lettered> operands, const std::string& letters,
                 const std::map<char, std::int64_t>& extents, Shape target);

}  // namespace autopar
