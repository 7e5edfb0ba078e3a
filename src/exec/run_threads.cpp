#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <numeric>
#include <system_error>
#include <thread>

#include "autopar/errors.hpp"
#include "exec/rank.hpp"
#include "exec/reference.hpp"
#include "exec/session.hpp"
#include "exec/thread_world.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

constexpr std::int64_t kMaxRanks = 1024;  // each is a thread

using Ranks = std::vector<std::unique_ptr<Rank>>;

Status verify_size(const RunRequest& request) {
  const std::int64_t size = world_size(request);
  if (size >= 1 && size <= kMaxRanks) return Ok{};
  return input_error(request.programs[0].path + ": the plan is for " + std::to_string(size) +
                     " ranks; as threads of one process 1 to " + std::to_string(kMaxRanks) +
                     " can run");
}

// Runs work(0) .. work(count-1) on a few threads.
void for_each_index(std::size_t count, std::size_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::future<void>> workers;
  try {
    for (std::size_t t = 1; t < std::min(count, threads); ++t) {
      workers.push_back(std::async(std::launch::async, loop));
    }
  } catch (const std::system_error&) {
    // Fewer threads do the work too.
  }
  loop();
  for (std::future<void>& worker : workers) worker.get();
}

Status open_sessions(Ranks& ranks, Ort::Env& environment, const RunRequest& request) {
  // The first alone, so that a file that is refused is refused once.
  AUTOPAR_RETURN_IF_ERROR(open_sessions(*ranks[0], environment, request));
  std::vector<std::optional<Error>> errors(ranks.size());
  for_each_index(ranks.size() - 1, static_cast<std::size_t>(thread_count(request)),
                 [&](std::size_t i) {
                   auto status = open_sessions(*ranks[i + 1], environment, request);
                   if (!status) errors[i + 1] = status.error();
                 });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return Ok{};
}

// Runs all ranks, each in its thread. A rank that fails tells the others, which then stop: in a
// collective by the world, between local ops by the terminate flag. What a rank that has been told
// says is not its own failure.
Status run_ranks(Ranks& ranks, ThreadWorld& world, const std::function<void(Rank&)>& run) {
  std::vector<std::optional<Error>> failures(ranks.size());  // own ones, not because another failed
  std::atomic<bool> all_told = false;                        // by the terminate flag
  const auto body = [&](std::size_t r) {
    Rank& rank = *ranks[r];
    try {
      run(rank);
    } catch (const std::exception& exception) {
      const bool told = rank.collectives.times().stopped || all_told;
      const std::string rank_failed = "rank " + std::to_string(r) + " failed: ";
      if (!told) failures[r] = failure_of(rank_failed, exception, ErrorCode::kRuntime);
      rank.communicator->abort(told ? "" : failures[r]->message);
      all_told = true;
      for (const auto& other : ranks) other->run_options.SetTerminate();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    try {
      threads.emplace_back(body, r);
    } catch (const std::system_error& error) {
      failures[r] =
          resource_error("rank " + std::to_string(r) + " cannot be started as a thread (" +
                         error.what() + "); use fewer ranks or allow more threads (ulimit -u)");
      world.abort(failures[r]->message);
      break;
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& failure : failures) {
    if (failure) return *failure;
  }
  if (auto failure = world.failure()) return runtime_error(*failure);
  return Ok{};
}

// All ranks' records; the traces are read here, since their sessions have ended.
std::vector<RankRecord> take_records(Ranks& ranks, const RunRequest& request,
                                     const Wiring& wiring) {
  std::vector<RankRecord> records;
  for (const auto& rank : ranks) {
    finish_record(*rank, request, wiring);
    records.push_back(std::move(rank->record));
  }
  return records;
}

// An empty Broadcast over all ranks: waits until all have come.
Status meet(Communicator& communicator) {
  CollectiveCall call;
  call.kind = CollectiveKind::kBroadcast;
  call.op_name = "(between runs)";
  call.group.resize(static_cast<std::size_t>(communicator.size()));
  std::iota(call.group.begin(), call.group.end(), 0);
  call.position = communicator.rank();
  call.input_shape = call.output_shape = {0};
  return communicator.run(call, nullptr, nullptr);
}

Result<RunReport> run_checked(const RunRequest& request, const Wiring& wiring) {
  RunReport report;
  AUTOPAR_TRY(inputs, whole_inputs(request, wiring, request.distributions));
  report.warnings = unknown_data(request);
  Ort::Env environment = make_environment(thread_count(request));
  AUTOPAR_TRY(reference, run_reference(environment, request, wiring, inputs));
  report.reference_wall = reference.wall;
  std::map<std::string, Tensor> given = request.expected;
  to_result_form(wiring, given);
  const Expected expected{expect(request, given, inputs),
                          expect(request, reference.outputs, inputs)};

  ThreadWorld world(static_cast<int>(world_size(request)), request.timeout, wiring.line_of_rank);
  Ranks ranks;
  std::vector<RankFeeds> feeds;
  for (int r = 0; r < world.size(); ++r) {
    ranks.push_back(
        std::make_unique<Rank>(std::make_unique<ThreadCommunicator>(world, r), request, wiring));
    Communicator& communicator = *ranks.back()->communicator;
    ranks.back()->meet = [&communicator] { return meet(communicator); };
    AUTOPAR_TRY(fed, RankFeeds::make(request, wiring, {}, r, &inputs));
    feeds.push_back(std::move(fed));
  }
  AUTOPAR_RETURN_IF_ERROR(open_sessions(ranks, environment, request));

  KeptOutputs kept;
  const CommonTime time{std::vector<Seconds>(ranks.size(), steady_seconds()), true};
  AUTOPAR_RETURN_IF_ERROR(run_ranks(ranks, world, [&](Rank& rank) {
    const int self = rank.communicator->rank();
    const std::vector<Ort::Value> results =
        run_rank(rank, request, wiring, feeds[static_cast<std::size_t>(self)]);
    world.finish(self);
    compare_rank(rank, wiring, results, expected, request.keep_outputs ? &kept : nullptr,
                 rank.record);
  }));
  report_ranks(request, wiring, take_records(ranks, request, wiring), expected, time, report);
  report.values = kept.take();
  from_result_form(wiring, report.values);
  return report;
}

}  // namespace

Result<RunReport> run_threads(const RunRequest& request) {
  AUTOPAR_RETURN_IF_ERROR(verify(request));
  AUTOPAR_RETURN_IF_ERROR(verify_size(request));
  AUTOPAR_TRY(wiring, wiring_of(request));
  AUTOPAR_RETURN_IF_ERROR(open_onnx_runtime());
  try {
    return run_checked(request, wiring);
  } catch (const std::exception& exception) {
    return failure_of(request.programs[0].path + ": ", exception, ErrorCode::kRuntime);
  }
}

}  // namespace autopar
