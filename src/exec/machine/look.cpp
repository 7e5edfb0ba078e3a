#include "exec/machine/look.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <sstream>

namespace autopar {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kEnd = "that is all";

// Lines: name and value in turn, and a last one that shows that nothing is missing.
std::string lines_of(const Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    std::string line = value;
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += name + "\n" + line + "\n";
  }
  return text + kEnd;
}

std::optional<Facts> facts_in(const std::string& text) {
  Facts facts;
  std::istringstream lines(text);
  std::string name, value;
  while (std::getline(lines, name) && std::getline(lines, value)) facts.emplace_back(name, value);
  if (name != kEnd) return std::nullopt;
  return facts;
}

// What libraries say when they are opened is not this program's to say.
void silence() {
  const int nowhere = open("/dev/null", O_RDWR);
  if (nowhere < 0) return;
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
}

[[noreturn]] void look_and_tell(const std::function<Facts()>& look, int to) {
  silence();
  std::string text;
  try {
    text = lines_of(look());
  } catch (const std::exception& exception) {
    text = lines_of({{"broken", exception.what()}});
  }
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(to, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<std::size_t>(n);
  }
  _exit(0);  // without what libraries do at exit
}

// Until the other end is closed; false: the time is up.
bool read_until(int from, Clock::time_point deadline, std::string& text) {
  char block[4096];
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd waiting{from, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<long long>(left, 1000)));
    if (ready <= 0) continue;
    const ssize_t n = read(from, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    text.append(block, static_cast<std::size_t>(n));
  }
}

}  // namespace

Facts look_apart(const std::function<Facts()>& look, Seconds limit) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {{"broken", std::strerror(errno)}};
  const pid_t child = fork();
  if (child < 0) {
    const std::string why = std::strerror(errno);
    close(ends[0]);
    close(ends[1]);
    return {{"broken", "no process could be started to look at it: " + why}};
  }
  if (child == 0) {
    close(ends[0]);
    look_and_tell(look, ends[1]);
  }
  close(ends[1]);
  std::string text;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limit));
  const bool in_time = read_until(ends[0], deadline, text);
  close(ends[0]);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    const std::string seconds = std::to_string(static_cast<int>(limit));
    return {{"broken", "it did not answer within " + seconds + " seconds"}};
  }
  if (const auto facts = facts_in(text)) return *facts;
  if (!WIFSIGNALED(status)) {
    return {{"broken", "it ends the program (exit code " + std::to_string(WEXITSTATUS(status)) +
                           ") when it is opened"}};
  }
  return {{"broken", "it crashes when it is opened (signal " + std::to_string(WTERMSIG(status)) +
                         ", " + strsignal(WTERMSIG(status)) + ")"}};
}

void* open_library(const std::vector<std::string>& candidates, Facts& facts) {
  std::string tried;
  bool present = false;
  for (const std::string& path : candidates) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      const link_map* map = nullptr;
      const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr &&
                         map->l_name != nullptr && *map->l_name != '\0';
      facts.emplace_back("path", known ? map->l_name : path);
      return handle;
    }
    const char* why = dlerror();
    const std::string reason = why != nullptr ? why : "unknown reason";
    // Of the file itself, not of one that it needs.
    const bool of_itself = reason.rfind(path + ":", 0) == 0;
    const bool missing = of_itself && reason.find("No such file") != std::string::npos;
    present = present || !missing;
    tried += (tried.empty() ? "" : "; ") + (of_itself ? reason : path + ": " + reason);
  }
  facts.emplace_back(present ? "broken" : "absent", tried);
  return nullptr;
}

void* symbol_of(void* library, const char* name, Facts& facts) {
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    facts.emplace_back("broken", fact(facts, "path") + ": has no entry " + name +
                                     ", so that it is another library");
  }
  return symbol;
}

Finding finding_of(const std::string& section, const std::string& key, const std::string& name,
                   Facts facts) {
  Finding finding{section, key, name, Found::kOk, "", "", std::move(facts)};
  for (const auto& [known, value] : finding.facts) {
    if (known != "absent" && known != "broken") continue;
    finding.state = known == "absent" ? Found::kAbsent : Found::kBroken;
    finding.what = value;
  }
  std::erase_if(finding.facts,
                [](const auto& f) { return f.first == "absent" || f.first == "broken"; });
  return finding;
}

std::string fact(const Facts& facts, const std::string& name) {
  for (const auto& [known, value] : facts) {
    if (known == name) return value;
  }
  return "";
}

const char* name_of(Found state) {
  switch (state) {
    case Found::kOk:
      return "ok";
    case Found::kAbsent:
      return "absent";
    case Found::kBroken:
      return "broken";
  }
  return "?";
}

}  // namespace autopar
