#include "support/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace autopar {

void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::future<void>> others;
  const std::size_t most = std::min(count, static_cast<std::size_t>(std::max(1, threads)));
  while (others.size() + 1 < most) others.push_back(std::async(std::launch::async, run));
  run();
  for (std::future<void>& other : others) other.get();
}

}  // namespace autopar
