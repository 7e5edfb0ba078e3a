#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "exec/mpi/mpi_communicator.hpp"
#include "exec/mpi/mpi_library.hpp"
#include "exec/process/joined.hpp"
#include "exec/process/listen.hpp"
#include "exec/process/wire.hpp"

namespace autopar {

namespace {

constexpr std::size_t kAddressBytes = 8192;
constexpr std::size_t kSecretBytes = 16;

Error mpi_error(const char* error) { return runtime_error(std::string("MPI: ") + error); }

// "Open MPI v4.1.4, package: ..." -> "Open MPI v4.1.4"; "MPICH Version:\t4.0.2\n..." in one line.
std::string short_name(const std::string& library) {
  std::string text = library.substr(0, library.find_first_of(",\n"));
  std::string shown;
  for (char c : text) {
    if (c == '\t') c = ' ';
    if (c != ' ' || (!shown.empty() && shown.back() != ' ')) shown += c;
  }
  return shown;
}

std::string to_bytes(const Rank0Address& address) {
  WireWriter writer;
  writer.put<std::uint64_t>(address.hosts.size());
  for (const std::string& host : address.hosts) writer.put_text(host);
  writer.put(address.port);
  writer.put_text(address.secret);
  return writer.take();
}

Result<Rank0Address> address_of(std::string_view bytes) {
  WireReader reader(bytes);
  Rank0Address address;
  for (std::size_t left = reader.count(sizeof(std::uint64_t)); left > 0; --left) {
    address.hosts.push_back(reader.text());
  }
  address.port = reader.number<int>();
  address.secret = reader.text();
  if (reader.failed() || address.port == 0) {
    return runtime_error("rank 0 could not open a socket for the others");
  }
  return address;
}

// The address of rank 0, over MPI, and the channel at it.
Result<std::unique_ptr<ControlChannel>> connect_by_mpi(const AutoparMpiTable& mpi, int rank,
                                                       int size, bool one_machine,
                                                       Seconds timeout) {
  char error[AUTOPAR_MPI_ERROR_BYTES] = "";
  std::string buffer(kAddressBytes, '\0');
  std::optional<Listener> listener;
  std::string problem;  // all ranks learn of it, so that none waits
  std::string secret;
  if (rank == 0) {
    auto opened = Listener::open(0, one_machine);
    if (opened) {
      listener.emplace(std::move(*opened));
      secret = random_bytes(kSecretBytes);
      const std::string bytes = to_bytes({own_addresses(one_machine), listener->port(), secret});
      AUTOPAR_CHECK(bytes.size() <= buffer.size(), "too many network addresses");
      std::memcpy(buffer.data(), bytes.data(), bytes.size());
    } else {
      problem = opened.error().message;
    }
  }
  if (mpi.broadcast_world(buffer.data(), buffer.size(), 0, error) != 0) return mpi_error(error);
  if (rank == 0) {
    if (!problem.empty()) return runtime_error(problem);
    return ControlChannel::accept(std::move(*listener), size, secret, timeout);
  }
  AUTOPAR_TRY(address, address_of(buffer));
  return ControlChannel::connect(address, rank, size, timeout);
}

struct Way {
  const char* name;
  Result<Joined> (*join)(Seconds timeout);
};
constexpr Way kWays[] = {
    {"mpi", join_mpi},
    {"nccl", join_nccl},
};

struct MpiWorld {
  const AutoparMpiTable* mpi = nullptr;
  Joined joined;
};

// srun lets the processes of an MPI find each other only where it is told how.
Error srun_error(const std::string& what) {
  return usage_error(
      "srun has started " + std::to_string(tasks_of_srun()) + " processes, but " + what +
      ": srun --mpi=pmi2 for MPICH, --mpi=pmix for Open MPI (AUTOPAR_MPI " +
      "chooses between them); for --ranks-by nccl MASTER_ADDR and MASTER_PORT do too");
}

bool has_variable(const char* name) { return std::getenv(name) != nullptr; }

Result<MpiWorld> open_mpi_world(Seconds timeout) {
  const bool found_out =
      has_variable("PMI_RANK") || has_variable("PMIX_RANK") || has_variable("OMPI_COMM_WORLD_RANK");
  if (tasks_of_srun() > 1 && !found_out) return srun_error("without telling MPI of the others");
  AUTOPAR_TRY(mpi, open_mpi_library());
  MpiWorld world;
  world.mpi = mpi;
  char error[AUTOPAR_MPI_ERROR_BYTES] = "";
  int rank = 0;
  int size = 1;
  if (mpi->start(&rank, &size, error) != 0) return mpi_error(error);
  if (size == 1 && tasks_of_srun() > 1) {
    return srun_error(short_name(mpi->library()) + " finds this one only");
  }
  world.joined.local_size = mpi->local_size();
  const bool one_machine = world.joined.local_size == size;
  AUTOPAR_TRY(control, connect_by_mpi(*mpi, rank, size, one_machine, timeout));
  world.joined.control = std::move(control);
  world.joined.description = "processes by " + short_name(mpi->library());
  world.joined.finish = [mpi] { mpi->finish(); };
  world.joined.stop = [mpi](int code) { mpi->stop(code); };
  return world;
}

}  // namespace

Result<Joined> join_ranks(const std::string& ranks_by, Seconds timeout) {
  for (const Way& way : kWays) {
    if (ranks_by == way.name) return way.join(timeout);
  }
  return usage_error("--ranks-by " + ranks_by + ": this build cannot run ranks that way");
}

Result<Joined> join_control_by_mpi(Seconds timeout) {
  AUTOPAR_TRY(world, open_mpi_world(timeout));
  return std::move(world.joined);
}

Result<Joined> join_mpi(Seconds timeout) {
  AUTOPAR_TRY(world, open_mpi_world(timeout));
  Joined joined = std::move(world.joined);
  ControlChannel* control = joined.control.get();
  Surroundings surroundings;
  surroundings.failed = [control] { return control->failed(); };
  surroundings.failure = [control] { return control->failure(); };
  surroundings.abort = [control](const std::string& reason) {
    control->report(runtime_error(reason));
  };
  surroundings.calls = &control->calls();
  control->limit_calls(timeout);
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  surroundings.oversubscribed = static_cast<unsigned>(joined.local_size) > cores;
  joined.communicator =
      std::make_unique<MpiCommunicator>(*world.mpi, control->rank(), control->size(), surroundings);
  return joined;
}

Result<Joined> join_control_at_address(const Launch& launch, Seconds timeout) {
  Joined joined;
  joined.local_size = launch.local_size;
  joined.description = "processes by " + launch.launcher;
  if (launch.port == 0 && launch.size > 1) {
    return usage_error(
        "the environment says " + launch.launcher +
        " started this process, but not where rank 0 is: set MASTER_ADDR and MASTER_PORT");
  }
  AUTOPAR_TRY(own_secret, secret_of_environment());
  const bool one_machine = launch.local_size == launch.size;
  if (launch.address.empty() && !one_machine && launch.local_size != 0) {
    return usage_error("the ranks run on several machines: set MASTER_ADDR to that of rank 0");
  }
  const std::string host = launch.address.empty() ? "127.0.0.1" : launch.address;
  Rank0Address address;
  address.hosts = one_machine ? own_addresses(true) : std::vector<std::string>{host};
  address.port = launch.port;
  const char* job = std::getenv("TORCHELASTIC_RUN_ID");
  address.secret = std::string("autopar ") + (job != nullptr ? job : "") + "\n" + own_secret;
  if (launch.rank == 0) {
    AUTOPAR_TRY(listener, listen_as_rank_0(launch, own_secret));
    AUTOPAR_TRY(control,
                ControlChannel::accept(std::move(listener), launch.size, address.secret, timeout));
    joined.control = std::move(control);
    return joined;
  }
  AUTOPAR_TRY(control, ControlChannel::connect(address, launch.rank, launch.size, timeout));
  joined.control = std::move(control);
  return joined;
}

}  // namespace autopar
