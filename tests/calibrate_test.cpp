#include "autopar/calibrate.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "autopar/files.hpp"

namespace autopar::calibrate_test {

namespace {

std::vector<std::int64_t> all_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Times that a cluster of these tiers would have, for groups of all ranks, within and across.
Measurements times_of(const std::vector<Tier>& tiers, double disturbance) {
  Cluster cluster;
  cluster.tiers = tiers;
  cluster.device.memory_bandwidth_bytes_per_s = 1;
  Measurements measured;
  std::int64_t ranks = 1;
  for (const Tier& tier : tiers) ranks *= tier.size;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::string machine = "machine" + std::to_string(r / tiers[0].size);
    measured.hosts.push_back(tiers.size() > 1 ? machine : "one");
  }
  std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> partitions = {
      {all_ranks(ranks), ranks}, {all_ranks(ranks), 2}};
  if (tiers.size() > 1) {
    std::vector<std::int64_t> across;
    for (std::int64_t i = 0; i < tiers[0].size; ++i) {
      for (std::int64_t o = 0; o < tiers[1].size; ++o) across.push_back(o * tiers[0].size + i);
    }
    partitions.push_back({across, tiers[1].size});
  }
  double sign = 1;
  for (const auto& [groups, size] : partitions) {
    for (CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
      for (double bytes : {1e3, 3e4, 1e6, 3e7}) {
        CollectiveSample sample{kind, groups, size, bytes, {}};
        const Seconds seconds = collective_seconds(kind, bytes, groups, size, cluster);
        sample.seconds.median = seconds * (1 + sign * disturbance);
        sign = -sign;
        measured.collectives.push_back(sample);
      }
    }
  }
  return measured;
}

bool near(double a, double b, double relative) { return std::abs(a / b - 1) <= relative; }

}  // namespace

TEST_CASE("calibrate: the fit finds the tiers that made the times", "[calibrate]") {
  for (double disturbance : {0.0, 0.05}) {
    INFO("times are off by " << disturbance);
    const double allowed = disturbance == 0 ? 2e-3 : 0.06;
    const Tier node{"node", 4, 2e10, 3e-6, {}};
    const Calibration one = fit_cluster(times_of({node}, disturbance), {});
    REQUIRE(one.cluster.tiers.size() == 1);
    CHECK(near(one.cluster.tiers[0].latency_s, 3e-6, allowed));
    CHECK(near(one.cluster.tiers[0].bandwidth_bytes_per_s, 2e10, allowed));
    CHECK(one.residual <= disturbance + 3e-3);
    CHECK((one.collectives.size() == 40 && one.problem.empty()));

    const Tier network{"network", 2, 1e9, 4e-5, {}};
    const Calibration two = fit_cluster(times_of({node, network}, disturbance), {});
    REQUIRE(two.cluster.tiers.size() == 2);
    CHECK(two.cluster.tiers[1].name == "network");
    CHECK(near(two.cluster.tiers[0].latency_s, 3e-6, allowed));
    CHECK(near(two.cluster.tiers[0].bandwidth_bytes_per_s, 2e10, allowed));
    CHECK(near(two.cluster.tiers[1].latency_s, 4e-5, allowed));
    CHECK(near(two.cluster.tiers[1].bandwidth_bytes_per_s, 1e9, allowed));
  }
}

TEST_CASE("calibrate: no parameter becomes negative", "[calibrate]") {
  // Larger messages that take less time: a line through them would have a negative slope.
  Measurements measured = times_of({Tier{"node", 2, 1e10, 1e-6, {}}}, 0);
  double fastest = 0;
  for (std::size_t s = 0; s < measured.collectives.size(); ++s) {
    CollectiveSample& sample = measured.collectives[s];
    sample.seconds.median = 1e-3 - 1e-4 * static_cast<double>(s % 4);
    fastest = std::max(fastest, sample.input_bytes / sample.seconds.median);
  }
  const Calibration fitted = fit_cluster(measured, {});
  const Tier& tier = fitted.cluster.tiers[0];
  CHECK(tier.latency_s > 0);
  // Nothing was seen of it that is faster, and it is told of.
  CHECK(near(tier.bandwidth_bytes_per_s, fastest, 1e-3));
  CHECK(fitted.problem.find("'node' took no longer than smaller ones") != std::string::npos);
}

TEST_CASE("calibrate: peaks and memory", "[calibrate]") {
  Measurements measured = times_of({Tier{"node", 2, 1e10, 1e-6, {}}}, 0);
  measured.memory_bytes = 1 << 30;
  const std::vector<TimedOp> ops = {
      {"MatMul", "", DType::kFloat32, {8, 8}, {8, 8}, 1024, 768},
      {"MatMul", "", DType::kFloat32, {16, 16}, {16, 16}, 8192, 3072},
      {"MatMul", "", DType::kFloat16, {8, 8}, {8, 8}, 1024, 384},
      {"Add", "", DType::kFloat32, {1000}, {1000}, 0, 12000},
      {"Add", "", DType::kFloat32, {10}, {10}, 0, 120},
  };
  measured.ops = {{0, {0, 1e-6, 0}, ""},
                  {1, {0, 4e-6, 0}, ""},
                  {2, {}, "no kernel"},
                  {3, {0, 1e-6, 0}, ""},
                  {4, {0, 1e-9, 0}, ""}};
  const Calibration fitted = fit_cluster(measured, ops);
  const Device& device = fitted.cluster.device;
  CHECK(device.peak_flops_per_s == std::map<std::string, double>{{"float32", 2.048e9}});
  CHECK(device.memory_bandwidth_bytes_per_s == 1.2e10);
  CHECK(device.memory_bytes == 1 << 30);
  CHECK(near(fitted.ops[0], 5e-7, 1e-9));
  CHECK(near(fitted.ops[3], 1e-6, 1e-9));
  // Products of a model count, sums do not.
  std::vector<TimedOp> more = ops;
  for (const auto& [type, flops] : {std::pair{"MatMul", 1e5}, std::pair{"Add", 1e6}}) {
    more.push_back({type, "", DType::kFloat32, {8, 8}, {8, 8}, flops, 768});
    more.back().of_model = true;
    measured.ops.push_back({more.size() - 1, {0, 1e-6, 0}, ""});
  }
  CHECK(measured_device(measured, more).peak_flops_per_s.at("float32") == 1e11);
  // What a given cluster says stays.
  Cluster given = fitted.cluster;
  given.tiers[0].latency_s = 1;
  given.device.peak_flops_per_s["float32"] = 1e12;
  const Calibration within = fit_cluster(measured, more, given);
  CHECK(within.cluster.tiers[0].latency_s == 1);
  CHECK(within.cluster.device.peak_flops_per_s == given.device.peak_flops_per_s);
  CHECK(near(within.ops[1], 3072 / 1.2e10, 1e-9));
  // What is written is what is read.
  Cluster cluster = fitted.cluster;
  cluster.name = cluster.device.name = "c";
  CHECK(verify(cluster).ok());
}

TEST_CASE("calibrate: what compute loses beside a collective", "[calibrate]") {
  OverlapSample sample;
  sample.alone = 3, sample.beside = 4;
  CHECK(sample.slowdown() == 0.25);
  sample.beside = 2;
  CHECK(sample.slowdown() == 0);
}

TEST_CASE("calibrate: machines are tiers where ranks lie in equal runs", "[calibrate]") {
  const auto tiers = [](const std::vector<std::string>& hosts) {
    std::string text;
    for (const Tier& tier : machines_of(hosts).tiers) {
      text += tier.name + "=" + std::to_string(tier.size) + " ";
    }
    return text;
  };
  CHECK(tiers({"a", "a", "a"}) == "node=3 ");
  CHECK(tiers({"a", "a", "b", "b", "c", "c"}) == "node=2 network=3 ");
  CHECK(tiers({"a", "b"}) == "network=2 ");
  CHECK(machines_of({"a", "b"}).problem.empty());
  for (const auto& hosts : std::vector<std::vector<std::string>>{
           {"a", "a", "b"}, {"a", "b", "a", "b"}, {"a", "a", "b", "c"}, {"a", "b", "b"}}) {
    CHECK(tiers(hosts) == "network=" + std::to_string(hosts.size()) + " ");
    CHECK(!machines_of(hosts).problem.empty());
  }
}

}  // namespace autopar::calibrate_test
