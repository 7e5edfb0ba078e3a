// Which training steps are small.
#pragma once

#include <cstddef>

namespace autopar {

// Of so many ops: searches try more on them, since collectives take as long as compute there, and
// estimates say less. The number is chosen: such steps are planned in a second or two.
inline constexpr std::size_t kSmallStep = 3000;

}  // namespace autopar
