// Bytes and seconds of single collectives.
#include <catch2/catch.hpp>

#include "autopar/comm.hpp"
#include "reshards.hpp"

namespace autopar::collective_test {

using testing::reshards::cluster_of;

TEST_CASE("bytes sent by one device", "[comm]") {
  const Mesh mesh = make_mesh(cluster_of({4, 2}), {2, 4}).value();
  const auto sent = [&](CollectiveKind kind, const std::vector<int>& axes) {
    return sent_bytes({kind, axes, 0, -1, Reduction::kSum}, 800, mesh);
  };
  CHECK(sent(CollectiveKind::kAllReduce, {1}) == 1200);
  CHECK(sent(CollectiveKind::kAllGather, {1}) == 2400);
  CHECK(sent(CollectiveKind::kReduceScatter, {1}) == 600);
  CHECK(sent(CollectiveKind::kAllToAll, {0, 1}) == 700);
  CHECK(sent(CollectiveKind::kBroadcast, {0}) == 400);
  CHECK(sent(CollectiveKind::kPermute, {1}) == 800);
  CHECK(sent(CollectiveKind::kShardSlice, {0}) == 0);
  CHECK(sent(CollectiveKind::kMakePartial, {0}) == 0);
}

TEST_CASE("alpha-beta time on the tiers that a group crosses", "[comm]") {
  const Cluster cluster = cluster_of({8, 2});  // 3e11 B/s, 2e-6 s; 2.5e10 B/s, 5e-6 s
  const auto seconds = [&](const std::string& text, CollectiveKind kind,
                           const std::vector<int>& axes, double bytes) {
    const Mesh mesh = make_mesh(cluster, parse_mesh(text).value()).value();
    return collective_seconds({kind, axes, 0, 1, Reduction::kSum}, bytes, mesh, cluster);
  };
  using Kind = CollectiveKind;
  const double mb = 8e6;
  CHECK(seconds("2x8", Kind::kAllReduce, {1}, mb) == Approx(2 * (7. / 8 * mb / 3e11 + 3 * 2e-6)));
  CHECK(seconds("2x8", Kind::kAllGather, {1}, mb) == Approx(7 * mb / 3e11 + 3 * 2e-6));
  // All of it goes over every link of a ring; to gather parts that came from one takes less.
  CHECK(seconds("2x8", Kind::kBroadcast, {1}, mb) == Approx(mb / 3e11 + 3 * 2e-6));
  CHECK(seconds("2x8", Kind::kPermute, {1}, mb) == Approx(mb / 3e11 + 2e-6));
  CHECK(seconds("2x8", Kind::kPermute, {0}, mb) == Approx(mb / 2.5e10 + 5e-6));
  CHECK(seconds("2x8", Kind::kReduceScatter, {1}, mb) == Approx(7. / 8 * mb / 3e11 + 3 * 2e-6));
  CHECK(seconds("2x8", Kind::kAllToAll, {1}, mb) == Approx(7. / 8 * mb / 3e11 + 7 * 2e-6));
  CHECK(seconds("2x8", Kind::kAllReduce, {0}, mb) == Approx(2 * (mb / 2 / 2.5e10 + 5e-6)));
  // Both tiers: an eighth of the data crosses the slow one.
  CHECK(seconds("2x8", Kind::kAllReduce, {0, 1}, mb) ==
        Approx(2 * (7. / 8 * mb / 3e11 + 3 * 2e-6 + mb / 16 / 2.5e10 + 5e-6)));
  CHECK(seconds("2x8", Kind::kAllGather, {0, 1}, mb) ==
        Approx(mb / 2.5e10 + 5e-6 + 14 * mb / 3e11 + 3 * 2e-6));
  // Short messages: Bruck's three rounds of half the data.
  CHECK(seconds("2x8", Kind::kAllToAll, {1}, 8) == Approx(12 / 3e11 + 3 * 2e-6));
  // Half of the data crosses nodes; 8 peers there, 7 here, or one tier after the other.
  CHECK(seconds("2x8", Kind::kAllToAll, {0, 1}, 1e9) ==
        Approx(1e9 / 2 / 2.5e10 + 8 * 5e-6 + 7. / 16 * 1e9 / 3e11 + 7 * 2e-6));
  CHECK(seconds("2x8", Kind::kAllToAll, {0, 1}, 8) ==
        Approx(4 / 2.5e10 + 5e-6 + 12 / 3e11 + 3 * 2e-6));
  // One axis over both tiers is the same group.
  CHECK(seconds("16", Kind::kAllReduce, {0}, mb) ==
        Approx(seconds("2x8", Kind::kAllReduce, {0, 1}, mb)));
  CHECK(seconds("2x8", Kind::kShardSlice, {1}, mb) == Approx(2 * mb / 8 / 2e12 + 1e-6));
  CHECK(seconds("2x8", Kind::kMakePartial, {1}, mb) == Approx(2 * mb / 2e12 + 1e-6));
}

TEST_CASE("a tier whose rings and trees wait", "[comm]") {
  const Cluster plain = cluster_of({8, 4});
  Cluster waiting = plain;
  waiting.tiers[1].ring_step_s = 1e-4;
  const Mesh mesh = make_mesh(plain, {4, 8}).value();
  const auto waited = [&](CollectiveKind kind, const std::vector<int>& axes) {
    const Collective collective{kind, axes, 0, 1, Reduction::kSum};
    return collective_seconds(collective, 8e6, mesh, waiting) -
           collective_seconds(collective, 8e6, mesh, plain);
  };
  // Of four members the ring crosses the tier three times; a tree has two levels.
  CHECK(waited(CollectiveKind::kAllGather, {0}) == Approx(3e-4));
  CHECK(waited(CollectiveKind::kReduceScatter, {0, 1}) == Approx(3e-4));
  CHECK(waited(CollectiveKind::kAllReduce, {0}) == Approx(4e-4));
  CHECK(waited(CollectiveKind::kAllReduce, {0, 1}) == Approx(4e-4));
  CHECK(waited(CollectiveKind::kAllReduce, {1}) == Approx(0).margin(1e-12));
}

TEST_CASE("joint collectives are no dearer than one axis after the other", "[comm]") {
  std::vector<Cluster> clusters = {cluster_of({8, 4}), cluster_of({4, 4, 2}), cluster_of({8, 4})};
  clusters[2].tiers[0].efficiency = {{1e3, 0.01}, {1e5, 0.5}, {1e6, 0.45}, {1e7, 0.9}};
  clusters[2].tiers[1].efficiency = {{1e4, 0.1}, {1e6, 1.0}};
  for (const Cluster& cluster : clusters) {
    for (const Mesh& mesh : mesh_candidates(cluster, 3)) {
      for (double bytes = 64; bytes < 1e10; bytes *= 7) {
        const auto seconds = [&](CollectiveKind kind, const std::vector<int>& axes, double input) {
          return collective_seconds({kind, axes, 0, 1, Reduction::kSum}, input, mesh, cluster);
        };
        for (int a = 0; a < mesh.rank(); ++a) {
          for (int b = 0; b < mesh.rank(); ++b) {
            if (a == b) continue;
            INFO(to_text(mesh) << " axes " << a << "," << b << " bytes " << bytes);
            const auto na = static_cast<double>(axes_size(mesh, {a}));
            const double slack = 1 + 1e-12;
            CHECK(seconds(CollectiveKind::kAllReduce, {a, b}, bytes) <=
                  slack * (seconds(CollectiveKind::kAllReduce, {a}, bytes) +
                           seconds(CollectiveKind::kAllReduce, {b}, bytes)));
            CHECK(seconds(CollectiveKind::kReduceScatter, {a, b}, bytes) <=
                  slack * (seconds(CollectiveKind::kReduceScatter, {a}, bytes) +
                           seconds(CollectiveKind::kReduceScatter, {b}, bytes / na)));
            CHECK(seconds(CollectiveKind::kAllGather, {b, a}, bytes) <=
                  slack * (seconds(CollectiveKind::kAllGather, {a}, bytes) +
                           seconds(CollectiveKind::kAllGather, {b}, bytes * na)));
            CHECK(seconds(CollectiveKind::kAllToAll, {a, b}, bytes) <=
                  slack * (seconds(CollectiveKind::kAllToAll, {a}, bytes) +
                           seconds(CollectiveKind::kAllToAll, {b}, bytes)));
            // Gathering or exchanging with more peers never takes less time.
            CHECK(seconds(CollectiveKind::kAllGather, {a}, bytes) <=
                  slack * seconds(CollectiveKind::kAllGather, {a, b}, bytes));
            CHECK(seconds(CollectiveKind::kAllToAll, {a}, bytes) <=
                  slack * seconds(CollectiveKind::kAllToAll, {a, b}, bytes));
          }
        }
      }
    }
  }
}

TEST_CASE("efficiency tables", "[comm]") {
  Cluster cluster = cluster_of({2});
  cluster.tiers[0].latency_s = 0;
  const Mesh mesh = make_mesh(cluster, {2}).value();
  const auto seconds = [&](double sent) {
    return collective_seconds({CollectiveKind::kAllGather, {0}, 0, -1, Reduction::kSum}, sent, mesh,
                              cluster);
  };
  CHECK(seconds(1e5) == Approx(1e5 / 3e11));
  cluster.tiers[0].efficiency = {{1e4, 0.5}, {1e6, 1.0}};
  CHECK(seconds(1e3) == Approx(1e3 / 3e11 / 0.5));   // clamped
  CHECK(seconds(1e5) == Approx(1e5 / 3e11 / 0.75));  // half way in the logarithm
  CHECK(seconds(1e9) == Approx(1e9 / 3e11));         // clamped
  cluster.tiers[0].efficiency = {{1e4, 0.001}, {1e6, 1.0}};
  CHECK(seconds(2e4) >= seconds(1e4));  // more bytes never take less time
  for (double bytes = 1e3; bytes < 1e8; bytes *= 1.3) CHECK(seconds(bytes * 1.3) >= seconds(bytes));
}

TEST_CASE("groups of ranks are priced as the axes that they run along", "[comm]") {
  for (const Cluster& cluster : {cluster_of({8, 2}), cluster_of({2, 3, 2}), cluster_of({6})}) {
    for (const Mesh& mesh : mesh_candidates(cluster, 4, true)) {
      for (unsigned subset = 1; subset < 1U << mesh.axes.size(); ++subset) {
        AxisList axes;
        for (int a = 0; a < mesh.rank(); ++a) {
          if (subset >> a & 1U) axes.push_back(a);
        }
        const auto groups = device_groups(mesh, axes);
        const std::int64_t size = axes_size(mesh, axes);
        for (double bytes : {64., 1e6}) {
          for (CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                      CollectiveKind::kReduceScatter, CollectiveKind::kBroadcast,
                                      CollectiveKind::kShardSlice, CollectiveKind::kAllToAll}) {
            if (kind == CollectiveKind::kAllToAll && axes.size() > 1) continue;  // by axes, too
            CHECK(collective_seconds(kind, bytes, groups, size, cluster) ==
                  Approx(collective_seconds({kind, axes, 0, 1, Reduction::kSum}, bytes, mesh,
                                            cluster)));
          }
        }
      }
    }
  }
}

TEST_CASE("groups that lie unevenly, and messages", "[comm]") {
  const Cluster cluster = cluster_of({8, 2});  // 3e11 B/s, 2e-6 s; 2.5e10 B/s, 5e-6 s
  const auto seconds = [&](CollectiveKind kind, const std::vector<std::int64_t>& groups,
                           std::int64_t size) {
    return collective_seconds(kind, 8e6, groups, size, cluster);
  };
  // Three ranks on one node and one on the other, whose half of all crosses.
  CHECK(seconds(CollectiveKind::kReduceScatter, {0, 9, 2, 1}, 4) ==
        Approx(2. / 3 * 8e6 / 3e11 + 2 * 2e-6 + 8e6 / 2 / 2.5e10 + 5e-6));
  // The slowest group counts.
  CHECK(seconds(CollectiveKind::kAllReduce, {0, 1, 2, 8}, 2) ==
        Approx(seconds(CollectiveKind::kAllReduce, {2, 8}, 2)));
  CHECK(seconds(CollectiveKind::kSend, {0, 1}, 2) == Approx(8e6 / 3e11 + 2e-6));
  CHECK(seconds(CollectiveKind::kRecv, {0, 1, 8, 7}, 2) == Approx(8e6 / 2.5e10 + 5e-6));
  CHECK(sent_bytes(CollectiveKind::kSend, 8e6, 2) == 8e6);
  CHECK(sent_bytes(CollectiveKind::kRecv, 8e6, 2) == 0);
}

}  // namespace autopar::collective_test
