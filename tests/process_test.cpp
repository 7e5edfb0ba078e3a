// What joins the processes of a run: the launchers' variables, and the control channel, here
// between threads. How processes end is what mpi_run_test.py shows.
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "exec/mpi/mpi_library.hpp"
#include "exec/process/control.hpp"
#include "exec/process/launch.hpp"
#include "exec/whereabouts.hpp"
#include "folder.hpp"

namespace autopar::process_test {

using autopar::testing::Folder;

namespace {

// These variables and no other launcher's, until the end of the scope.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr const char* kNames[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "AUTOPAR_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMI_RANK",
                                           "PMI_SIZE",
                                           "MPI_LOCALRANKID",
                                           "MPI_LOCALNRANKS",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_NUM_TASKS",
                                           "SLURM_STEP_TASKS_PER_NODE",
                                           "SLURM_LOCALID"};
  std::map<std::string, std::string> before_;
};

// Runs `body(channel)` on all ranks, each in a thread.
void on_ranks(int size, const std::function<void(ControlChannel&)>& body) {
  Listener listener = Listener::open(0, true).value();
  const Rank0Address address{own_addresses(true), listener.port(), "secret"};
  std::vector<std::thread> threads;
  for (int rank = 1; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      auto channel = ControlChannel::connect(address, rank, size, 20);
      if (channel) body(**channel);
    });
  }
  auto first = ControlChannel::accept(std::move(listener), size, "secret", 20);
  if (first) body(**first);
  for (std::thread& thread : threads) thread.join();
  REQUIRE(first.ok());
}

}  // namespace

TEST_CASE("the launchers' variables", "[process]") {
  {
    const Environment none({});
    CHECK(!launch_of_environment().value());
  }
  {
    const Environment torch({{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"MASTER_ADDR", "node0"},
                             {"MASTER_PORT", "29500"},
                             {"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "1"}});
    const Launch launch = *launch_of_environment().value();
    CHECK(launch.launcher == "torchrun");
    CHECK(launch.rank == 5);
    CHECK(launch.size == 8);
    CHECK(launch.local_rank == 1);
    CHECK(launch.local_size == 4);
    CHECK(launch.address == "node0");
    CHECK(launch.port == 29500);
  }
  {
    // torchrun's own store listens at the master's port.
    const Environment store({{"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    CHECK(launch_of_environment().value()->port == 29501);
  }
  {
    const Environment chosen(
        {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}, {"AUTOPAR_PORT", "7000"}});
    CHECK(launch_of_environment().value()->port == 7000);
  }
  {
    const Environment open_mpi({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    CHECK(launch_of_environment().value()->launcher == "Open MPI");
  }
  {
    // A batch script, which is no rank.
    const Environment batch({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
    CHECK(!launch_of_environment().value());
    CHECK(tasks_of_srun() == 0);
  }
  for (const auto& [per_node, local_size] :
       std::map<std::string, int>{{"2(x4)", 2}, {"8", 8}, {"3,2", 0}, {"3(x2),2", 0}, {"", 0}}) {
    std::map<std::string, std::string> variables{{"SLURM_PROCID", "3"},
                                                 {"SLURM_NTASKS", "9"},
                                                 {"SLURM_STEP_NUM_TASKS", "8"},
                                                 {"SLURM_STEP_TASKS_PER_NODE", per_node},
                                                 {"SLURM_LOCALID", "1"}};
    const auto check = [&, per_node = per_node, local_size = local_size](const char* launcher) {
      const Environment srun(variables);
      const Launch launch = *launch_of_environment().value();
      CAPTURE(per_node, launcher);
      CHECK(launch.launcher == launcher);
      CHECK(launch.rank == 3);
      CHECK(launch.size == 8);
      CHECK(launch.local_rank == 1);
      CHECK(launch.local_size == local_size);
      CHECK(tasks_of_srun() == 8);
    };
    check("Slurm");
    variables["PMI_RANK"] = "3";  // srun --mpi=pmi2
    variables["PMI_SIZE"] = "8";
    check("PMI");
  }
  {
    // mpirun in a batch script.
    const Environment mpirun({{"SLURM_PROCID", "0"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_NTASKS", "4"},
                              {"PMI_RANK", "3"},
                              {"PMI_SIZE", "4"},
                              {"MPI_LOCALRANKID", "3"},
                              {"MPI_LOCALNRANKS", "4"}});
    const Launch launch = *launch_of_environment().value();
    CHECK(launch.local_rank == 3);
    CHECK(launch.local_size == 4);
  }
  for (const char* rank : {"x", "-1", "2", "1 ", "99999999999"}) {
    const Environment wrong({{"RANK", rank}, {"WORLD_SIZE", "2"}});
    const auto launch = launch_of_environment();
    CAPTURE(rank);
    REQUIRE(!launch);
    CHECK(launch.error().code == ErrorCode::kUsage);
    CHECK(launch.error().message.find("RANK") != std::string::npos);
  }
}

TEST_CASE("the control channel carries texts of any length, in order", "[process]") {
  constexpr int kRanks = 4;
  const std::string longest(3'000'000, 'y');
  std::vector<std::string> got(kRanks);
  std::vector<int> left(kRanks, 0);
  on_ranks(kRanks, [&](ControlChannel& channel) {
    const auto rank = static_cast<std::size_t>(channel.rank());
    for (const std::string& text : {std::string("a"), std::string(), longest}) {
      const auto sent = channel.bus().broadcast(channel.rank() == 0 ? text : "");
      got[rank] += sent ? std::to_string(sent->size()) + " " : "failed ";
    }
    for (int round = 0; round < 3; ++round) {
      const auto all = channel.bus().gather(std::string(rank + 1, 'g'));
      if (!all) got[rank] += "failed ";
      for (std::size_t r = 0; all && r < all->size(); ++r) {
        if ((*all)[r] != std::string(r + 1, 'g')) got[rank] += "wrong ";
      }
      if (all && all->size() != (rank == 0 ? kRanks : 0u)) got[rank] += "size ";
    }
    if (!channel.bus().barrier()) got[rank] += "failed ";
    left[rank] = channel.leave([](const Error&) {}).ok() ? 1 : 2;
  });
  for (const std::string& text : got) CHECK(text == "1 0 3000000 ");
  CHECK(left == std::vector<int>(kRanks, 1));
}

TEST_CASE("a failure of one rank is the failure of all", "[process]") {
  for (int failing : {0, 2}) {
    constexpr int kRanks = 3;
    std::vector<std::string> errors(kRanks);
    std::vector<int> actions(kRanks, 0);
    std::string said;
    std::atomic<int> well = 0;  // of ranks that have left without an error
    on_ranks(kRanks, [&](ControlChannel& channel) {
      const auto rank = static_cast<std::size_t>(channel.rank());
      const auto action = channel.on_failure([&actions, rank] { ++actions[rank]; });
      if (channel.rank() == failing) {
        channel.report({ErrorCode::kRuntime, "rank " + std::to_string(failing) + " broke"});
      } else {
        // Waits for what does not come.
        const Status waited = channel.bus().barrier();
        errors[rank] = waited ? "" : waited.error().message;
      }
      if (channel.leave([&](const Error& error) { said += error.message; })) ++well;
    });
    const std::string expected = "rank " + std::to_string(failing) + " broke";
    CAPTURE(failing);
    CHECK(said == expected);  // by rank 0, once
    CHECK(well == 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      if (rank != failing) CHECK(errors[r] == expected);
      CHECK(actions[r] == 1);
    }
  }
}

namespace {

// A rank that waits in a call of the group, its k-th one.
Whereabouts waiting(const std::string& call, const RankGroup& group, std::uint64_t k) {
  Whereabouts where;
  where.waits_in = call;
  where.group = group;
  where.meetings[group] = k;
  return where;
}

}  // namespace

TEST_CASE("who waits for whom", "[process]") {
  const RankGroup all{0, 1, 2, 3};
  const RankGroup pair{2, 3};
  std::vector<Whereabouts> ranks(4, waiting("AllReduce 'a'", all, 5));
  CHECK(who_waits(ranks, 0) == "AllReduce 'a': all its ranks have come");

  // Rank 1 is past it already, such as the root of a Broadcast.
  ranks[1] = waiting("AllGather 'c'", {0, 1}, 1);
  ranks[1].meetings[all] = 6;
  ranks[2] = {};
  ranks[2].last_call = "AllGather 'b'";
  ranks[2].meetings[all] = 4;
  CHECK(who_waits(ranks, 0) ==
        "AllReduce 'a': ranks 0, 1, 3 wait for rank 2; rank 2 is busy with local ops after "
        "AllGather 'b'");

  // Rank 2 waits for rank 3, which does not answer.
  ranks[2] = waiting("AllToAll 'd'", pair, 2);
  ranks[3] = {};
  ranks[3].answers = false;
  ranks[3].name = "process 7 on node1";
  CHECK(who_waits(ranks, 0) ==
        "AllReduce 'a': ranks 0, 1 wait for ranks 2, 3; AllToAll 'd': rank 2 waits for rank 3; "
        "rank 3 (process 7 on node1) does not answer: it is stopped, "
        "or its machine cannot be reached");

  // In a circle.
  ranks[3] = waiting("AllReduce 'a'", all, 5);
  ranks[3].meetings[pair] = 1;
  CHECK(who_waits(ranks, 3) ==
        "AllReduce 'a': ranks 0, 1, 3 wait for rank 2; AllToAll 'd': rank 2 waits for rank 3");

  ranks.assign(4, waiting("AllReduce 'a'", all, 5));
  ranks[2].waits_in = "AllGather 'x'";
  CHECK(who_waits(ranks, 0) ==
        "AllReduce 'a': all its ranks have come; but rank 2 calls AllGather 'x' where rank 0 calls "
        "AllReduce 'a'");

  ranks.assign(2, waiting("Send 'x'", {0, 1}, 1));
  ranks[1].waits_in = "Recv 'x'";
  CHECK(who_waits(ranks, 0) == "Send 'x': all its ranks have come");
  ranks[1] = {};
  ranks[1].finished = true;
  CHECK(who_waits(ranks, 0) ==
        "Send 'x': rank 0 waits for rank 1; rank 1 has finished before its first collective");
}

namespace {

CollectiveCall call_of(const std::string& name, const RankGroup& group) {
  CollectiveCall call;
  call.op_name = name;
  call.seq = 0;
  call.group = group;
  call.input_shape = {4};
  return call;
}

// What rank 2 of 4 does while the others are in a call, which ends when a failure is known; what
// that is, by rank.
std::vector<std::string> while_others_wait(Seconds limit,
                                           const std::function<void(ControlChannel&)>& instead) {
  constexpr int kRanks = 4;
  std::vector<std::string> errors(kRanks);
  std::atomic<int> inside = 0;
  on_ranks(kRanks, [&](ControlChannel& channel) {
    const CollectiveCall first = call_of("first", {0, 1, 2, 3});
    const CollectiveCall second = call_of("second", {0, 1, 2, 3});
    { const CallLog::Inside before(channel.calls(), first); }
    const auto wait = [&](const std::function<bool()>& done) {
      while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    if (channel.rank() == 2) {
      instead(channel);
      wait([&] { return channel.failed(); });
    } else {
      const CallLog::Inside waits(channel.calls(), second);
      ++inside;
      wait([&] { return inside == kRanks - 1; });
      channel.limit_calls(limit);
      wait([&] { return channel.failed(); });
    }
    std::string& error = errors[static_cast<std::size_t>(channel.rank())];
    error = channel.failure()->message;
    if (channel.leave([](const Error&) {})) error += ", but it leaves well";
  });
  return errors;
}

const std::string kWaits =
    "AllReduce 'second' (seq 0, group [0,1,2,3], float32[4]): ranks 0, 1, 3 wait for rank 2; ";

}  // namespace

TEST_CASE("a call that takes too long names who is missing, and what it does", "[process]") {
  const std::string advice = "; if the local ops need longer, raise the time limit";
  for (const std::string& error : while_others_wait(0.1, [](ControlChannel&) {})) {
    CHECK(error == "nothing has happened for 0.1 s: " + kWaits +
                       "rank 2 is busy with local ops after AllReduce 'first'" + advice);
  }
  const CollectiveCall other = call_of("other", {2});
  const auto errors = while_others_wait(0.1, [&](ControlChannel& channel) {
    const CallLog::Inside waits(channel.calls(), other);
    while (!channel.failed()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  for (const std::string& error : errors)
    CHECK(error == "nothing has happened for 0.1 s: " + kWaits +
                       "AllReduce 'other' (seq 0, group [2], float32[4]): all its ranks have "
                       "come" +
                       advice);
}

TEST_CASE("a rank that leaves is missed by those who wait for it", "[process]") {
  const auto errors = while_others_wait(
      1e8, [](ControlChannel& channel) { CHECK(!channel.leave([](const Error&) {}).ok()); });
  for (const std::string& error : errors) {
    CHECK(error ==
          "rank 2 has left the run: " + kWaits + "rank 2 has finished after AllReduce 'first'");
  }
}

TEST_CASE("a rank asks when one call takes too long, and again, but not when many are short",
          "[process]") {
  using Time = CallWatch::Time;
  const auto at = [](double seconds) {
    return Time() +
           std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  };
  const RankGroup group{0, 1, 2};
  CallWatch watch;
  for (int i = 0; i < 30; ++i) {
    const CallLog::Stay call{static_cast<std::uint64_t>(i), at(0.5 * i), group};
    CHECK(!watch.look(1, call, {}, 1, at(0.5 * i + 0.4)));
    CHECK(!watch.look(1, std::nullopt, {}, 1, at(0.5 * i + 0.45)));
  }
  const CallLog::Stay call{30, at(100), group};
  CHECK(!watch.look(1, call, {}, 1, at(100.9)));
  const auto first = watch.look(1, call, {}, 1, at(101.1));
  REQUIRE(first);
  CHECK(first->why == "nothing has happened for 1 s");
  CHECK(!first->rank_0_is_silent);
  CHECK(!watch.look(1, call, {}, 1, at(101.2)));
  CHECK(watch.look(1, call, {}, 1, at(102.3)));
  CHECK(watch.look(1, call, {}, 1, at(120))->rank_0_is_silent);
  CHECK(watch.look(0, call, {}, 1, at(140))->rank_0_is_silent == false);

  // A rank that has left is waited for in vain, but what it sent before may be on its way.
  const CallLog::Stay next{31, at(200), group};
  CHECK(!watch.look(1, next, {{2, at(200.5)}}, 60, at(201)));
  CHECK(watch.look(1, next, {{2, at(200.5)}}, 60, at(203))->why == "rank 2 has left the run");
  CHECK(!watch.look(1, next, {{1, at(0)}, {7, at(0)}}, 60, at(203)));
}

TEST_CASE("an inquiry ends with all answers, or without those that do not come", "[process]") {
  using Time = Inquiry::Time;
  const RankGroup all{0, 1, 2};
  const Whereabouts asker = waiting("AllReduce 'a'", all, 1);
  const std::vector<std::string> processes{"", "process 5 on x", "process 6 on y"};
  Inquiry inquiry(3);
  const std::uint64_t number = inquiry.begin(1, {"why", "advice", asker}, Time());
  inquiry.answer(2, number + 1, {});  // of another inquiry
  inquiry.answer(0, number, asker);
  CHECK(!inquiry.conclude(processes, Time()));
  const auto text = inquiry.conclude(processes, Time() + std::chrono::hours(1));
  REQUIRE(text);
  CHECK(*text ==
        "why: AllReduce 'a': ranks 0, 1 wait for rank 2; rank 2 (process 6 on y) does not answer: "
        "it is stopped, or its machine cannot be reached; advice");
  CHECK(!inquiry.is_under_way());

  const std::uint64_t second = inquiry.begin(0, {"why", "", asker}, Time());
  inquiry.answer(0, second, waiting("AllReduce 'b'", all, 2));  // it has come on
  for (int rank : {1, 2}) inquiry.answer(rank, second, {});
  CHECK(inquiry.conclude(processes, Time()) == "");
}

namespace {

bool can_connect(const std::string& host, int port) {
  for (const Endpoint& endpoint : endpoints_of(host, port)) {
    const Socket socket = begin_connection(endpoint);
    if (!socket.is_open()) continue;
    pollfd entry{socket.descriptor(), POLLOUT, 0};
    if (poll(&entry, 1, 5000) > 0 && connection_error(socket) == 0) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("rank 0 can be reached by IPv4 and by IPv6", "[process]") {
  for (const bool only_this_machine : {false, true}) {
    const Listener listener = Listener::open(0, only_this_machine).value();
    CHECK(listener.port() > 0);
    int reached = 0;
    for (const char* host : {"127.0.0.1", "::1"}) {
      if (can_connect(host, listener.port())) ++reached;
    }
    CAPTURE(only_this_machine);
    const bool has_ipv6 = std::ifstream("/proc/net/if_inet6").peek() != EOF;
    if (!has_ipv6) WARN("this machine has no IPv6: not tried");
    CHECK(reached == (!only_this_machine && has_ipv6 ? 2 : 1));
  }
}

TEST_CASE("what lacks where MPI cannot be opened", "[process]") {
  const Folder folder;
  const std::vector<std::string> names{"openmpi", "mpich"};
  const auto absent = open_mpi(names, {folder / "here", folder / "there"});
  REQUIRE(!absent);
  CHECK(absent.error().code == ErrorCode::kInput);
  // Nothing of MPI is missing, but a part of this program.
  CHECK(absent.error().message.find("install that MPI") == std::string::npos);
  for (const std::string& text :
       {std::string("libautopar_openmpi.so or libautopar_mpich.so"), folder / "here",
        folder / "there", std::string("scripts/build")}) {
    CHECK(absent.error().message.find(text) != std::string::npos);
  }
  folder.write("libautopar_mpich.so", "no library");
  // What is between is there, MPI is not.
  setenv("AUTOPAR_MPI_LIBRARY", (folder / "libmpi.so.12").c_str(), 1);
  const auto refused = open_mpi(names, {folder / "here", folder / "."});
  unsetenv("AUTOPAR_MPI_LIBRARY");
  REQUIRE(!refused);
  CHECK(refused.error().message.find(folder / "libmpi.so.12") != std::string::npos);
  CHECK(refused.error().message.find("AUTOPAR_MPI_LIBRARY") != std::string::npos);
}

}  // namespace autopar::process_test
