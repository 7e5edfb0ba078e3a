#include "cli/interrupt.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <system_error>
#include <thread>

#include "autopar/unfinished.hpp"

namespace autopar::cli {

namespace {

// Signals on their way to the thread that waits for them; written to by the handler.
int g_signals[2] = {-1, -1};

extern "C" void pass_on(int signal) {
  const auto number = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t written = write(g_signals[1], &number, 1);
}

// Files cannot be removed in a handler, so a thread does it; then the signal does what it always
// does.
void wait_for_signal() {
  char number = 0;
  while (read(g_signals[0], &number, 1) != 1) {
  }
  static_cast<void>(remove_unfinished());
  std::signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void end_on_interrupt() {
  static const bool waits = [] {
    if (pipe2(g_signals, O_CLOEXEC) != 0) return false;
    try {
      std::thread(wait_for_signal).detach();
    } catch (const std::system_error&) {
      return false;  // then the program ends at once
    }
    return true;
  }();
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, waits ? pass_on : SIG_DFL);
}

}  // namespace autopar::cli
