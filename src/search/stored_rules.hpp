// What --zero and the like leave of how ops read what is stored.
#pragma once

#include <functional>
#include <vector>

#include "autopar/search.hpp"

namespace autopar {

// The values that passes must not reshard: what is stored as they read it where `holds`, and what
// they make of that alone, so that it is not gathered a little later.
std::vector<bool> as_read_values(const SearchRequest& request,
                                 const std::function<bool(ValueId)>& holds);

// Whether an op is left free where others are filled in (Fill): it updates what lies by rules, and
// goes by how that lies.
bool updates_what_is_stored(const SearchRequest& request, const Op& op);

}  // namespace autopar
