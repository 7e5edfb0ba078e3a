// Random strategies for small graphs, executed on their ranks and compared with the unsharded
// model.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "autopar/exec.hpp"
#include "autopar/export.hpp"
#include "autopar/import.hpp"
#include "folder.hpp"
#include "strategies.hpp"

namespace autopar::partition_run_test {

using namespace testing;

namespace {

// What only some graphs have: scalars, several outputs, an output that is also read, a value read
// twice by one op, constants that leave, integers, merged and split dimensions.
Graph odd_graph() {
  GraphWriter b;
  const ValueId x = b.input("x", {12, 4, 12});
  const ValueId w = b.weight("w", {12, 24});
  const ValueId bias = b.parameter("bias", {24});
  const ValueId k = b.constant("k", {4, 24});
  const ValueId unit = b.constant("unit", {});
  const ValueId ids = b.input("ids", {12}, DType::kInt64);
  const ValueId table = b.weight("table", {8, 24});

  const ValueId h = b.op("MatMul", {x, w}, {12, 4, 24}, {}, "fc");
  const ValueId a = b.op("Add", {h, bias}, {12, 4, 24}, {}, "add");
  const ValueId d = b.op("Mul", {a, a}, {12, 4, 24});
  const ValueId c = b.op("Add", {k, d}, {12, 4, 24});
  const ValueId r = b.op("Reshape", {c, b.ints("heads", {12, 4, 6, 4})}, {12, 4, 6, 4});
  const ValueId t =
      b.op("Transpose", {r}, {12, 6, 4, 4}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  const ValueId s = b.op("Softmax", {t}, {12, 6, 4, 4}, {{"axis", std::int64_t{3}}});
  const ValueId m = b.op("Reshape", {s, b.ints("merged", {12, 96})}, {12, 96});
  const ValueId g = b.op("Gather", {table, ids}, {12, 24}, {{"axis", std::int64_t{0}}});
  const ValueId e = b.op("Concat", {m, g}, {12, 120}, {{"axis", std::int64_t{1}}});
  const ValueId sum = b.op("ReduceSum", {e}, {}, {{"keepdims", std::int64_t{0}}}, "sum");
  const ValueId loss = b.op("Mul", {unit, sum}, {});
  b.graph.outputs = {loss, a, k, w, s};
  b.graph.name = "odd";
  return b.graph;
}

struct Subject {
  std::string path;  // of the unsharded model
  Graph graph;
};

using Weights = std::map<std::string, Tensor>;

Weights stored_weights(const Plan& plan) {
  Weights weights;
  for (const Value& value : plan.program.values) {
    if (const auto* tensor = std::get_if<Tensor>(&value.data)) weights[value.name] = *tensor;
  }
  return weights;
}

void run_random_plans(const Subject& subject, int seeds) {
  const GraphRules rules = rules_of(subject.graph).value();
  const Folder folder;
  for (const auto& sizes :
       std::vector<std::vector<std::int64_t>>{{1}, {2}, {2, 2}, {2, 3}, {2, 2, 2}}) {
    const Cluster cluster = cluster_of({sizes.rbegin(), sizes.rend()});
    const Mesh mesh = make_mesh(cluster, sizes).value();
    for (int seed = 0; seed < seeds; ++seed) {
      Random random(static_cast<std::uint64_t>(seed));
      const Strategy strategy = random_strategy(subject.graph, rules, mesh, random);
      INFO(subject.path << " mesh " << to_text(mesh) << " seed " << seed);
      const Result<Plan> plan = partition(subject.graph, rules, strategy, cluster);
      INFO((plan.ok() ? "" : plan.error().message));
      REQUIRE(plan.ok());
      const std::string path = folder / "plan.onnx";
      const auto written = write_plan(*plan, {"", "", "", {}}, path,
                                      std::filesystem::path(subject.path).parent_path().string());
      INFO((written.ok() ? "" : written.error().message));
      REQUIRE(written.ok());
      const auto report =
          run_threads({.programs = {{.path = path,
                                     .mesh = mesh,
                                     .inputs = plan->inputs,
                                     .outputs = plan->outputs,
                                     .weights = seed % 2 == 0 ? stored_weights(*plan) : Weights{}}},
                       .model_path = subject.path,
                       .seed = static_cast<std::uint64_t>(seed),
                       .threads = 1});
      INFO((report.ok() ? "" : report.error().message));
      REQUIRE(report.ok());
      CHECK(report->outputs.size() == subject.graph.outputs.size());
      for (const OutputComparison& output : report->outputs) {
        INFO(output.name << ": " << output.max_absolute_error << " " << output.problem);
        CHECK(output.matches);
      }
      CHECK(report->passed);
    }
  }
}

}  // namespace

TEST_CASE("random strategies compute what the model computes", "[partition]") {
  const Folder folder;
  Subject subject{folder / "model.onnx", odd_graph()};
  const Status written = write_graph_onnx(subject.graph, subject.path);
  INFO((written.ok() ? "" : written.error().message));
  REQUIRE(written.ok());
  run_random_plans(subject, 12);
}

TEST_CASE("random strategies of tensors without elements", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {16, 24});
  const ValueId none = b.weight("none", {16, 0});
  const ValueId less = b.weight("less", {0, 48});
  const ValueId joined = b.op("Concat", {x, none}, {16, 24}, {{"axis", std::int64_t{1}}}, "joined");
  const ValueId y = b.op("MatMul", {joined, b.weight("w", {24, 48})}, {16, 48}, {}, "fc");
  const ValueId zeros = b.op("MatMul", {none, less}, {16, 48}, {}, "nothing");
  b.graph.outputs = {b.op("Add", {y, zeros}, {16, 48}, {}, "sum"), none};
  b.graph.name = "empty";
  const Folder folder;
  const Subject subject{folder / "model.onnx", b.graph};
  REQUIRE(write_graph_onnx(subject.graph, subject.path).ok());
  run_random_plans(subject, 8);
}

TEST_CASE("random strategies of real models compute what the models compute", "[partition]") {
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::string models = std::string(shared == nullptr ? "" : shared) + "/data/models/";
  for (const char* name : {"tiny_llama", "tiny_dlrm", "tiny_resnet", "train_mlp_adam"}) {
    const std::string path = models + name + ".onnx";
    if (!std::filesystem::exists(path)) {
      WARN("skipped, set AUTOPAR_SHARED: " << path << " does not exist");
      continue;
    }
    Result<ImportedModel> model = import_model(path);
    INFO((model.ok() ? "" : model.error().message));
    REQUIRE(model.ok());
    run_random_plans({path, std::move(model->graph)}, 1);
  }
}

TEST_CASE("weights that are given are those of all ranks", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("X", {4, 6});
  b.graph.outputs = {b.op("MatMul", {x, b.weight("W", {6, 8})}, {4, 8}, {}, "fc")};
  const Folder folder;
  REQUIRE(write_graph_onnx(b.graph, folder / "model.onnx").ok());
  const Cluster cluster = cluster_of({2});
  const Mesh mesh = make_mesh(cluster, {2}).value();
  const GraphRules rules = rules_of(b.graph).value();
  const Plan plan =
      partition(b.graph, rules, named_strategy(b.graph, rules, mesh, {{"n"}}), cluster).value();
  REQUIRE(write_plan(plan, {"0.1.0", "", "", {}}, folder / "plan.onnx").ok());
  RunRequest request;
  request.model_path = folder / "model.onnx";
  request.programs = {
      {.path = folder / "plan.onnx", .mesh = mesh, .inputs = plan.inputs, .outputs = plan.outputs}};
  request.programs[0].weights = stored_weights(plan);
  REQUIRE(request.programs[0].weights.count("W") == 1);
  CHECK(run_threads(request).value().passed);
  // Others than those of the file: they are what the ranks compute with.
  request.programs[0].weights["W"].bytes.assign(request.programs[0].weights["W"].bytes.size(), 0);
  CHECK(!run_threads(request).value().passed);
}

}  // namespace autopar::partition_run_test
