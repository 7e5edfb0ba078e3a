// Work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace autopar {

// Calls work(0) to work(count - 1), each once, on so many threads at most, this one among them;
// returns when all are done. Where work calls it again, or another thread does, these share the
// threads: one that waits leaves its place to another. What work throws comes out of it.
void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace autopar
