// What crosses where a step may be cut.
#pragma once

#include <string>
#include <vector>

#include "autopar/ir.hpp"

namespace autopar {

// Per op of the step the bytes, whole, that a chunk which begins with it is handed in a pass: what
// forward ops before make and forward ops from there on read. 0: nothing is cut there.
std::vector<Bytes> bytes_crossing(const Graph& step, const std::string& updates);

}  // namespace autopar
