#include "exec/process/last_words.hpp"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

namespace autopar {

namespace {

constexpr unsigned kSecondsLonger = 1;
constexpr unsigned kSecondsToAbort = 3;  // a busy machine may need them to hear of the other's end

// What `ps` shows, so that nobody takes this process for the rank.
void rename_process(const char* name) {
  prctl(PR_SET_NAME, name);
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string words((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (words.empty() || program_invocation_name == nullptr) return;
  char* first = program_invocation_name;  // the words lie one after the other
  if (words.compare(0, std::strlen(first), first) != 0) return;
  std::memset(first, 0, words.size());
  std::strncpy(first, name, words.size() - 1);
}

pid_t passed_on_to = 0;
void pass_on(int number) { kill(passed_on_to, number); }

[[noreturn]] void end_as(pid_t child) {
  passed_on_to = child;
  signal(SIGINT, pass_on);
  signal(SIGTERM, pass_on);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGABRT) {
    sleep(kSecondsLonger);
  }
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}

// abort() raises the signal again when this returns.
void wait_once(int number) {
  signal(number, SIG_DFL);
  for (unsigned left = kSecondsToAbort; left > 0;) left = sleep(left);
}

}  // namespace

void wait_before_abort() {
  struct sigaction now = {};
  const bool is_free = sigaction(SIGABRT, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) == 0 &&
                       now.sa_handler == SIG_DFL;
  if (is_free) signal(SIGABRT, wait_once);  // else it is the program's own
}

void keep_launcher_waiting() {
  if (std::getenv("PMI_FD") == nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) return;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return;
  if (child > 0) {
    rename_process("autopar-launched");
    end_as(child);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

}  // namespace autopar
