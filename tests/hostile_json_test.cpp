// JSON files that somebody made to do harm, or by mistake: an Error that names the file, or what
// they say; never a crash, and no message as long as the file.
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "autopar/import.hpp"
#include "autopar/iopddl.hpp"
#include "autopar/report.hpp"
#include "autopar/step_file.hpp"
#include "folder.hpp"
#include "json/parse.hpp"
#include "strategies.hpp"

namespace autopar::hostile_json_test {

using namespace testing;
using Json = nlohmann::json;

namespace {

const char* const kCluster = R"({"format": "autopar-cluster", "version": 1, "name": "box",
 "device": {"name": "A100", "memory_bytes": 85899345920, "memory_bandwidth_bytes_per_s": 2e12,
            "peak_flops_per_s": {"float32": 19.5e12}},
 "tiers": [{"name": "nvlink", "size": 4, "bandwidth_bytes_per_s": 3e11, "latency_s": 2e-6,
            "efficiency": [[1000, 0.25], [1e6, 1]]}],
 "host_link": {"bandwidth_bytes_per_s": 2.5e10}})";

const char* const kGraph = R"({"format": "autopar-graph", "version": 1, "name": "g",
 "inputs": [{"name": "x", "dtype": "float32", "shape": [4, 6]}],
 "parameters": [{"name": "w", "dtype": "float32", "shape": [6, 2]}],
 "constants": [{"name": "c", "dtype": "int64", "shape": [1], "data": [-1]}],
 "ops": [{"name": "fc", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["h"], "attributes": {}},
         {"name": "r", "type": "ReduceSum", "inputs": ["h", "c"], "outputs": ["y"],
          "attributes": {"keepdims": 1}}],
 "outputs": ["y"]})";

const char* const kProblem = R"({"problem": {"name": "p",
 "nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 2], [3, 1]], "usages": [[4, 5], [1, 9]]},
 "edges": {"nodes": [[0, 1]], "costs": [[0, 1, 2, 3]]}, "usage_limit": 9}})";

const char* const kReport = R"({"format": "autopar-report", "version": 1,
 "model": {"name": "m", "sha256": "s", "ops": 2, "parameters": 3.0, "parameters_bytes": 12},
 "cluster": {"name": "box", "devices": 4}, "searcher": "auto",
 "picked": {"searcher": "dp", "why": "w",
            "tried": [{"searcher": "rec", "found": false, "no_less_than_seconds": 1, "error": "e"}]},
 "cost_model": "roofline", "cost_unit": "seconds", "mesh": [{"name": "nvlink", "size": 4}],
 "cost": {"seconds": 1, "compute_seconds": 1, "communication_seconds": 0, "lower_bound_seconds": 1,
          "unlimited_lower_bound_seconds": null, "gap": 0, "proven_optimal": true,
          "interrupted": false, "meshes_not_tried": 0},
 "memory": {"peak_bytes": 1, "peak_op": "fc", "parameters_bytes": 1, "constants_bytes": 0,
            "activations_bytes": 0, "reshards_bytes": 0, "limit_bytes": 5},
 "collectives": [{"kind": "AllReduce", "mesh_axes": "nvlink", "count": 1, "seconds": 1,
                  "sent_bytes": 2}],
 "baselines": [{"name": "replicate", "found": true, "seconds": 2, "memory_bytes": 3, "fits": true,
                "mesh": "4"}],
 "meshes": [{"mesh": [{"name": "nvlink", "size": 4}], "end": "plan", "stopped_early": false,
             "seconds": 1, "lower_bound_seconds": 1}],
 "ops": [{"name": "fc", "type": "MatMul", "assignment": "nvlink:m", "in_strategy": [[4, 1]],
          "compute_seconds": 1, "communication_seconds": 0}],
 "reshards": [{"tensor": "x", "reader": "fc", "from": "[{}]", "to": "[{}]", "steps": ["AllGather"],
               "seconds": 1, "sent_bytes": 1}],
 "propagation": {"seeds": ["fc"], "reached": 1, "unreached": 0,
                 "breadth_first": {"seconds": 1, "sent_bytes": 1, "reshards": 1},
                 "exact": {"seconds": 1, "sent_bytes": 1, "reshards": 1}, "exact_gap": 0},
 "conflicts": [{"kind": "pins", "tensor": "x", "from": {"where": "a", "spec": "s", "because": "b"},
                "to": {"where": "a", "spec": "s", "because": "b"}, "via": null, "steps": ["s"],
                "seconds": 1, "sent_bytes": 1}],
 "warnings": ["w"]})";

const char* const kRankList = R"({"format": "autopar-dialect", "version": 1, "dialect": "trt",
 "world_size": 2, "mesh": [{"name": "a", "size": 2}], "io": {},
 "files": [{"file": "plan.trt.rank0.onnx", "ranks": [0]},
           {"file": "plan.trt.rank1.onnx", "ranks": [1]}]})";

const char* const kStep = R"({"format": "autopar-step", "version": 1, "world_size": 2,
 "micro_batches": 2, "schedule": "schedule.csv",
 "programs": [{"file": "fb.onnx", "chunk": 0, "phase": "FB", "ranks": [0, 1]},
              {"file": "u.onnx", "chunk": 0, "phase": "U", "ranks": [0, 1]}],
 "micro_inputs": {"x": 0}, "outputs": {"loss": "mean", "y": "concat:0"}, "reference": "passes"})";

std::string strategy_text() {
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of({4});
  Random random(1);
  const Strategy strategy = random_strategy(graph, rules, make_mesh(cluster, {4}).value(), random);
  const StrategyFile::Cost cost{1, 0, 0, 5};
  return strategy_to_json(graph, rules, strategy, cluster,
                          {"m.onnx",
                           "abc",
                           cluster.name,
                           "def",
                           "fast",
                           "012",
                           "dp",
                           "cheap",
                           0,
                           0,
                           {32, 0, {}},
                           cost});
}

// Every reader of JSON, with a text that it takes.
struct Reader {
  std::string name;
  std::string good;
  std::function<Status(const std::string& path)> read;
};

template <class T>
Status status_of(const Result<T>& result) {
  return result ? Status(Ok{}) : Status(result.error());
}

std::vector<Reader> readers() {
  return {
      {"cluster.json", kCluster, [](const auto& path) { return status_of(read_cluster(path)); }},
      {"strategy.json", strategy_text(),
       [](const auto& path) { return status_of(read_strategy(path)); }},
      {"graph.json", kGraph, [](const auto& path) { return status_of(import_model(path)); }},
      {"problem.json", kProblem, [](const auto& path) { return status_of(read_iopddl(path)); }},
      {"report.json", kReport,
       [](const auto& path) {
         const auto report = report_of_json(read_file(path).value(), path);
         if (report) {
           CHECK(!to_table(*report).empty());
           CHECK(!to_json(*report).empty());
         }
         return status_of(report);
       }},
      {"plan.trt.json", kRankList,
       [](const auto& path) { return status_of(read_programs(path, {})); }},
      {"step.json", kStep,
       [](const auto& path) {
         const std::string folder = std::filesystem::path(path).parent_path().string();
         const Status written = write_file_atomically(folder + "/schedule.csv", "0FB0,0FB1,0U\n");
         REQUIRE(written.ok());
         return status_of(read_step(folder));
       }},
  };
}

// The places of all values in a document.
void collect(const Json& json, const Json::json_pointer& at,
             std::vector<Json::json_pointer>& places) {
  places.push_back(at);
  if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) collect(json[i], at / i, places);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.items()) collect(value, at / key, places);
  }
}

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

constexpr std::size_t kLongestMessage = 1000;

}  // namespace

TEST_CASE("lists in lists without end are refused by every reader", "[hostile]") {
  const Folder folder;
  for (const Reader& reader : readers()) {
    const Json good = Json::parse(reader.good);
    std::vector<Json::json_pointer> places;
    collect(good, Json::json_pointer(), places);
    // The deepest that is read at all, and what overflows a stack where values are walked.
    for (const std::size_t levels : {std::size_t{40}, std::size_t{300'000}}) {
      for (const auto& place : places) {
        if (levels > 1000 && place.to_string().size() > 8) continue;  // the time it takes
        Json bad = good;
        bad[place] = "HERE";
        std::string text = bad.dump();
        text.replace(text.find("\"HERE\""), 6, nested(levels));
        const std::string path = folder.write(reader.name, text);
        const Status read = reader.read(path);
        CAPTURE(reader.name, place.to_string(), levels);
        if (levels > 1000) REQUIRE(!read.ok());
        if (read.ok()) continue;
        CHECK(read.error().code == ErrorCode::kInput);
        CHECK(read.error().message.find(folder / "") != std::string::npos);
        CHECK(read.error().message.size() < kLongestMessage);
      }
    }
  }
}

TEST_CASE("values of other types and sizes are refused or read by every reader", "[hostile]") {
  const std::string long_text(200, 'x');  // names are told in full
  const std::vector<Json> odd = {nullptr,
                                 true,
                                 -1,
                                 0,
                                 1,
                                 1.5,
                                 -1e308,
                                 1e308,
                                 4294967296,
                                 std::int64_t{1} << 62,
                                 ~std::uint64_t{0},
                                 "",
                                 "x",
                                 long_text,
                                 Json::array(),
                                 Json::object(),
                                 Json::array({1, 2, 3}),
                                 Json::array({Json::array({1}), Json::array()}),
                                 Json::object({{"name", "n"}, {"size", 2}})};
  const Folder folder;
  for (const Reader& reader : readers()) {
    const Json good = Json::parse(reader.good);
    if (reader.name != "plan.trt.json") {  // whose files are not there
      const Status read = reader.read(folder.write(reader.name, good.dump()));
      INFO((read.ok() ? "" : read.error().message));
      REQUIRE(read.ok());
    }
    std::vector<Json::json_pointer> places;
    collect(good, Json::json_pointer(), places);
    int refused = 0, tried = 0;
    for (const auto& place : places) {
      for (const Json& value : odd) {
        Json bad = good;
        bad[place] = value;
        const std::string path = folder.write(reader.name, bad.dump());
        const Status read = reader.read(path);
        ++tried;
        if (read.ok()) continue;
        ++refused;
        CAPTURE(reader.name, place.to_string(), found_text(value), read.error().message);
        CHECK(read.error().code == ErrorCode::kInput);
        CHECK(read.error().message.find(folder / "") != std::string::npos);
        CHECK(read.error().message.size() < kLongestMessage);
      }
    }
    INFO(reader.name);
    CHECK(2 * refused > tried);  // most of it is of no sense
  }
}

TEST_CASE("files that end early are refused by every reader", "[hostile]") {
  const Folder folder;
  for (const Reader& reader : readers()) {
    for (std::size_t size = 0; size < reader.good.size(); size += 7) {
      const std::string path = folder.write(reader.name, reader.good.substr(0, size));
      const Status read = reader.read(path);
      CAPTURE(reader.name, size);
      REQUIRE(!read.ok());
      CHECK(read.error().message.find(reader.name) != std::string::npos);
    }
  }
}

TEST_CASE("levels are those of lists and objects, not of what stands in strings", "[hostile]") {
  const auto levels = static_cast<std::size_t>(kMaxJsonLevels);
  CHECK(parse_json(nested(levels), "f").ok());
  CHECK(!parse_json(nested(levels + 1), "f").ok());
  CHECK(
      parse_json("[\"" + std::string(500, '[') + "\\\"" + std::string(500, '{') + "\"]", "f").ok());
  CHECK(parse_json("[" + std::string("[{}],").append(800, ' ') + "[[]]]", "f").ok());
  CHECK(found_text(Json::parse(nested(20))) == "a list of 1 item");
  CHECK(found_text(Json::parse("[1, \"two\"]")) == "[1,\"two\"]");
  CHECK(found_text(Json::parse("{\"a\": 1, \"b\": 2}")) == "an object of 2 members");
  CHECK(found_text(Json(std::string(500, 'x'))).size() < 100);
}

}  // namespace autopar::hostile_json_test
