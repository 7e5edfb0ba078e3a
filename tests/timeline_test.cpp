#include "autopar/timeline.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "exec/record.hpp"
#include "exec/timeline.hpp"

namespace autopar::timeline_test {

namespace {

RunEvent event(int rank, double begin, double seconds, std::int64_t seq = -1) {
  RunEvent e;
  e.rank = rank;
  e.begin = begin;
  e.seconds = seconds;
  e.seq = seq;
  return e;
}

bool near(double a, double b) { return std::abs(a - b) < 1e-9; }

}  // namespace

// doc/PERFORMANCE.md of nccl-tests: size and factor of each collective on n ranks.
TEST_CASE("timeline: bandwidths in the convention of nccl-tests", "[timeline]") {
  using K = CollectiveKind;
  struct Row {
    K kind;
    std::int64_t n;
    double size;  // of an input of 1000 bytes
    double factor;
  };
  for (const Row& row : {Row{K::kAllReduce, 4, 1000, 1.5}, Row{K::kAllReduce, 2, 1000, 1},
                         Row{K::kAllGather, 4, 4000, 0.75}, Row{K::kReduceScatter, 8, 1000, 0.875},
                         Row{K::kAllToAll, 4, 1000, 0.75}, Row{K::kBroadcast, 8, 1000, 1},
                         Row{K::kSend, 2, 1000, 1}, Row{K::kRecv, 2, 1000, 1}}) {
    INFO(name_of(row.kind) << " on " << row.n);
    CHECK(total_bytes(row.kind, 1000, row.n) == row.size);
    CHECK(near(bus_factor(row.kind, row.n), row.factor));
  }
  RunEvent e = event(0, 0, 0.5, 0);
  e.total_bytes = 1000;
  e.bus_factor = 1.5;
  CHECK(near(e.algorithm_bandwidth(), 2000));
  CHECK(near(e.bus_bandwidth(), 3000));
  e.seconds = 0;
  CHECK(e.algorithm_bandwidth() == 0);
}

TEST_CASE("timeline: spread", "[timeline]") {
  const Spread odd = spread_of({5, 1, 3});
  CHECK((odd.minimum == 1 && odd.median == 3 && near(odd.mean, 3)));
  const Spread even = spread_of({8, 1, 3, 4});
  CHECK((even.minimum == 1 && even.median == 3.5 && near(even.mean, 4)));
  CHECK(spread_of({}).median == 0);
}

TEST_CASE("timeline: events nest", "[timeline]") {
  const double us = 1e-6;
  // A run; in it two ops whose times overlap by two microseconds, and one that has a body.
  std::vector<RunEvent> events = {event(0, 10 * us, 10 * us), event(0, 18 * us, 30 * us),
                                  event(0, 0, 100 * us),      event(0, 60 * us, 20 * us),
                                  event(0, 65 * us, 5 * us),  event(0, 97 * us, 4 * us)};
  nest(events);
  REQUIRE(events.size() == 6);
  CHECK(near(events[0].seconds, 100 * us));
  CHECK((near(events[1].begin, 10 * us) && near(events[1].seconds, 10 * us)));
  CHECK((near(events[2].begin, 20 * us) && near(events[2].seconds, 28 * us)));
  CHECK((near(events[4].begin, 65 * us) && near(events[4].seconds, 5 * us)));
  CHECK((near(events[5].begin, 97 * us) && near(events[5].seconds, 3 * us)));  // the run's end
}

TEST_CASE("timeline: who waited for whom", "[timeline]") {
  std::vector<RunEvent> events;
  for (int rank = 0; rank < 4; ++rank) {
    RunEvent e = event(rank, rank, 5, 7);  // two groups: 0, 1 and 2, 3
    e.group_size = 2;
    e.first = rank / 2 * 2;
    events.push_back(e);
  }
  RunEvent alone = event(0, 20, 1, 8);  // its partner is not there
  alone.group_size = 2;
  events.push_back(alone);
  find_waiting(events);
  CHECK((near(events[0].waiting, 1) && near(events[1].waiting, 0)));
  CHECK((near(events[2].waiting, 1) && near(events[3].waiting, 0)));
  CHECK(events[4].waiting < 0);
}

TEST_CASE("timeline: messages meet in their order, whatever their seq", "[timeline]") {
  std::vector<RunEvent> events;
  const auto message = [&events](int rank, int peer, bool sends, double begin, std::int64_t seq) {
    RunEvent e = event(rank, begin, 10, seq);
    e.group_size = 2;
    e.peer = peer;
    e.first = sends ? rank : peer;
    events.push_back(e);
  };
  message(0, 1, true, 0, 3);
  message(0, 1, true, 20, 5);
  message(1, 0, false, 2, 0);
  message(1, 0, true, 4, 2);  // the other way: nobody receives it
  message(1, 0, false, 15, 4);
  find_waiting(events);
  CHECK((near(events[0].waiting, 2) && near(events[2].waiting, 0)));
  CHECK((near(events[1].waiting, 0) && near(events[4].waiting, 5)));
  CHECK(events[3].waiting < 0);
}

TEST_CASE("timeline: records of ranks become one report", "[timeline]") {
  RunRequest request;
  request.repeat = 2;
  request.timeline = true;
  std::vector<RankRecord> records(2);
  for (int rank = 0; rank < 2; ++rank) {
    for (int run = 0; run < 3; ++run) {
      RankRun timed;
      timed.begin = 100 * (rank + 1) + 10 * run;
      timed.wall = run == 0 ? 9 : 2 + run + rank;
      timed.local = 1;
      timed.collectives = run;
      timed.times["MatMul"] = {"MatMul", false, 1, double(run), 0};
      if (run == 2) timed.times["AllReduce"] = {"AllReduce", true, 1, 0.5, 64};
      records[size_t(rank)].runs.push_back(timed);
      RunEvent e = event(rank, timed.begin + 1 + rank, 1, 0);
      e.run = run;
      e.group_size = 2;
      records[size_t(rank)].events.push_back(e);
    }
  }
  records[1].changed = "output 'y' changed";
  RankRecord copy = record_of(to_bytes(records[1])).value();
  CHECK(copy.changed == records[1].changed);
  REQUIRE(copy.events.size() == 3);
  CHECK(copy.events[2].begin == records[1].events[2].begin);
  records[1] = copy;

  RunReport report;
  report_ranks(request, {}, records, {}, {{100, 200}, true}, report);
  CHECK(report.timed_runs == 2);
  CHECK(near(report.wall, 4.5));  // of 4 and 5: the slower rank of the two runs that count
  CHECK(near(report.wall_spread.minimum, 4));
  REQUIRE(report.times.size() == 2);
  CHECK(report.times[0].kind == "MatMul");
  CHECK(near(report.times[0].seconds, 1.5));
  CHECK(near(report.times[1].spread.minimum, 0));  // not in the first of them
  REQUIRE(report.rank_times.size() == 2);
  CHECK(near(report.rank_times[0].collectives, 1));  // of the lower of the two
  CHECK(near(report.rank_times[0].waiting, 1));
  CHECK(near(report.rank_times[1].waiting, 0));
  REQUIRE(report.events.size() == 6);
  CHECK(near(report.events[0].begin, 1));
  CHECK(near(report.events[3].begin, 2));
  REQUIRE(report.warnings.size() == 1);
  CHECK(report.warnings[0] == "rank 1: output 'y' changed");

  RunReport several;  // clocks of several machines do not say who waited
  report_ranks(request, {}, records, {}, {{100, 200}, false}, several);
  CHECK(several.rank_times[0].waiting < 0);
}

}  // namespace autopar::timeline_test
