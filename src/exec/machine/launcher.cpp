// What a launcher said in the environment, and what follows for this process.
#include <cstdlib>

#include "exec/machine/look.hpp"
#include "exec/process/launch.hpp"
#include "exec/process/listen.hpp"

namespace autopar {

namespace {

// Those that are read, and those by which a person sees what happened.
constexpr const char* kVariables[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "AUTOPAR_PORT",
};

Finding launcher(const Result<std::optional<Launch>>& launch) {
  Finding finding{"launcher", "launcher", "launcher"};
  for (const char* name : kVariables) {
    if (const char* value = std::getenv(name)) finding.facts.emplace_back(name, value);
  }
  std::string variables;
  for (const auto& [name, value] : finding.facts) variables += "\n" + name + " = " + value;
  if (!launch) {
    finding.state = Found::kBroken;
    finding.what = launch.error().message + variables;
    finding.without = "--ranks-by mpi and nccl cannot tell which rank this is";
    return finding;
  }
  if (!*launch) {
    finding.state = Found::kAbsent;
    finding.what = "no launcher has started this process" + variables;
    finding.without =
        "--ranks-by mpi and nccl need one: mpirun, srun or torchrun; --ranks-by threads does not";
    return finding;
  }
  const Launch& found = **launch;
  finding.what = found.launcher + ": this is rank " + std::to_string(found.rank) + " of " +
                 std::to_string(found.size) + ", number " + std::to_string(found.local_rank) +
                 (found.local_size > 0 ? " of " + std::to_string(found.local_size) : "") +
                 " on this machine" + variables;
  return finding;
}

Finding address(const Launch& launch) {
  Finding finding{"launcher", "address", "address of rank 0"};
  if (launch.port != 0) {
    finding.what = (launch.address.empty() ? "127.0.0.1" : launch.address) + ", port " +
                   std::to_string(launch.port);
    return finding;
  }
  finding.state = Found::kAbsent;
  finding.what = "the environment does not say it";
  finding.without = launch.launcher == "torchrun"
                        ? "the ranks cannot find each other: set MASTER_ADDR and MASTER_PORT"
                        : "MPI carries it; without MPI set MASTER_ADDR and MASTER_PORT";
  return finding;
}

// Without MPI; MPI's own ranks get a random one.
Finding secret(const Launch& launch) {
  Finding finding{"launcher", "secret", "secret of the run"};
  const auto found = secret_of_environment();
  if (!found) {
    finding.state = Found::kBroken;
    finding.what = found.error().message;
    finding.without = "the ranks cannot join";
  } else if (!found->empty()) {
    finding.what = "there is one, which processes must know to join";
  } else {
    finding.state = Found::kAbsent;
    finding.what = "neither AUTOPAR_SECRET nor AUTOPAR_SECRET_FILE is set";
    finding.without = launch.local_size == launch.size
                          ? "any process of this machine may join"
                          : "whoever reaches the port of rank 0 may join; it is open only on the "
                            "interface with the address of MASTER_ADDR";
  }
  return finding;
}

// Whether rank 0 could listen: where it would, if this is rank 0, else at any port.
Finding port(const Result<std::optional<Launch>>& launch) {
  Finding finding{"launcher", "port", "listening for other ranks"};
  const bool is_said =
      launch.ok() && launch->has_value() && (*launch)->rank == 0 && (*launch)->port != 0;
  const auto own_secret = secret_of_environment();
  const auto listener = is_said ? listen_as_rank_0(**launch, own_secret ? *own_secret : "")
                                : Listener::open(0, false);
  if (!listener) {
    finding.state = Found::kBroken;
    finding.what = listener.error().message;
    finding.without =
        "ranks in other processes cannot join: set AUTOPAR_PORT to a free port, MASTER_ADDR to the "
        "address of this machine";
    return finding;
  }
  std::string addresses;
  for (const std::string& own : own_addresses(false)) {
    addresses += (addresses.empty() ? "" : ", ") + own;
  }
  finding.what = (is_said ? "port " + std::to_string((*launch)->port) + " is free"
                          : std::string("a port can be had")) +
                 "; this machine is " + addresses;
  finding.facts.emplace_back("addresses", addresses);
  return finding;
}

}  // namespace

void examine_launcher(std::vector<Finding>& findings) {
  const auto launch = launch_of_environment();
  findings.push_back(launcher(launch));
  if (launch.ok() && launch->has_value()) {
    findings.push_back(address(**launch));
    const bool by_address = (*launch)->launcher == "torchrun" || (*launch)->port != 0;
    if (by_address) findings.push_back(secret(**launch));
  }
  findings.push_back(port(launch));
}

}  // namespace autopar
