// Ranks as threads of a test, each with a communicator over the stand-in for NCCL.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exec/nccl/communicator.hpp"

namespace autopar::stand_in {

// Sets a variable of the environment for as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, old_.c_str(), 1);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

// What a test asks of the stand-in, see device.h.
struct Questions {
  const char* (*misuse)();
  void (*forget_misuse)();
  int (*live)();
};

// The stand-ins instead of CUDA and NCCL, without misuses so far.
class Libraries {
 public:
  Libraries()
      : cudart_("AUTOPAR_CUDART", AUTOPAR_STAND_IN_CUDART),
        nccl_("AUTOPAR_NCCL", AUTOPAR_STAND_IN_NCCL) {
    void* library = dlopen(AUTOPAR_STAND_IN_CUDART, RTLD_NOW | RTLD_LOCAL);
    read(library, questions_.misuse, "stand_in_misuse");
    read(library, questions_.forget_misuse, "stand_in_forget_misuse");
    read(library, questions_.live, "stand_in_live");
    questions_.forget_misuse();
  }
  std::string misuse() const { return questions_.misuse(); }
  void forget_misuse() const { questions_.forget_misuse(); }
  int live() const { return questions_.live(); }

 private:
  template <class Entry>
  static void read(void* library, Entry& entry, const char* name) {
    entry = reinterpret_cast<Entry>(dlsym(library, name));
    AUTOPAR_CHECK(entry != nullptr, std::string("the stand-in lacks ") + name);
  }

  Variable cudart_;
  Variable nccl_;
  Questions questions_{};
};

// Brings the texts of all ranks together; fails where not all come in time.
class Exchange {
 public:
  Exchange(int size, Seconds timeout)
      : size_(static_cast<std::size_t>(size)), timeout_(timeout), texts_(size_) {}

  Result<std::vector<std::string>> operator()(int rank, const std::string& own) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    texts_[static_cast<std::size_t>(rank)] = own;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      done_ = texts_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_),
                                  [&] { return round_ > round; })) {
      return runtime_error("the exchange of a test is not complete");
    }
    return done_;
  }

 private:
  std::size_t size_;
  Seconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> texts_;
  std::vector<std::string> done_;
  std::size_t arrived_ = 0;
  int round_ = 0;
};

struct World {
  int size = 2;
  Seconds timeout = 20;
  std::vector<GroupPartition> partitions = {};
};

using Body = std::function<Status(NcclCommunicator& communicator)>;

// Each rank makes its communicator, prepares the groups and runs the body; the result of each.
inline std::vector<Status> run_ranks(const World& world, const Body& body) {
  std::vector<Status> results(static_cast<std::size_t>(world.size), Status(Ok{}));
  Exchange exchange(world.size, world.timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world.size; ++rank) {
    threads.emplace_back([&, rank] {
      results[static_cast<std::size_t>(rank)] = [&]() -> Status {
        NcclWorld own;
        own.rank = own.local_rank = rank;
        own.size = world.size;
        own.timeout = world.timeout;
        own.exchange = [&exchange, rank](const std::string& text) { return exchange(rank, text); };
        AUTOPAR_TRY(communicator, NcclCommunicator::create(own));
        AUTOPAR_RETURN_IF_ERROR(communicator->prepare(world.partitions));
        return body(*communicator);
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace autopar::stand_in
