#include "exec/record.hpp"

#include <algorithm>
#include <numeric>

#include "exec/process/wire.hpp"
#include "exec/request.hpp"
#include "exec/timeline.hpp"

namespace autopar {

namespace {

std::map<std::string, TimedKind> times_of(const CollectiveTimes::ByKind& collectives) {
  std::map<std::string, TimedKind> times;
  for (const auto& [kind, entry] : collectives) {
    times[kind] = {kind, true, entry.count, entry.seconds, entry.bytes};
  }
  return times;
}

// What collectives took is told by themselves.
void add_local(const CollectiveTimes::ByKind& collectives,
               const std::map<std::string, KernelTimes>& local,
               std::map<std::string, TimedKind>& times) {
  for (const auto& [kind, entry] : local) {
    if (collectives.count(kind) != 0) continue;
    TimedKind& timed = times[kind];
    timed.kind = kind;
    timed.count += entry.count;
    timed.seconds += entry.seconds;
  }
}

bool is_communication(const std::string& op_type) {
  const auto kind = parse_collective_kind(op_type);
  return kind && communicates(*kind);
}

RunEvent event_of(const KernelEvent& kernel, int rank, int steps, const ProgramTrace& trace) {
  RunEvent event;
  event.rank = rank;
  event.run = kernel.model_run / trace.calls_per_step / steps;
  event.step = kernel.model_run / trace.calls_per_step % steps;
  event.name = kernel.name;
  event.kind = kernel.type;
  event.begin = trace.begin + kernel.begin;
  event.seconds = kernel.seconds;
  return event;
}

RunEvent event_of(const RankRun& run, int rank, int number) {
  RunEvent event;
  event.rank = rank;
  event.run = number;
  event.name = "run " + std::to_string(number);
  event.begin = run.begin;
  event.seconds = run.wall;
  return event;
}

}  // namespace

namespace {

// Of one program.
void add_trace(const RunRequest& request, int rank, const CollectiveTimes& collectives,
               const ProgramTrace& program, RankRecord& record) {
  const int calls = program.calls_per_step * request.steps;  // in a run
  for (std::size_t r = 0; r < record.runs.size(); ++r) {
    const int first = static_cast<int>(r) * calls;
    add_local(collectives.runs[r], kernel_times(program.trace, first, first + calls),
              record.runs[r].times);
  }
  const int all = static_cast<int>(record.runs.size()) * calls;
  if (program.trace.model_runs < all && request.profile) {
    record.incomplete = "local ops are timed in " + std::to_string(program.trace.model_runs) +
                        " of " + std::to_string(all) +
                        " runs only: ONNX Runtime's trace ends there";
  }
  for (const KernelEvent& kernel : program.trace.kernels) {
    if (kernel.model_run >= all || is_communication(kernel.type)) continue;
    RankRun& run = record.runs[static_cast<std::size_t>(kernel.model_run / calls)];
    if (!kernel.inner) run.local += kernel.seconds;
    if (request.timeline) {
      record.events.push_back(event_of(kernel, rank, request.steps, program));
    }
  }
}

}  // namespace

void add_times(const RunRequest& request, int rank, const CollectiveTimes& collectives,
               const std::vector<ProgramTrace>& traces, RankRecord& record) {
  record.out_of_order = collectives.out_of_order;
  for (std::size_t r = 0; r < record.runs.size(); ++r) {
    record.runs[r].times = times_of(collectives.runs[r]);
    record.runs[r].collectives = collectives.communicating[r];
  }
  record.events = collectives.events;
  for (const ProgramTrace& trace : traces) {
    if (trace.calls_per_step > 0) add_trace(request, rank, collectives, trace, record);
  }
  if (!request.timeline) return;
  for (std::size_t r = 0; r < record.runs.size(); ++r) {
    record.events.push_back(event_of(record.runs[r], rank, static_cast<int>(r)));
  }
}

namespace {

void put(WireWriter& writer, const RankRun& run) {
  writer.put(run.begin);
  writer.put(run.wall);
  writer.put(run.local);
  writer.put(run.collectives);
  writer.put<std::uint64_t>(run.times.size());
  for (const auto& [kind, timed] : run.times) {
    writer.put_text(kind);
    writer.put(timed.collective);
    writer.put(timed.count);
    writer.put(timed.seconds);
    writer.put(timed.bytes);
  }
}

RankRun run_of(WireReader& reader) {
  RankRun run;
  run.begin = reader.number<Seconds>();
  run.wall = reader.number<Seconds>();
  run.local = reader.number<Seconds>();
  run.collectives = reader.number<Seconds>();
  for (std::size_t left = reader.count(sizeof(std::uint64_t)); left > 0; --left) {
    TimedKind timed;
    timed.kind = reader.text();
    timed.collective = reader.number<bool>();
    timed.count = reader.number<int>();
    timed.seconds = reader.number<Seconds>();
    timed.bytes = reader.number<double>();
    run.times[timed.kind] = timed;
  }
  return run;
}

void put(WireWriter& writer, const RunEvent& event) {
  writer.put(event.rank);
  writer.put(event.run);
  writer.put(event.step);
  writer.put(event.call);
  writer.put_text(event.name);
  writer.put_text(event.kind);
  writer.put(event.begin);
  writer.put(event.seconds);
  writer.put(event.seq);
  writer.put(event.first);
  writer.put(event.group_size);
  writer.put(event.peer);
  writer.put(event.total_bytes);
  writer.put(event.bus_factor);
}

RunEvent event_of(WireReader& reader) {
  RunEvent event;
  event.rank = reader.number<int>();
  event.run = reader.number<int>();
  event.step = reader.number<int>();
  event.call = reader.number<int>();
  event.name = reader.text();
  event.kind = reader.text();
  event.begin = reader.number<Seconds>();
  event.seconds = reader.number<Seconds>();
  event.seq = reader.number<std::int64_t>();
  event.first = reader.number<std::int64_t>();
  event.group_size = reader.number<std::int64_t>();
  event.peer = reader.number<int>();
  event.total_bytes = reader.number<double>();
  event.bus_factor = reader.number<double>();
  return event;
}

}  // namespace

std::string to_bytes(const RankRecord& record) {
  WireWriter writer;
  writer.put_text(record.out_of_order);
  writer.put_text(record.changed);
  writer.put_text(record.incomplete);
  writer.put<std::uint64_t>(record.runs.size());
  for (const RankRun& run : record.runs) put(writer, run);
  writer.put<std::uint64_t>(record.events.size());
  for (const RunEvent& event : record.events) put(writer, event);
  return writer.take();
}

Result<RankRecord> record_of(const std::string& bytes) {
  WireReader reader(bytes);
  RankRecord record;
  record.out_of_order = reader.text();
  record.changed = reader.text();
  record.incomplete = reader.text();
  for (std::size_t left = reader.count(4 * sizeof(Seconds)); left > 0; --left) {
    record.runs.push_back(run_of(reader));
  }
  for (std::size_t left = reader.count(4 * sizeof(Seconds)); left > 0; --left) {
    record.events.push_back(event_of(reader));
  }
  AUTOPAR_RETURN_IF_ERROR(reader.finish());
  return record;
}

namespace {

// The runs that count: all but the first where there are others.
std::size_t first_timed(const RunRequest& request) { return request.repeat > 0 ? 1 : 0; }

// Of one run by kind; means over the ranks.
std::map<std::string, TimedKind> mean_times(const std::vector<RankRecord>& records,
                                            std::size_t run) {
  std::map<std::string, TimedKind> by_kind;
  const double share = 1.0 / static_cast<double>(records.size());
  for (const RankRecord& record : records) {
    for (const auto& [kind, entry] : record.runs[run].times) {
      TimedKind& timed = by_kind[kind];
      timed.kind = kind;
      timed.collective = entry.collective;
      timed.count = std::max(timed.count, entry.count);
      timed.seconds += share * entry.seconds;
      timed.bytes += share * entry.bytes;
    }
  }
  return by_kind;
}

// Slowest first. A kind that a run lacks took no time in it.
std::vector<TimedKind> times_by_kind(const RunRequest& request,
                                     const std::vector<RankRecord>& records) {
  std::map<std::string, TimedKind> by_kind;
  std::map<std::string, std::vector<Seconds>> seconds;
  std::size_t runs = 0;
  for (std::size_t run = first_timed(request); run < records[0].runs.size(); ++run, ++runs) {
    for (auto& [kind, timed] : mean_times(records, run)) {
      seconds[kind].push_back(timed.seconds);
      by_kind.insert_or_assign(kind, std::move(timed));
    }
  }
  std::vector<TimedKind> times;
  for (auto& [kind, timed] : by_kind) {
    seconds[kind].resize(runs, 0);
    timed.spread = spread_of(seconds[kind]);
    timed.seconds = timed.spread.median;
    times.push_back(std::move(timed));
  }
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

Spread walls_of(const RunRequest& request, const std::vector<RankRecord>& records) {
  std::vector<Seconds> walls;
  for (std::size_t run = first_timed(request); run < records[0].runs.size(); ++run) {
    walls.push_back(0);
    for (const RankRecord& record : records) {
      walls.back() = std::max(walls.back(), record.runs[run].wall);
    }
  }
  return spread_of(walls);
}

// The timed run whose wall time is the median.
std::size_t median_run(const RunRequest& request, const std::vector<RankRecord>& records) {
  std::vector<std::pair<Seconds, std::size_t>> walls;
  for (std::size_t run = first_timed(request); run < records[0].runs.size(); ++run) {
    walls.emplace_back(0, run);
    for (const RankRecord& record : records) {
      walls.back().first = std::max(walls.back().first, record.runs[run].wall);
    }
  }
  std::sort(walls.begin(), walls.end());
  return walls[(walls.size() - 1) / 2].second;
}

// What each rank's collectives waited for others in a run.
void add_waiting(std::size_t run, const std::vector<RunEvent>& events, RunReport& report) {
  for (const RunEvent& event : events) {
    if (event.seq >= 0 && event.waiting < 0) return;
  }
  for (RankTimes& times : report.rank_times) times.waiting = 0;
  for (const RunEvent& event : events) {
    if (event.seq < 0 || event.run != static_cast<int>(run)) continue;
    report.rank_times[static_cast<std::size_t>(event.rank)].waiting += event.waiting;
  }
}

void report_events(const RunRequest& request, std::vector<RankRecord>& records,
                   const CommonTime& time, RunReport& report) {
  std::vector<RunEvent> all;
  for (std::size_t r = 0; r < records.size(); ++r) {
    for (RunEvent& event : records[r].events) {
      event.begin -= time.started[r];
      all.push_back(std::move(event));
    }
    records[r].events.clear();
  }
  if (time.one_clock) find_waiting(all);
  if (request.timeline || request.repeat > 0)
    add_waiting(median_run(request, records), all, report);
  if (!request.timeline) return;
  std::vector<std::vector<RunEvent>> by_rank(records.size());
  for (RunEvent& event : all) by_rank[static_cast<std::size_t>(event.rank)].push_back(event);
  for (std::vector<RunEvent>& events : by_rank) {
    nest(events);
    report.events.insert(report.events.end(), events.begin(), events.end());
  }
}

// What a rank has to say that all are likely to say alike, once.
void warn_once(const std::vector<RankRecord>& records, std::string RankRecord::*what,
               const std::string& after, RunReport& report) {
  for (std::size_t r = 0; r < records.size(); ++r) {
    if ((records[r].*what).empty()) continue;
    report.warnings.push_back("rank " + std::to_string(r) + ": " + records[r].*what + after);
    return;
  }
}

// Outputs of the reference that no program of a step makes.
void add_missing(const ExpectedTensors& expected, RunReport& report) {
  for (const auto& [name, tensor] : expected) {
    const bool made = std::any_of(report.outputs.begin(), report.outputs.end(),
                                  [&](const OutputComparison& o) { return o.name == name; });
    if (made) continue;
    OutputComparison& missing = report.outputs.emplace_back();
    missing.name = name;
    missing.against = "model";
    missing.problem = "no program of the step makes it, or step.json does not say how";
    report.passed = false;
  }
}

}  // namespace

void report_ranks(const RunRequest& request, const Wiring& wiring, std::vector<RankRecord> records,
                  const Expected& expected, const CommonTime& time, RunReport& report) {
  report.ranks = static_cast<int>(records.size());
  report.passed = true;
  std::vector<std::vector<RankDifference>> differences(wiring.results.size(),
                                                       std::vector<RankDifference>(records.size()));
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    const auto places = results_of(request, wiring, static_cast<int>(rank));
    for (std::size_t r = 0; r < places.size(); ++r) {
      differences[places[r].result][rank] = std::move(records[rank].differences[r]);
    }
  }
  for (std::size_t r = 0; r < wiring.results.size(); ++r) {
    report.outputs.push_back(combine(request, wiring.results[r].value, expected, differences[r]));
    report.passed = report.passed && report.outputs.back().matches;
  }
  if (request.step) add_missing(expected.model, report);
  report.timed_runs = static_cast<int>(records[0].runs.size() - first_timed(request));
  report.times = times_by_kind(request, records);
  report.wall_spread = walls_of(request, records);
  report.wall = report.wall_spread.median;
  const std::size_t middle = median_run(request, records);
  for (const RankRecord& record : records) {
    const RankRun& run = record.runs[middle];
    report.rank_times.push_back({run.wall, run.local, run.collectives, -1});
  }
  report_events(request, records, time, report);
  warn_once(records, &RankRecord::out_of_order, ": the plan does not chain its collectives",
            report);
  warn_once(records, &RankRecord::changed, "", report);
  warn_once(records, &RankRecord::incomplete, "", report);
}

}  // namespace autopar
