#include "support/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <future>
#include <vector>

namespace autopar {

namespace {

// Threads that run beside the first one, of all calls.
std::atomic<int> g_others = 0;

bool take_thread(int threads) {
  int others = g_others.load();
  while (others < threads - 1) {
    if (g_others.compare_exchange_weak(others, others + 1)) return true;
  }
  return false;
}

struct ThreadGivenBack {
  ThreadGivenBack() = default;
  ThreadGivenBack(const ThreadGivenBack&) = delete;
  ThreadGivenBack& operator=(const ThreadGivenBack&) = delete;
  ~ThreadGivenBack() { --g_others; }
};

}  // namespace

void in_parallel(int threads, std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::future<void>> others;
  while (others.size() + 1 < count && take_thread(threads)) {
    others.push_back(std::async(std::launch::async, [&] {
      const ThreadGivenBack given_back;
      run();
    }));
  }
  run();
  if (others.empty()) return;
  --g_others;  // this one waits, so another may run
  for (std::future<void>& other : others) other.wait();
  ++g_others;
  for (std::future<void>& other : others) other.get();
}

Status try_in_parallel(int threads, std::size_t count,
                       const std::function<Status(std::size_t)>& work) {
  std::vector<Status> ends(count, Status(Ok{}));
  in_parallel(threads, count, [&](std::size_t i) { ends[i] = work(i); });
  for (const Status& end : ends) AUTOPAR_RETURN_IF_ERROR(end);
  return Ok{};
}

}  // namespace autopar
