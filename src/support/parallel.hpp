// Work on several threads.
#pragma once

#include <cstddef>
#include <functional>

#include "autopar/support.hpp"

namespace autopar {

// Calls work(0) to work(count - 1), each once, on so many threads at most, this one among them;
// returns when all are done. Where work calls it again, or another thread does, these share the
// threads: one that waits leaves its place to another. What work throws comes out of it.
void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

// The same of work that can fail: all of it is done. Errors: the first, by number.
Status try_in_parallel(int threads, std::size_t count,
                       const std::function<Status(std::size_t)>& work);

}  // namespace autopar
