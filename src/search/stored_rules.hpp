// What --zero and the like leave of how ops read what is stored.
#pragma once

#include <functional>
#include <vector>

#include "autopar/phase_ops.hpp"
#include "autopar/search.hpp"

namespace autopar {

// The values that passes must not reshard: what is stored as they read it where `holds`, and what
// they make of that alone, so that it is not gathered a little later.
std::vector<bool> as_read_values(const SearchRequest& request,
                                 const std::function<bool(ValueId)>& holds);

// Whether an op is left free where others are filled in (Fill): a phase op follows what it hands
// on, and what updates values that lie by rules goes by how they lie.
bool is_never_filled(const SearchRequest& request, const PhaseOps& phase_ops, OpId op);

}  // namespace autopar
