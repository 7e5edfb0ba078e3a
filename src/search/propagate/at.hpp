// Indices of nodes and labels are int, those of vectors are not.
#pragma once

#include <cstddef>

namespace autopar {

inline std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace autopar
