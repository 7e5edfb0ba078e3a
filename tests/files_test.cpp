// cluster.json and strategy.json: what is read, what is refused, and that writing reads back.
#include "autopar/files.hpp"

#include <catch2/catch.hpp>
#include <cerrno>

#include "autopar/partition.hpp"
#include "autopar/sha256.hpp"
#include "folder.hpp"
#include "strategies.hpp"

namespace autopar::files_test {

using namespace testing;

namespace {

const std::string kCluster = R"({"format": "autopar-cluster", "version": 1, "name": "two boxes",
 "device": {"name": "A100", "memory_bytes": 85899345920, "memory_bandwidth_bytes_per_s": 2.039e12,
            "peak_flops_per_s": {"float32": 19.5e12, "bfloat16": 312e12}},
 "tiers": [{"name": "nvlink", "size": 4, "bandwidth_bytes_per_s": 3.0e11, "latency_s": 2e-6,
            "efficiency": [[1000, 0.25], [1e6, 1]]},
           {"name": "ib", "size": 2, "bandwidth_bytes_per_s": 2.5e10, "latency_s": 5e-6}],
 "host_link": {"bandwidth_bytes_per_s": 2.5e10}, "comment": "unknown fields are ignored"})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

struct Row {
  std::string from, to, message;
};

}  // namespace

TEST_CASE("a cluster file is read and written back", "[files]") {
  const Folder folder;
  const Result<ClusterFile> read = read_cluster(folder.write("c.json", kCluster));
  INFO((read.ok() ? "" : read.error().message));
  REQUIRE(read.ok());
  const Cluster& cluster = read->cluster;
  CHECK(read->sha256 == sha256_hex(kCluster));
  CHECK(cluster.name == "two boxes");
  CHECK(cluster.device_count() == 8);
  CHECK(cluster.device.memory_bytes == 85899345920);
  CHECK(cluster.device.peak_flops_per_s.at("bfloat16") == 312e12);
  CHECK(cluster.tiers[0].efficiency ==
        std::vector<std::pair<double, double>>{{1000, 0.25}, {1e6, 1}});
  CHECK(cluster.tiers[1].latency_s == 5e-6);
  CHECK(cluster.host_link_bandwidth_bytes_per_s == 2.5e10);
  const auto again = read_cluster(folder.write("d.json", cluster_to_json(cluster)));
  REQUIRE(again.ok());
  CHECK(cluster_to_json(again->cluster) == cluster_to_json(cluster));
  CHECK(again->cluster.tiers[0].efficiency == cluster.tiers[0].efficiency);
}

TEST_CASE("a bad cluster file is refused by field", "[files]") {
  const std::vector<Row> rows = {
      {"{\"format\"", "\"format\"", "is not JSON: parse error at line 1"},
      {"autopar-cluster", "autopar-strategy",
       "format: expected \"autopar-cluster\", found \"autopar-strategy\""},
      {"\"version\": 1", "\"version\": 2", "version: expected version 1"},
      {"\"version\": 1, ", "", "the field \"version\" is missing"},
      {"\"size\": 4", "\"size\": 0", "tiers[0].size: expected a positive integer, found 0"},
      {"\"size\": 4", "\"size\": 2.5", "tiers[0].size: expected an integer, found 2.5"},
      {"\"size\": 4", "\"size\": \"4\"", "tiers[0].size: expected an integer, found \"4\""},
      {"\"size\": 4", "\"size\": 99999999999", "at most 1048576"},
      {"\"name\": \"ib\"", "\"name\": \"nvlink\"", "'nvlink' twice"},
      {"3.0e11", "-1", "tiers[0].bandwidth_bytes_per_s: expected a positive number, found -1"},
      {"3.0e11", "1e-320", "bandwidth_bytes_per_s must be at least 1e-100 and below 1e300"},
      {"\"latency_s\": 5e-6", "\"latency_s\": null", "tiers[1].latency_s: expected a number"},
      {"\"latency_s\": 5e-6", "\"latency\": 5e-6", "tiers[1]: the field \"latency_s\" is missing"},
      {"{\"float32\": 19.5e12, \"bfloat16\": 312e12}", "{}", "device.peak_flops_per_s: expected"},
      {"85899345920", "0", "device.memory_bytes: expected a positive integer, found 0"},
      {"[1000, 0.25]", "[1000]", "tiers[0].efficiency[0]: expected a pair"},
      {"[1000, 0.25]", "[1000, 1.5]", "fractions above 0"},
      {"\"device\": {", "\"device\": [], \"other\": {", "device: expected an object, found []"},
  };
  const Folder folder;
  for (const Row& row : rows) {
    const std::string path = folder.write("c.json", replaced(kCluster, row.from, row.to));
    const Result<ClusterFile> read = read_cluster(path);
    INFO(row.to << ": " << (read.ok() ? "accepted" : read.error().message));
    REQUIRE(!read.ok());
    CHECK(read.error().code == ErrorCode::kInput);
    CHECK(read.error().message.find(row.message) != std::string::npos);
    CHECK(read.error().message.find("c.json") != std::string::npos);
  }
  CHECK(!read_cluster(folder / "missing.json").ok());
  CHECK(!read_cluster(folder.write("empty.json", "")).ok());
  CHECK(!read_cluster(folder.write("list.json", "[]")).ok());
  CHECK(!read_cluster(folder.write("deep.json", std::string(100000, '['))).ok());
  CHECK(!read_cluster(folder / "").ok());
}

TEST_CASE("strategies read back exactly", "[files]") {
  GraphWriter b;
  const ValueId x = b.input("in \"quoted\" \xC3\xA9", {24, 48});
  const ValueId w = b.weight("w", {48, 24});
  const ValueId k = b.constant("k", {24});
  const ValueId h = b.op("MatMul", {x, w}, {24, 24}, {}, "layers.0/fc");
  const ValueId a = b.op("Add", {h, k}, {24, 24}, {}, "add");
  const ValueId r = b.op("Relu", {a}, {24, 24});
  b.graph.outputs = {b.op("MatMul", {a, r}, {24, 24}), r, k};
  const GraphRules rules = rules_of(b.graph).value();
  const Folder folder;
  Random random(3);
  for (const auto& tiers : std::vector<std::vector<std::int64_t>>{{1}, {4}, {2, 3}, {2, 2, 2}}) {
    const Cluster cluster = cluster_of(tiers);
    for (const Mesh& mesh : mesh_candidates(cluster, 3)) {
      for (int i = 0; i < 10; ++i) {
        const Strategy strategy = random_strategy(b.graph, rules, mesh, random);
        const StrategyOrigin origin{"m.onnx",
                                    "abc",
                                    cluster.name,
                                    "def",
                                    "fast",
                                    "012",
                                    "dp",
                                    "cheap",
                                    Bytes{1} << 20,
                                    Bytes{1} << 36,
                                    {24, 1, {"tokens", "mask"}},
                                    {0.1 + 1.0 / 3, 1e-300, 0.25, Bytes{1} << 40}};
        const std::string text = strategy_to_json(b.graph, rules, strategy, cluster, origin);
        const Result<StrategyFile> file = read_strategy(folder.write("s.json", text));
        INFO(text);
        REQUIRE(file.ok());
        CHECK(is_complete(b.graph, *file));
        CHECK(file->cost->seconds == origin.cost.seconds);
        CHECK(file->cost->lower_bound_seconds == origin.cost.lower_bound_seconds);
        CHECK(file->cost->memory_bytes == origin.cost.memory_bytes);
        CHECK(file->gradient_bucket == origin.gradient_bucket);
        CHECK(file->memory_limit == origin.memory_limit);
        CHECK(file->model_sha256 == "abc");
        CHECK(file->profile_name == "fast");
        CHECK(file->profile_sha256 == "012");
        CHECK(file->recompute == "cheap");
        CHECK(file->sha256 == sha256_hex(text));
        const Result<Strategy> again = complete_strategy(b.graph, rules, cluster, *file);
        INFO((again.ok() ? "" : again.error().message));
        REQUIRE(again.ok());
        CHECK((*again == strategy));
        CHECK(strategy_to_json(b.graph, rules, *again, cluster, origin) == text);
      }
    }
  }
}

TEST_CASE("strategy.json says it in MindSpore's words", "[files]") {
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of({4, 2});
  const Mesh mesh = make_mesh(cluster, {2, 4}).value();
  const Strategy strategy = named_strategy(graph, rules, mesh, {{"m", "k"}, {"m", "n"}});
  const std::string text = strategy_to_json(graph, rules, strategy, cluster, {});
  INFO(text);
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(
      has("\"mesh\": [{\"name\": \"ib\", \"size\": 2, \"tier\": \"ib\"}, {\"name\": \"nvlink\", "
          "\"size\": 4, \"tier\": \"nvlink\"}]"));
  CHECK(
      has("\"fc1\": {\"type\": \"MatMul\", \"assignment\": {\"ib\": \"m\", \"nvlink\": \"k\"}, "
          "\"in_strategy\": [[2, 4], [4, 1]], \"out_strategy\": [[2, 1]]}"));
  CHECK(
      has("\"X\": {\"shape\": [64, 128], \"local_shape\": [32, 32], \"spec\": \"[{ib},{nvlink}]\""
          ", \"device_matrix\": [2, 4], \"tensor_map\": [1, 0]}"));
  CHECK(
      has("\"W\": {\"shape\": [128, 256], \"local_shape\": [32, 256], \"spec\": "
          "\"[{nvlink},{}]\", \"device_matrix\": [2, 4], \"tensor_map\": [0, -1]}"));
  CHECK(has("\"spec\": \"[{ib},{}] +{nvlink}\""));
  CHECK(has("\"hub_spec\": \"[{ib},{}]\""));
}

TEST_CASE("a partial strategy is read as pins", "[files]") {
  const Folder folder;
  const auto file = read_strategy(folder.write("p.json", R"({"format": "autopar-strategy",
    "version": 1, "ops": {"fc1": {"in_strategy": [[2, 1], [1, 4]]},
                          "fc2": {"assignment": {"ib": "m"}, "out_strategy": [[2, 1]]}}})"));
  REQUIRE(file.ok());
  CHECK(file->mesh.empty());
  CHECK(file->pins.ops.size() == 2);
  CHECK(file->pins.ops.at("fc1").in_strategy ==
        std::vector<std::vector<std::int64_t>>{{2, 1}, {1, 4}});
  CHECK(!file->pins.ops.at("fc1").assignment);
  CHECK(file->pins.ops.at("fc2").assignment->at("ib") == "m");
  const Graph graph = two_matmuls();
  CHECK(!is_complete(graph, *file));
  const auto strategy =
      complete_strategy(graph, rules_of(graph).value(), cluster_of({4, 2}), *file);
  REQUIRE(!strategy.ok());
  CHECK(strategy.error().message.find("\"mesh\" is missing") != std::string::npos);
}

TEST_CASE("a bad strategy file is refused by field", "[files]") {
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of({4, 2});
  const Strategy strategy =
      named_strategy(graph, rules, make_mesh(cluster, {2, 4}).value(), {{"m", "k"}, {"m", "n"}});
  const std::string good = strategy_to_json(graph, rules, strategy, cluster, {});
  const std::vector<Row> rows = {
      {"\"version\": 1", "\"version\": 7", "version: expected version 1"},
      {"\"size\": 4", "\"size\": -4", "mesh[1].size: expected a positive integer"},
      {"\"size\": 4", "\"size\": 3", "must be the 8 devices"},
      {"\"name\": \"nvlink\"", "\"name\": \"ib\"",
       "mesh[1].name: expected a name that is not taken"},
      {"\"name\": \"nvlink\"", "\"name\": \"a b\"", "mesh[1].name: expected a name without"},
      {"\"tier\": \"ib\"", "\"tier\": \"nvlink\"", "lies in the tier 'ib'"},
      {"\"tier\": \"ib\"", "\"tier\": \"token\"", "has no tier 'token'"},
      {"\"nvlink\": \"k\"", "\"nvlink\": \"q\"",
       "ops.fc1.assignment.nvlink: MatMul has no factor 'q'"},
      {"\"nvlink\": \"k\"", "\"fast\": \"k\"", "the mesh has no axis 'fast'"},
      {"\"nvlink\": \"k\"", "\"nvlink\": 3", "ops.fc1.assignment.nvlink: expected a string"},
      {"\"nvlink\": \"k\"", "\"nvlink\": \"n\"", "hub spec must be what the reader needs"},
      {"\"fc1\": {", "\"fc9\": {", "nothing is assigned to op 'fc1' (MatMul)"},
      {"\"X\": {", "\"Q\": {", "there is no spec of tensor 'X'"},
      {"[{ib},{nvlink}]", "[{ib},{tp}]",
       "tensors.X.spec: spec '[{ib},{tp}]': there is no mesh axis"},
      {"[{ib},{nvlink}]", "[{ib}]", "tensors.X.spec"},
      {"[[2, 4], [4, 1]]", "[[2, 0], [4, 1]]", "ops.fc1.in_strategy[0]: expected positive"},
      {"[[2, 4], [4, 1]]", "2", "ops.fc1.in_strategy: expected a list, found 2"},
  };
  const Folder folder;
  for (const Row& row : rows) {
    const std::string path = folder.write("s.json", replaced(good, row.from, row.to));
    const Result<StrategyFile> file = read_strategy(path);
    const Result<Strategy> read =
        file.ok() ? complete_strategy(graph, rules, cluster, *file) : file.error();
    INFO(row.to << ": " << (read.ok() ? "accepted" : read.error().message));
    REQUIRE(!read.ok());
    CHECK(read.error().message.find(row.message) != std::string::npos);
    CHECK(read.error().message.find("s.json") != std::string::npos);
  }
}

TEST_CASE("a mesh may have names of its own", "[files]") {
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of({4, 2});
  Mesh mesh = make_mesh(cluster, {2, 4}).value();
  mesh.axes[0].name = "dp";
  mesh.axes[1].name = "tp";
  const Strategy strategy = named_strategy(graph, rules, mesh, {{"m", "n"}, {"m", "k"}});
  const Folder folder;
  const auto file =
      read_strategy(folder.write("s.json", strategy_to_json(graph, rules, strategy, cluster, {})));
  REQUIRE(file.ok());
  CHECK((complete_strategy(graph, rules, cluster, *file).value() == strategy));
}

TEST_CASE("files appear whole or not at all", "[files]") {
  const Folder folder;
  CHECK(write_file_atomically(folder / "new/sub/a.txt", "one").ok());
  CHECK(read_file(folder / "new/sub/a.txt").value() == "one");
  CHECK(write_file_atomically(folder / "new/sub/a.txt", "two").ok());
  CHECK(read_file(folder / "new/sub/a.txt").value() == "two");
  // A writer that fails leaves the old file and nothing else.
  const Status failed = write_file_atomically(folder / "a.txt", [](int) { return ENOSPC; });
  REQUIRE(!failed.ok());
  CHECK(failed.error().message.find("No space left") != std::string::npos);
  CHECK(folder.files() == 1);
  CHECK(!write_file_atomically(folder / "new/sub", "x").ok());
  CHECK(!write_file_atomically(folder / "new/sub/a.txt/b", "x").ok());
  CHECK(!read_file(folder / "new").ok());
  CHECK(read_file(folder.write("empty", "")).value().empty());
}

}  // namespace autopar::files_test
