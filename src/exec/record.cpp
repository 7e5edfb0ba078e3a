#include "exec/record.hpp"

#include <algorithm>

#include "exec/process/wire.hpp"
#include "exec/request.hpp"

namespace autopar {

std::map<std::string, TimedKind> times_of(const CollectiveTimes& collectives,
                                          const std::map<std::string, KernelTimes>& local) {
  std::map<std::string, TimedKind> times;
  for (const auto& [kind, entry] : collectives.by_kind) {
    times[kind] = {kind, true, entry.count, entry.seconds, entry.bytes};
  }
  for (const auto& [kind, entry] : local) {
    times.try_emplace(kind, TimedKind{kind, false, entry.count, entry.seconds, 0});
  }
  return times;
}

std::string to_bytes(const RankRecord& record) {
  WireWriter writer;
  writer.put(record.wall);
  writer.put_text(record.out_of_order);
  writer.put<std::uint64_t>(record.times.size());
  for (const auto& [kind, timed] : record.times) {
    writer.put_text(kind);
    writer.put(timed.collective);
    writer.put(timed.count);
    writer.put(timed.seconds);
    writer.put(timed.bytes);
  }
  return writer.take();
}

RankRecord record_of(const std::string& bytes) {
  WireReader reader(bytes);
  RankRecord record;
  record.wall = reader.number<Seconds>();
  record.out_of_order = reader.text();
  const auto kinds = reader.number<std::uint64_t>();
  for (std::uint64_t k = 0; k < kinds; ++k) {
    TimedKind timed;
    timed.kind = reader.text();
    timed.collective = reader.number<bool>();
    timed.count = reader.number<int>();
    timed.seconds = reader.number<Seconds>();
    timed.bytes = reader.number<double>();
    record.times[timed.kind] = timed;
  }
  return record;
}

namespace {

// By kind, slowest first; means over the ranks.
std::vector<TimedKind> mean_times(const std::vector<RankRecord>& records) {
  std::map<std::string, TimedKind> by_kind;
  const double share = 1.0 / static_cast<double>(records.size());
  for (std::size_t r = 0; r < records.size(); ++r) {
    for (const auto& [kind, entry] : records[r].times) {
      TimedKind& timed = by_kind[kind];
      timed.kind = kind;
      timed.collective = entry.collective;
      timed.count = std::max(timed.count, entry.count);
      timed.seconds += share * entry.seconds;
      timed.bytes += share * entry.bytes;
    }
  }
  std::vector<TimedKind> times;
  for (const auto& entry : by_kind) times.push_back(entry.second);
  std::stable_sort(times.begin(), times.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  return times;
}

}  // namespace

void report_ranks(const RunRequest& request, const std::vector<RankRecord>& records,
                  RunReport& report) {
  report.ranks = static_cast<int>(records.size());
  report.passed = true;
  for (const RunProgram& program : request.programs) {
    for (std::size_t o = 0; o < program.outputs.size(); ++o) {
      std::vector<RankDifference> differences;
      for (std::size_t r = 0; r < records.size(); ++r) {
        const RankProgram of = program_of(request, static_cast<int>(r));
        differences.push_back(of.program == &program ? records[r].differences[o]
                                                     : RankDifference{});
      }
      report.outputs.push_back(combine(program.outputs[o], differences));
      report.passed = report.passed && report.outputs.back().matches;
    }
  }
  report.times = mean_times(records);
  for (const RankRecord& record : records) report.wall = std::max(report.wall, record.wall);
  for (std::size_t r = 0; r < records.size(); ++r) {
    if (records[r].out_of_order.empty()) continue;
    report.warnings.push_back("rank " + std::to_string(r) + ": " + records[r].out_of_order +
                              ": the plan does not chain its collectives");
    return;
  }
}

}  // namespace autopar
