// plan.onnx: what is written passes ONNX's checker and reads back; what is wrong is refused.
#include "autopar/export.hpp"

#include <onnx/onnx_pb.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "autopar/files.hpp"
#include "folder.hpp"
#include "io/export/external_data.hpp"
#include "strategies.hpp"

namespace autopar::export_test {

using namespace testing;

namespace {

// Every kind of collective that inference knows, constants, initializers, partial sums.
Graph mixed_graph() {
  GraphWriter b;
  const ValueId x = b.input("x", {24, 48});
  const ValueId w = b.weight("w", {48, 24});
  const ValueId bias = b.parameter("bias", {24});
  const ValueId k = b.constant("k", {24, 24});
  const ValueId h = b.op("MatMul", {x, w}, {24, 24}, {}, "fc");
  const ValueId a = b.op("Add", {h, bias}, {24, 24}, {}, "add");
  const ValueId t = b.op("Transpose", {a}, {24, 24}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const ValueId m = b.op("Mul", {t, k}, {24, 24});
  const ValueId s = b.op("Softmax", {m}, {24, 24}, {{"axis", std::int64_t{1}}});
  b.graph.outputs = {b.op("MatMul", {a, s}, {24, 24}), s};
  b.graph.name = "mixed";
  return b.graph;
}

const PlanMetadata kMetadata = {"0.1.0", "m-sha", "s-sha", {"nvlink", "ib", "pod"}};

Plan plan_of(const Graph& graph, const Cluster& cluster, const Mesh& mesh, Random& random) {
  const GraphRules rules = rules_of(graph).value();
  const Strategy strategy = random_strategy(graph, rules, mesh, random);
  Result<Plan> plan = partition(graph, rules, strategy, cluster);
  INFO((plan.ok() ? "" : plan.error().message));
  REQUIRE(plan.ok());
  return *plan;
}

onnx::ModelProto parse(const std::string& path) {
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(read_file(path).value()));
  return model;
}

std::map<std::string, std::string> properties(const onnx::ModelProto& model) {
  std::map<std::string, std::string> found;
  for (const auto& entry : model.metadata_props()) found[entry.key()] = entry.value();
  return found;
}

}  // namespace

TEST_CASE("random plans pass ONNX's checker and read back", "[export]") {
  const Graph graph = mixed_graph();
  const Folder folder;
  Random random(1);
  for (const auto& tiers : std::vector<std::vector<std::int64_t>>{{1}, {2}, {2, 3}, {2, 2, 2}}) {
    const Cluster cluster = cluster_of(tiers);
    for (const Mesh& mesh : mesh_candidates(cluster, 3)) {
      for (int i = 0; i < 10; ++i) {
        const Plan plan = plan_of(graph, cluster, mesh, random);
        const auto written = write_plan(plan, kMetadata, folder / "plan.onnx");
        INFO((written.ok() ? "" : written.error().message));
        REQUIRE(written.ok());
        CHECK(written->empty());
        // Written in pieces, the file is what protobuf makes of the whole model.
        CHECK(parse(folder / "plan.onnx").SerializeAsString() ==
              read_file(folder / "plan.onnx").value());
        const Result<PlanFile> read = read_plan(folder / "plan.onnx");
        INFO((read.ok() ? "" : read.error().message));
        REQUIRE(read.ok());
        CHECK(read->world_size == cluster.device_count());
        CHECK(read->metadata.model_sha256 == "m-sha");
        CHECK(read->plan.mesh.sizes() == mesh.sizes());
        CHECK(read->plan.program.ops.size() == plan.program.ops.size());
        REQUIRE(read->plan.inputs.size() == plan.inputs.size());
        for (std::size_t v = 0; v < plan.inputs.size(); ++v) {
          CHECK(read->plan.inputs[v].name == plan.inputs[v].name);
          CHECK(read->plan.inputs[v].shape == plan.inputs[v].shape);
          CHECK((read->plan.inputs[v].spec == plan.inputs[v].spec));
        }
        // Written again it is the same program, byte for byte but for the names of tiers.
        REQUIRE(write_plan(read->plan, read->metadata, folder / "again.onnx").ok());
        onnx::ModelProto a = parse(folder / "plan.onnx"), b = parse(folder / "again.onnx");
        CHECK(a.graph().node_size() == b.graph().node_size());
        for (int n = 0; n < a.graph().node_size(); ++n) {
          CHECK(a.graph().node(n).SerializeAsString() == b.graph().node(n).SerializeAsString());
        }
        CHECK(properties(a) == properties(b));
      }
    }
  }
}

TEST_CASE("plan.onnx says what the format promises", "[export]") {
  const Graph graph = two_matmuls();
  const Cluster cluster = cluster_of({4, 2});
  const GraphRules rules = rules_of(graph).value();
  const Mesh mesh = make_mesh(cluster, {2, 4}).value();
  const Strategy strategy = named_strategy(graph, rules, mesh, {{"m", "n"}, {"m", "k"}});
  const Plan plan = partition(graph, rules, strategy, cluster).value();
  const Folder folder;
  REQUIRE(write_plan(plan, kMetadata, folder / "plan.onnx").ok());
  const onnx::ModelProto model = parse(folder / "plan.onnx");
  CHECK(model.ir_version() == 10);
  auto found = properties(model);
  CHECK(found["autopar.version"] == "0.1.0");
  CHECK(found["autopar.world_size"] == "8");
  CHECK(found["autopar.model_sha256"] == "m-sha");
  CHECK(found["autopar.strategy_sha256"] == "s-sha");
  CHECK(found["autopar.mesh"] ==
        "[{\"name\": \"ib\", \"size\": 2, \"tier\": \"ib\"}, "
        "{\"name\": \"nvlink\", \"size\": 4, \"tier\": \"nvlink\"}]");
  CHECK(found["autopar.io"].find("{\"X\": {\"shape\": [64, 128], \"spec\": \"[{ib},{}]\", "
                                 "\"device_matrix\": [2, 4], \"tensor_map\": [1, -1]}") == 0);
  std::map<std::string, std::int64_t> opsets;
  for (const auto& import : model.opset_import()) opsets[import.domain()] = import.version();
  CHECK(opsets == std::map<std::string, std::int64_t>{{"", 18}, {"ai.autopar", 1}});
  CHECK(model.graph().value_info_size() == 2);  // between the three ops
  CHECK(model.graph().input(0).type().tensor_type().shape().dim(0).dim_value() == 32);
}

TEST_CASE("the same plan gives the same bytes", "[export]") {
  const Graph graph = mixed_graph();
  const Cluster cluster = cluster_of({2, 2});
  const Mesh mesh = make_mesh(cluster, {2, 2}).value();
  const Folder folder;
  Random first(9), second(9);
  REQUIRE(write_plan(plan_of(graph, cluster, mesh, first), kMetadata, folder / "a.onnx").ok());
  REQUIRE(write_plan(plan_of(graph, cluster, mesh, second), kMetadata, folder / "b.onnx").ok());
  CHECK(read_file(folder / "a.onnx").value() == read_file(folder / "b.onnx").value());
}

TEST_CASE("a wrong shape is caught before anything is written", "[export]") {
  const Graph graph = two_matmuls();
  const Cluster cluster = cluster_of({2});
  Random random(2);
  Plan plan = plan_of(graph, cluster, make_mesh(cluster, {2}).value(), random);
  for (Op& op : plan.program.ops) {
    if (op.type == "MatMul") plan.program.value(op.outputs[0]).shape = {1, 7};
  }
  const Folder folder;
  const auto written = write_plan(plan, kMetadata, folder / "plan.onnx");
  REQUIRE(!written.ok());
  CHECK(written.error().message.find("fc") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "plan.onnx"));
}

TEST_CASE("a plan that cannot be written leaves nothing behind", "[export]") {
  const Graph graph = two_matmuls();
  const Cluster cluster = cluster_of({2});
  Random random(2);
  const Plan plan = plan_of(graph, cluster, make_mesh(cluster, {2}).value(), random);
  const Folder folder;
  folder.write("file", "in the way");
  const auto written = write_plan(plan, kMetadata, folder / "file/plan.onnx");
  REQUIRE(!written.ok());
  CHECK(written.error().code == ErrorCode::kInput);
  if (std::filesystem::exists("/dev/full")) {  // every write fails there: no space left
    CHECK(!write_plan(plan, kMetadata, "/dev/full/plan.onnx").ok());
  }
  std::filesystem::create_directory(folder / "plan.onnx");
  CHECK(!write_plan(plan, kMetadata, folder / "plan.onnx").ok());
  CHECK(folder.files() == 2);
}

TEST_CASE("external data lies beside the plan", "[export]") {
  GraphWriter b;
  const ValueId x = b.input("x", {4, 4});
  const ValueId w = b.weight("w", {4, 4});
  b.graph.value(w).data = ExternalData{"data/w.bin", 16, 64};
  b.graph.outputs = {b.op("MatMul", {x, w}, {4, 4})};
  const Cluster cluster = cluster_of({2});
  const Mesh mesh = make_mesh(cluster, {2}).value();
  const GraphRules rules = rules_of(b.graph).value();
  const Strategy strategy = named_strategy(b.graph, rules, mesh, {{"n"}});
  const Plan plan = partition(b.graph, rules, strategy, cluster).value();
  const Folder folder;
  const std::string out = folder / "out/plan.onnx";

  // The file does not exist: the reference stays, with a warning.
  auto written = write_plan(plan, kMetadata, out, folder / "model");
  REQUIRE(written.ok());
  REQUIRE(written->size() == 1);
  CHECK(written->at(0).find("data/w.bin") != std::string::npos);

  REQUIRE(write_file_atomically(folder / "model/data/w.bin", std::string(80, 'w')).ok());
  written = write_plan(plan, kMetadata, out, folder / "model");
  REQUIRE(written.ok());
  CHECK(written->empty());
  CHECK(read_file(folder / "out/data/w.bin").value() == std::string(80, 'w'));
  struct stat status {};
  REQUIRE(::stat((folder / "out/data/w.bin").c_str(), &status) == 0);
  CHECK(status.st_nlink == 1);  // ONNX's checker refuses hard links

  const Result<PlanFile> read = read_plan(out);
  REQUIRE(read.ok());
  bool found = false;
  for (const Value& value : read->plan.program.values) {
    if (value.name != "w") continue;
    found = true;
    CHECK((std::get<ExternalData>(value.data) == ExternalData{"data/w.bin", 16, 64}));
  }
  CHECK(found);

  // A changed file is copied again; beside the model itself nothing is to be done.
  REQUIRE(write_file_atomically(folder / "model/data/w.bin", std::string(96, 'v')).ok());
  REQUIRE(write_plan(plan, kMetadata, out, folder / "model").ok());
  CHECK(read_file(folder / "out/data/w.bin").value() == std::string(96, 'v'));
  REQUIRE(write_plan(plan, kMetadata, folder / "model/plan.onnx", folder / "model").ok());
  CHECK(read_file(folder / "model/data/w.bin").value() == std::string(96, 'v'));
}

TEST_CASE("large external data is linked, not what links to it", "[export]") {
  const Folder folder;
  GraphWriter b;
  const ValueId w = b.weight("w", {4, 4});
  b.graph.value(w).data = ExternalData{"w.bin", 0, 64};
  // As hubs of models keep them; a link to that link would lead nowhere.
  REQUIRE(write_file_atomically(folder / "blobs/aa", std::string(64, 'w')).ok());
  std::filesystem::create_directories(folder / "model");
  std::filesystem::create_symlink("../blobs/aa", folder / "model/w.bin");
  UnfinishedFiles files;
  // Twice, as where several programs refer to it: it is there once.
  for (int time = 0; time < 2; ++time) {
    const auto placed =
        place_external_data(b.graph, folder / "model", folder / "a/b/out", 0, files);
    REQUIRE(placed.ok());
    CHECK(placed->size() <= 1);  // no warning where the file system has clones
  }
  CHECK_FALSE(std::filesystem::exists(folder / "a/b/out/w.bin"));
  REQUIRE(files.keep().ok());
  CHECK(std::filesystem::symlink_status(folder / "a/b/out/w.bin").type() ==
        std::filesystem::file_type::regular);
  CHECK(read_file(folder / "a/b/out/w.bin").value() == std::string(64, 'w'));
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "a/b/out"), {}) == 1);
}

TEST_CASE("files that are no plans are refused", "[export]") {
  const Folder folder;
  CHECK(!read_plan(folder / "missing.onnx").ok());
  REQUIRE(write_file_atomically(folder / "junk.onnx", "not an onnx file").ok());
  CHECK(!read_plan(folder / "junk.onnx").ok());
  REQUIRE(write_graph_onnx(two_matmuls(), folder / "model.onnx").ok());
  const auto model = read_plan(folder / "model.onnx");
  REQUIRE(!model.ok());
  CHECK(model.error().message.find("not a plan") != std::string::npos);

  const Graph graph = mixed_graph();
  const Cluster cluster = cluster_of({2, 2});
  Random random(4);
  const Plan plan = plan_of(graph, cluster, make_mesh(cluster, {2, 2}).value(), random);
  REQUIRE(write_plan(plan, kMetadata, folder / "plan.onnx").ok());
  const std::string good = read_file(folder / "plan.onnx").value();
  const auto refused = [&](auto change) {
    onnx::ModelProto proto;
    REQUIRE(proto.ParseFromString(good));
    change(proto);
    REQUIRE(write_file_atomically(folder / "bad.onnx", proto.SerializeAsString()).ok());
    const auto read = read_plan(folder / "bad.onnx");
    INFO((read.ok() ? "accepted" : read.error().message));
    CHECK(!read.ok());
    CHECK((read.ok() || read.error().message.find("bad.onnx") != std::string::npos));
  };
  const auto set = [](onnx::ModelProto& proto, const std::string& key, const std::string& value) {
    for (auto& entry : *proto.mutable_metadata_props()) {
      if (entry.key() == key) entry.set_value(value);
    }
  };
  refused([&](onnx::ModelProto& p) { set(p, "autopar.mesh", "[]"); });
  refused([&](onnx::ModelProto& p) { set(p, "autopar.mesh", "{"); });
  refused([&](onnx::ModelProto& p) { set(p, "autopar.io", "{}"); });
  refused([&](onnx::ModelProto& p) { set(p, "autopar.io", "[1]"); });
  refused([&](onnx::ModelProto& p) { set(p, "autopar.world_size", "5"); });
  for (const char* version : {"0.9.0", "1.0.0", "0.", "0.1x", "", "new"}) {
    refused([&](onnx::ModelProto& p) { set(p, "autopar.version", version); });
  }
  refused([](onnx::ModelProto& p) {
    for (auto& import : *p.mutable_opset_import()) {
      if (import.domain() == "ai.autopar") import.set_version(2);
    }
  });
  refused([](onnx::ModelProto& p) { p.mutable_graph()->clear_value_info(); });
  refused([](onnx::ModelProto& p) { p.mutable_graph()->mutable_node()->RemoveLast(); });
  refused([](onnx::ModelProto& p) { p.mutable_graph()->mutable_node(0)->set_input(0, "nowhere"); });
  // Cut off anywhere it is an error, never a crash.
  for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 97) {
    REQUIRE(write_file_atomically(folder / "cut.onnx", good.substr(0, size)).ok());
    CHECK(!read_plan(folder / "cut.onnx").ok());
  }
}

TEST_CASE("equal lists of ranks are read once", "[export]") {
  const Graph graph = mixed_graph();
  const Cluster cluster = cluster_of({4, 2});
  const Folder folder;
  Random random(2);
  std::size_t lists = 0, distinct = 0;
  for (int i = 0; i < 10; ++i) {
    const Plan made = plan_of(graph, cluster, make_mesh(cluster, {2, 4}).value(), random);
    REQUIRE(write_plan(made, kMetadata, folder / "plan.onnx").ok());
    const Plan plan = read_plan(folder / "plan.onnx").value().plan;
    const std::vector<ProgramCollective> collectives = collectives_of(plan).value();
    std::map<std::vector<std::int64_t>, const void*> storage;
    for (const ProgramCollective& c : collectives) {
      CHECK(c.groups.values().size() == 8);
      const void* elements = &c.groups.values();
      CHECK(storage.try_emplace(c.groups, elements).first->second == elements);
    }
    lists += collectives.size();
    distinct += storage.size();
  }
  CHECK(lists > distinct);
}

TEST_CASE("what an ONNX file cannot hold is refused", "[export]") {
  // 600 collectives that list 2^20 ranks each.
  const std::int64_t ranks = std::int64_t{1} << 20;
  std::vector<std::int64_t> all;
  for (std::int64_t rank = 0; rank < ranks; ++rank) all.push_back(rank);
  const IntList groups(all);
  GraphWriter b;
  ValueId x = b.input("x", {4});
  for (int i = 0; i < 600; ++i) {
    x = b.op("AllReduce", {x}, {4},
             {{"groups", groups},
              {"group_size", ranks},
              {"mesh_axes", std::vector<std::string>{"ib"}},
              {"reduce_op", std::string("sum")},
              {"seq", std::int64_t{i}}});
    b.graph.ops.back().domain = "ai.autopar";
  }
  b.graph.outputs = {x};
  const Folder folder;
  const Status written = write_graph_onnx(b.graph, folder / "large.onnx");
  REQUIRE(!written.ok());
  INFO(written.error().message);
  CHECK(written.error().message.find("less than 2147483648") != std::string::npos);
  CHECK(written.error().message.find("fewer devices") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "large.onnx"));

  REQUIRE(write_file_atomically(folder / "sparse.onnx", "\x08\x0a").ok());
  std::filesystem::resize_file(folder / "sparse.onnx", std::uintmax_t{1} << 31);
  const Result<PlanFile> read = read_plan(folder / "sparse.onnx");
  REQUIRE(!read.ok());
  CHECK(read.error().message.find("less than 2147483648") != std::string::npos);
}

}  // namespace autopar::export_test
