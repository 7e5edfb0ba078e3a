// Clusters, meshes, their candidates and groups.
#include "autopar/mesh.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <set>

namespace autopar::mesh_test {

namespace {

// Tier sizes, innermost first.
Cluster cluster_of(const std::vector<std::int64_t>& sizes) {
  Cluster cluster;
  cluster.name = "test";
  cluster.device = {"device", Bytes{1} << 30, 1e12, {{"float32", 1e12}}};
  const std::vector<std::string> names = {"nvlink", "ib", "pod", "hall", "site"};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    cluster.tiers.push_back({names[i], sizes[i], 1e9, 1e-6, {}});
  }
  return cluster;
}

Mesh mesh_of(const std::vector<std::int64_t>& tiers, const std::string& text) {
  return make_mesh(cluster_of(tiers), parse_mesh(text).value()).value();
}

std::string axes_text(const Mesh& mesh) {
  std::string text;
  for (const Axis& axis : mesh.axes) {
    text += axis.name + "=" + std::to_string(axis.size) + "/" + std::to_string(axis.stride) + " ";
  }
  return text;
}

std::string candidates_text(const std::vector<std::int64_t>& tiers, int max_axes, bool ordered) {
  std::string text;
  for (const Mesh& mesh : mesh_candidates(cluster_of(tiers), max_axes, ordered)) {
    text += to_text(mesh) + " ";
  }
  return text;
}

}  // namespace

TEST_CASE("axes of a mesh", "[mesh]") {
  struct Row {
    std::vector<std::int64_t> tiers;
    std::string text, axes;
  };
  for (const Row& row : std::vector<Row>{
           {{8, 2}, "2x8", "ib=2/8 nvlink=8/1 "},
           {{8, 2}, "2x4x2", "ib=2/8 nvlink_0=4/2 nvlink_1=2/1 "},
           {{8, 2}, "1x2x1x8", "ib=2/8 nvlink=8/1 "},
           {{8, 2}, "16", "ib=16/1 "},
           {{8, 2}, "4x4", "ib=4/4 nvlink=4/1 "},
           {{8, 4}, "2x4x4", "ib_0=2/16 ib_1=4/4 nvlink=4/1 "},
           {{8, 8}, "64", "ib=64/1 "},
           {{8, 8}, "2x32", "ib_0=2/32 ib_1=32/1 "},
           {{8}, "4x2", "nvlink_0=4/2 nvlink_1=2/1 "},
           {{1, 4}, "4", "ib=4/1 "},
           {{6, 2}, "2x2x3", "ib=2/6 nvlink_0=2/3 nvlink_1=3/1 "},
           {{6, 2}, "4x3", "ib=4/3 nvlink=3/1 "},
           {{1}, "1", "nvlink=1/1 "},
           {{1, 1}, "1x1", "nvlink=1/1 "},
           {{8, 8, 4}, "4x8x8", "pod=4/64 ib=8/8 nvlink=8/1 "},
           {{8, 8, 4}, "4x64", "pod=4/64 ib=64/1 "},
       }) {
    INFO(row.text);
    CHECK(axes_text(mesh_of(row.tiers, row.text)) == row.axes);
  }
}

TEST_CASE("an axis has the tier that it crosses", "[mesh]") {
  const Mesh mesh = mesh_of({8, 8, 4}, "2x4x32");
  REQUIRE(mesh.rank() == 3);
  CHECK(mesh.axes[0].tier == 2);
  CHECK(mesh.axes[1].tier == 2);  // 32..128 crosses ib (32..64) and pod (64..128)
  CHECK(mesh.axes[2].tier == 1);
  CHECK(axes_text(mesh) == "pod_0=2/128 pod_1=4/32 ib=32/1 ");
}

TEST_CASE("names stay unique beside tiers with numbered names", "[mesh]") {
  Cluster cluster = cluster_of({4, 2});
  cluster.tiers[1].name = "nvlink_0";
  const Mesh mesh = make_mesh(cluster, {2, 2, 2}).value();
  CHECK(axes_text(mesh) == "nvlink_0=2/4 nvlink_1=2/2 nvlink_2=2/1 ");
}

TEST_CASE("meshes that do not fit are refused", "[mesh]") {
  const Cluster cluster = cluster_of({6, 2});
  CHECK_FALSE(make_mesh(cluster, {2, 5}).ok());
  CHECK_FALSE(make_mesh(cluster, {}).ok());
  CHECK_FALSE(make_mesh(cluster, {-2, -6}).ok());
  CHECK_FALSE(make_mesh(cluster, {12, 0}).ok());
  CHECK_FALSE(make_mesh(cluster, {std::int64_t{1} << 40, std::int64_t{1} << 40}).ok());
  const Result<Mesh> crossing = make_mesh(cluster, {3, 4});  // 4 ranks of a node of 6
  REQUIRE_FALSE(crossing.ok());
  CHECK(crossing.error().message.find("size 4 cuts a tier") != std::string::npos);
  CHECK(crossing.error().message.find("2 x 6") != std::string::npos);
}

TEST_CASE("mesh texts", "[mesh]") {
  CHECK(parse_mesh("4x2").value() == std::vector<std::int64_t>{4, 2});
  CHECK(parse_mesh("8").value() == std::vector<std::int64_t>{8});
  for (const char* text :
       {"", "x", "4x", "x4", "4x0", "4x-2", "4,2", "4 x 2", "4x2a", "+4", "99999999999999999999"}) {
    INFO(text);
    REQUIRE_FALSE(parse_mesh(text).ok());
    CHECK(parse_mesh(text).error().code == ErrorCode::kUsage);
  }
}

TEST_CASE("candidates of any device count", "[mesh]") {
  CHECK(candidates_text({8}, 3, false) == "8 4x2 2x2x2 ");
  CHECK(candidates_text({8}, 3, true) == "8 2x4 4x2 2x2x2 ");
  CHECK(candidates_text({8}, 1, false) == "8 ");
  CHECK(candidates_text({7}, 3, false) == "7 ");
  CHECK(candidates_text({6}, 3, false) == "6 3x2 ");
  CHECK(candidates_text({12}, 3, false) == "12 4x3 6x2 3x2x2 ");
  CHECK(candidates_text({48}, 2, false) == "48 8x6 12x4 16x3 24x2 ");
  CHECK(candidates_text({8, 2}, 3, false) == "2x8 2x4x2 ");
  CHECK(candidates_text({8, 8}, 3, false) == "8x8 4x2x8 8x4x2 ");
  CHECK(candidates_text({8, 8}, 1, false) == "64 ");
  CHECK(candidates_text({8, 4, 2}, 2, false) == "2x32 8x8 ");
  CHECK(candidates_text({8, 1, 4, 2, 3}, 3, false) == "3x2x32 3x8x8 6x4x8 ");
  CHECK(candidates_text({2, 2, 2, 2}, 4, false) == "2x2x2x2 ");
  CHECK(candidates_text({8, 8, 4}, 3, false) == "4x8x8 ");
  CHECK(candidates_text({8, 8, 4}, 4, false) == "4x8x8 2x2x8x8 4x4x2x8 4x8x4x2 ");
  CHECK(candidates_text({1, 4}, 3, false) == "4 2x2 ");
  CHECK(candidates_text({1}, 3, false) == "1 ");
}

TEST_CASE("every candidate is a mesh of the cluster", "[mesh]") {
  for (std::int64_t inner : {1, 2, 5, 6, 7, 8, 12, 30}) {
    for (std::int64_t outer : {1, 2, 3, 9, 16}) {
      for (bool ordered : {false, true}) {
        const auto meshes = mesh_candidates(cluster_of({inner, outer}), 3, ordered);
        REQUIRE_FALSE(meshes.empty());
        std::set<std::string> texts;
        for (const Mesh& mesh : meshes) {
          CHECK(mesh.size() == inner * outer);
          CHECK(texts.insert(to_text(mesh)).second);
          for (const Axis& axis : mesh.axes) {
            const bool within = axis.stride * axis.size <= inner || axis.stride >= inner;
            CHECK(within);
          }
        }
      }
    }
  }
}

TEST_CASE("prime factors", "[mesh]") {
  using Numbers = std::vector<std::int64_t>;
  CHECK(prime_factors(1) == Numbers{});
  CHECK(prime_factors(7) == Numbers{7});
  CHECK(prime_factors(12) == Numbers{2, 2, 3});
  CHECK(prime_factors(49) == Numbers{7, 7});
}

TEST_CASE("coordinates and groups", "[mesh]") {
  const Mesh mesh = mesh_of({8, 2}, "2x4x2");
  CHECK(mesh.coordinates(13) == std::vector<std::int64_t>{1, 2, 1});
  CHECK(mesh.sizes() == std::vector<std::int64_t>{2, 4, 2});
  CHECK(mesh.axis_index("nvlink_1") == 2);
  CHECK(mesh.axis_index("nvlink") == -1);
  CHECK(axes_size(mesh, {0, 2}) == 4);
  CHECK(axes_size(mesh, {}) == 1);

  using Groups = std::vector<std::int64_t>;
  const Mesh two_by_three = mesh_of({3, 2}, "2x3");
  CHECK(device_groups(two_by_three, {1}) == Groups{0, 1, 2, 3, 4, 5});
  CHECK(device_groups(two_by_three, {0}) == Groups{0, 3, 1, 4, 2, 5});
  CHECK(device_groups(two_by_three, {0, 1}) == Groups{0, 1, 2, 3, 4, 5});
  CHECK(device_groups(two_by_three, {1, 0}) == Groups{0, 3, 1, 4, 2, 5});  // one group
  CHECK(device_groups(two_by_three, {}) == Groups{0, 1, 2, 3, 4, 5});
  CHECK(device_groups(mesh, {2, 0}) ==
        Groups{0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15});
}

TEST_CASE("MindSpore's device matrix facts", "[mesh]") {
  // Device matrix [2,1,4,2], rank 5: groups along its dimensions {5,13}, {5}, {1,3,5,7}, {4,5}.
  const Mesh mesh = mesh_of({8, 2}, "2x4x2");
  const auto group_with = [&](std::int64_t rank, int axis) {
    const auto groups = device_groups(mesh, {axis});
    const auto size = static_cast<std::size_t>(axes_size(mesh, {axis}));
    for (std::size_t g = 0; g < groups.size(); g += size) {
      std::vector<std::int64_t> group(groups.begin() + static_cast<std::ptrdiff_t>(g),
                                      groups.begin() + static_cast<std::ptrdiff_t>(g + size));
      if (std::count(group.begin(), group.end(), rank)) return group;
    }
    return std::vector<std::int64_t>{};
  };
  CHECK(group_with(5, 0) == std::vector<std::int64_t>{5, 13});
  CHECK(group_with(5, 1) == std::vector<std::int64_t>{1, 3, 5, 7});
  CHECK(group_with(5, 2) == std::vector<std::int64_t>{4, 5});
}

TEST_CASE("clusters are checked", "[mesh]") {
  REQUIRE(verify(cluster_of({8, 2})).ok());
  const auto refuses = [](const std::string& part, auto change) {
    Cluster cluster = cluster_of({8, 2});
    change(cluster);
    const Status status = verify(cluster);
    REQUIRE_FALSE(status.ok());
    INFO(status.error().message);
    CHECK(status.error().message.find(part) != std::string::npos);
  };
  refuses("size", [](Cluster& c) { c.tiers[0].size = 0; });
  refuses("at most 1048576", [](Cluster& c) { c.tiers[0].size = std::int64_t{1} << 62; });
  refuses("bandwidth_bytes_per_s", [](Cluster& c) { c.tiers[1].bandwidth_bytes_per_s = 0; });
  refuses("bandwidth_bytes_per_s", [](Cluster& c) {
    c.tiers[1].bandwidth_bytes_per_s = std::numeric_limits<double>::quiet_NaN();
  });
  refuses("latency_s", [](Cluster& c) { c.tiers[1].latency_s = -1; });
  refuses("named differently", [](Cluster& c) { c.tiers[1].name = "nvlink"; });
  refuses("without any of", [](Cluster& c) { c.tiers[1].name = "a,b"; });
  refuses("memory_bytes", [](Cluster& c) { c.device.memory_bytes = 0; });
  refuses("memory_bandwidth", [](Cluster& c) { c.device.memory_bandwidth_bytes_per_s = -1; });
  refuses("peak_flops_per_s", [](Cluster& c) { c.device.peak_flops_per_s.clear(); });
  refuses("at least one tier", [](Cluster& c) { c.tiers.clear(); });
  refuses("efficiency", [](Cluster& c) { c.tiers[0].efficiency = {{10, 0.5}, {10, 0.6}}; });
  refuses("efficiency", [](Cluster& c) { c.tiers[0].efficiency = {{10, 1.5}}; });
}

}  // namespace autopar::mesh_test
