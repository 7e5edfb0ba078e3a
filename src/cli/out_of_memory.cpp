#include "cli/out_of_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <new>
#include <string>

#include "autopar/errors.hpp"
#include "autopar/unfinished.hpp"

namespace autopar::cli {

namespace {

// Addresses for what the last steps need: names of files, the message.
constexpr std::size_t kReserve = std::size_t{1} << 20;
void* g_reserve = MAP_FAILED;
constexpr char kLastWords[] = "autopar: error: the memory of this machine does not suffice\n";

std::atomic<bool> g_ending{false};
thread_local bool t_ends = false;

void end() {
  if (t_ends) throw std::bad_alloc();  // the reserve did not suffice
  if (g_ending.exchange(true)) {
    while (true) pause();  // another thread does it
  }
  t_ends = true;
  if (g_reserve != MAP_FAILED) munmap(g_reserve, kReserve);
  g_reserve = MAP_FAILED;
  const std::bad_alloc failed;
  bool removed = true;
  try {
    removed = remove_unfinished();
    const std::string text =
        removed ? "autopar: error: " + error_of(failed).message + "\n" : std::string();
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  } catch (const std::bad_alloc&) {  // then less is said
    [[maybe_unused]] const ssize_t written =
        write(STDERR_FILENO, kLastWords, sizeof kLastWords - 1);
  }
  if (!removed) {  // this thread is at work on them: it unwinds, and main() ends the program
    t_ends = false;
    g_ending = false;
    throw failed;
  }
  _exit(static_cast<int>(ErrorCode::kResource));
}

}  // namespace

void end_where_memory_ends() {
  g_reserve = mmap(nullptr, kReserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::set_new_handler(end);
}

}  // namespace autopar::cli
