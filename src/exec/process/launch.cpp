#include "exec/process/launch.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "exec/environment.hpp"

namespace autopar {

namespace {

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  // null: none
};
constexpr Variables kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // Not SLURM_NTASKS, which a batch script has too.
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
};

// The number in a variable, `fallback` where it is not set.
Result<int> number(const char* name, int fallback) {
  const char* text = variable(name);
  if (text == nullptr) return fallback;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) {
    return usage_error(std::string("the environment variable ") + name + " is '" + text +
                       "', expected a number of at least 0");
  }
  return value;
}

// Of "4" or "4(x2)"; 0 where the nodes have different numbers, "4,3".
int tasks_per_node() {
  const char* text = variable("SLURM_STEP_TASKS_PER_NODE");
  if (text == nullptr) return 0;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  const bool alike =
      stop == end || (*stop == '(' && end[-1] == ')' && std::strchr(text, ',') == nullptr);
  return error == std::errc() && alike ? value : 0;
}

// srun's PMI says nothing of the machine, but srun itself does.
Status read_local(const Variables& names, Launch& launch) {
  const bool by_srun = variable("SLURM_STEP_NUM_TASKS") != nullptr;
  const bool ask_srun = by_srun && variable(names.local_rank) == nullptr;
  AUTOPAR_TRY(local_rank, number(ask_srun ? "SLURM_LOCALID" : names.local_rank, 0));
  launch.local_rank = local_rank;
  AUTOPAR_TRY(local_size, number(names.local_size, by_srun ? tasks_per_node() : 0));
  launch.local_size = local_size;
  return Ok{};
}

Status read_address(Launch& launch) {
  if (const char* address = variable("MASTER_ADDR")) launch.address = address;
  AUTOPAR_TRY(port, number("AUTOPAR_PORT", 0));
  launch.port = port;
  if (port != 0) return Ok{};
  AUTOPAR_TRY(master, number("MASTER_PORT", 0));
  launch.port = master;
  const char* store = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (master != 0 && store != nullptr && std::string(store) == "True") ++launch.port;
  return Ok{};
}

}  // namespace

Result<std::string> secret_of_environment() {
  if (const char* secret = std::getenv("AUTOPAR_SECRET")) {
    if (*secret == '\0') return usage_error("AUTOPAR_SECRET is set, but empty");
    return std::string(secret);
  }
  const char* path = std::getenv("AUTOPAR_SECRET_FILE");
  if (path == nullptr) return std::string();
  std::ifstream file(path);
  std::string secret;
  if (!std::getline(file, secret) || secret.empty()) {
    return usage_error(
        std::string("AUTOPAR_SECRET_FILE: there is no secret in the first line of ") + path);
  }
  return secret;
}

int tasks_of_srun() {
  const auto tasks = number("SLURM_STEP_NUM_TASKS", 0);
  return tasks ? *tasks : 0;
}

Result<std::optional<Launch>> launch_of_environment() {
  for (const Variables& names : kLaunchers) {
    if (variable(names.rank) == nullptr || variable(names.size) == nullptr) continue;
    Launch launch;
    launch.launcher = names.launcher;
    AUTOPAR_TRY(rank, number(names.rank, 0));
    AUTOPAR_TRY(size, number(names.size, 1));
    if (rank >= size) {
      return usage_error(std::string(names.rank) + " is " + std::to_string(rank) + " and " +
                         names.size + " is " + std::to_string(size) +
                         ": a rank must be below the number of ranks");
    }
    launch.rank = rank;
    launch.size = size;
    AUTOPAR_RETURN_IF_ERROR(read_local(names, launch));
    AUTOPAR_RETURN_IF_ERROR(read_address(launch));
    return std::optional<Launch>(launch);
  }
  return std::optional<Launch>();
}

}  // namespace autopar
