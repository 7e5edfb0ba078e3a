// Plans written by hand, run on ranks that are threads and compared with the unsharded model.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "autopar/npz.hpp"
#include "exec/generate.hpp"
#include "exec/library.hpp"
#include "plans_by_hand.hpp"

namespace autopar::exec_run_test {

using namespace testing::plans_by_hand;
using testing::mesh_of;

namespace {

// Makes the seeded inputs explicit, to hand them to the other executor too.
void give_inputs(RunRequest& request) {
  for (const BoundaryValue& v : request.programs[0].inputs) {
    request.data[v.name] = generate(v.name, v.dtype, v.shape, request.seed);
  }
  request.keep_outputs = true;
}

// The same plan in the independent executor, with our whole outputs as the expected ones. True
// where it is not there: then there is nothing to disagree.
bool independent_executor_agrees(const Case& c, const RunReport& report) {
  const char* shared = std::getenv("AUTOPAR_SHARED");
  const std::string script =
      (fs::path(shared != nullptr && *shared != '\0' ? std::string(shared)
                                                     : std::string(AUTOPAR_SOURCE) + "/../shared") /
       "tools/spmd_check.py")
          .string();
  if (!fs::exists(script)) {
    WARN("skipped: comparison with the independent executor (no " << script << ")");
    return true;
  }
  std::map<std::string, Tensor> arrays;
  for (const auto& [name, tensor] : c.request.data) arrays["in." + name] = tensor;
  for (const auto& [name, tensor] : report.values) arrays["out." + name] = tensor;
  REQUIRE(write_npz(c.folder.file("io.npz"), arrays));
  const char* python = std::getenv("AUTOPAR_PYTHON");
  const std::string command =
      "'" + (python != nullptr ? python : std::string(AUTOPAR_SOURCE) + "/.deps/venv/bin/python") +
      "' '" + script + "' '" + c.program().path + "' " + std::to_string(c.program().mesh.size()) +
      " --rtol 1e-5 --atol 1e-6 --data '" + c.folder.file("io.npz") + "' > '" +
      c.folder.file("log") + "' 2>&1";
  if (std::system(command.c_str()) == 0) return true;
  std::ifstream log(c.folder.file("log"));
  UNSCOPED_INFO(std::string(std::istreambuf_iterator<char>(log), {}));
  return false;
}

TEST_CASE("run: a row- and column-split MLP on several meshes", "[exec]") {
  REQUIRE(onnx_runtime_version());
  for (const auto& [a, b] : std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {2, 3}, {3, 4}}) {
    Case c = mlp(a, b);
    give_inputs(c.request);
    const auto report = run_threads(c.request);
    CAPTURE(a, b);
    check_passed(report);
    CHECK(report->ranks == a * b);
    CHECK(only(*report).against == "model");
    CHECK(only(*report).max_absolute_error < 1e-5);
    CHECK(only(*report).nan_elements == 0);
    REQUIRE(timed(*report, "AllReduce") != nullptr);
    CHECK(timed(*report, "AllReduce")->collective);
    CHECK(timed(*report, "AllReduce")->count == 1);
    // Ring: 2 (n-1)/n of the 12/a x 6 floats.
    CHECK(std::abs(timed(*report, "AllReduce")->bytes - 2.0 * (b - 1) / b * (12 / a * 6 * 4)) <
          1e-9);
    REQUIRE(timed(*report, "MatMul") != nullptr);
    CHECK(timed(*report, "MatMul")->count == 2);
    CHECK(!timed(*report, "MatMul")->collective);
    CHECK(report->warnings.empty());
    CHECK(independent_executor_agrees(c, *report));
  }
}

struct LayoutChange {
  const char* op;
  std::vector<std::int64_t> mesh;
  Shape shape;
  const char* from;
  const char* to;
  const char* groups;
  std::int64_t group_size;
  const char* attributes;
};

TEST_CASE("run: collectives that change the layout keep the values", "[exec]") {
  const LayoutChange changes[] = {
      {"AllGather", {3}, {6, 4}, "[{a},{}]", "[{},{}]", "0,1,2", 3, "axis: int = 0"},
      {"AllGather", {2, 3}, {6, 4}, "[{b},{a}]", "[{},{a}]", "0,1,2,3,4,5", 3, "axis: int = 0"},
      {"AllGather", {2, 3}, {6, 4}, "[{b},{a}]", "[{b},{}]", "0,3,1,4,2,5", 2, "axis: int = -1"},
      {"AllGather", {2, 3}, {12}, "[{b,a}]", "[{b}]", "0,3,1,4,2,5", 2, "axis: int = 0"},
      {"AllGather", {2, 3}, {12}, "[{b,a}]", "[{}]", "0,3,1,4,2,5", 6, "axis: int = 0"},
      {"ShardSlice", {2, 3}, {6, 4}, "[{},{a}]", "[{b},{a}]", "0,1,2,3,4,5", 3, "axis: int = 0"},
      {"ShardSlice", {2, 3}, {6, 4}, "[{b},{}]", "[{b},{a}]", "0,3,1,4,2,5", 2, "axis: int = 1"},
      {"AllToAll",
       {2, 3},
       {3, 5, 6, 2},
       "[{b},{},{},{a}]",
       "[{},{},{b},{a}]",
       "0,1,2,3,4,5",
       3,
       "split_axis: int = 2, concat_axis: int = 0"},
      {"AllToAll",
       {2, 3},
       {4, 3, 2, 6},
       "[{},{b},{},{a}]",
       "[{a},{b},{},{}]",
       "0,3,1,4,2,5",
       2,
       "split_axis: int = 0, concat_axis: int = 3"},
      {"Broadcast", {2, 2}, {4, 2}, "[{a},{}]", "[{a},{}]", "0,1,2,3", 2, "root: int = 1"},
  };
  for (const LayoutChange& change : changes) {
    const Mesh mesh = mesh_of(change.mesh);
    const Shape in = local_shape(*parse_spec(change.from, mesh), change.shape, mesh);
    const Shape out = local_shape(*parse_spec(change.to, mesh), change.shape, mesh);
    for (const char* type : {"float", "bool", "int64"}) {
      const DType dtype = *type == 'f'   ? DType::kFloat32
                          : *type == 'b' ? DType::kBool
                                         : DType::kInt64;
      Case c(change.mesh, {{"X", dtype, change.shape, change.from}},
             {{"Y", dtype, change.shape, change.to}},
             one_collective(change.op, type, in, out, change.groups, change.group_size,
                            change.attributes),
             identity(type, change.shape));
      give_inputs(c.request);
      const auto report = run_threads(c.request);
      CAPTURE(change.op, change.from, change.to, type);
      check_passed(report);
      CHECK(only(*report).max_absolute_error == 0);
      CHECK(report->values.at("Y") == c.request.data.at("X"));
      if (dtype == DType::kFloat32) CHECK(independent_executor_agrees(c, *report));
    }
  }
}

TEST_CASE("run: reductions against the model's own", "[exec]") {
  // Local [1,6] slices of X; the reduction over the ranks is the one over dimension 0.
  const std::pair<const char*, const char*> ops[] = {{"sum", "ReduceSum"},
                                                     {"max", "ReduceMax"},
                                                     {"min", "ReduceMin"},
                                                     {"prod", "ReduceProd"},
                                                     {"avg", "ReduceMean"}};
  for (const auto& [reduce_op, onnx_op] : ops) {
    const std::string attribute = std::string("reduce_op: string = \"") + reduce_op + "\"";
    const std::string model =
        "g (float[3,6] X) => (float[1,6] Y) {\n  d = Constant <value_ints = [0]> ()\n  Y = " +
        std::string(onnx_op) + " <keepdims: int = 1>(X, d)\n}";
    for (const bool scatter : {false, true}) {
      Case c({3}, {{"X", DType::kFloat32, {3, 6}, "[{a},{}]"}},
             {{"Y", DType::kFloat32, {1, 6}, scatter ? "[{},{a}]" : "[{},{}]"}},
             one_collective(scatter ? "ReduceScatter" : "AllReduce", "float", {1, 6},
                            scatter ? Shape{1, 2} : Shape{1, 6}, "0,1,2", 3,
                            attribute + (scatter ? ", axis: int = 1" : "")),
             model);
      give_inputs(c.request);
      const auto report = run_threads(c.request);
      CAPTURE(reduce_op, scatter);
      check_passed(report);
      CHECK(only(*report).max_absolute_error < 1e-6);
      CHECK(independent_executor_agrees(c, *report));
    }
  }
}

TEST_CASE("run: every dtype passes through the ops", "[exec]") {
  const std::pair<const char*, DType> types[] = {
      {"float", DType::kFloat32},  {"float16", DType::kFloat16}, {"bfloat16", DType::kBFloat16},
      {"double", DType::kFloat64}, {"int8", DType::kInt8},       {"uint8", DType::kUInt8},
      {"int16", DType::kInt16},    {"uint16", DType::kUInt16},   {"int32", DType::kInt32},
      {"uint32", DType::kUInt32},  {"int64", DType::kInt64},     {"uint64", DType::kUInt64},
      {"bool", DType::kBool}};
  for (const auto& [type, dtype] : types) {
    // Seeded values of 0 and 1 (floats: normal); row 1 is larger than row 0 nowhere by design, so
    // the expected maximum is computed from the bytes of the two rows where it is plain: equal
    // rows.
    const Tensor row = generate("row", dtype, {1, 5}, 3);
    Tensor both{dtype, {2, 5}, row.bytes + row.bytes};
    for (const std::string op : {"AllReduce", "AllGather"}) {
      const bool gather = op == "AllGather";
      Case c({2}, {{"X", dtype, {2, 5}, "[{a},{}]"}},
             {{"Y", dtype, {gather ? 2 : 1, 5}, "[{},{}]"}},
             one_collective(op, type, {1, 5}, {gather ? 2 : 1, 5}, "0,1", 2,
                            gather ? "axis: int = 0" : "reduce_op: string = \"max\""));
      c.request.data["X"] = both;
      c.request.expected["Y"] = gather ? both : row;
      c.request.keep_outputs = true;
      const auto report = run_threads(c.request);
      CAPTURE(type, op);
      check_passed(report);
      CHECK(only(*report).against == "data");
      CHECK((report->values.at("Y") == c.request.expected["Y"]));
    }
  }
}

TEST_CASE("run: further inputs of a collective only order it", "[exec]") {
  Case c({2}, {{"X", DType::kFloat32, {2, 4}, "[{a},{}]"}, {"I", DType::kInt64, {3}, "[{}]"}},
         {{"Y", DType::kFloat32, {2, 4}, "[{},{}]"}, {"S", DType::kFloat32, {1, 4}, "[{},{}]"}},
         "g (float[1,4] X, int64[3] I) => (float[2,4] Y, float[1,4] S) {\n"
         "  J = ai.autopar.AllReduce <groups: ints = [0,1], group_size: int = 2, seq: int = 0, "
         "reduce_op: string = \"max\">(I)\n"
         "  S = ai.autopar.AllReduce <groups: ints = [0,1], group_size: int = 2, seq: int = 1, "
         "reduce_op: string = \"sum\">(X, J)\n"
         "  Y = ai.autopar.AllGather <groups: ints = [0,1], group_size: int = 2, seq: int = 2, "
         "axis: int = 0>(X, S, J)\n}",
         "g (float[2,4] X, int64[3] I) => (float[2,4] Y, float[1,4] S) {\n"
         "  d = Constant <value_ints = [0]> ()\n  S = ReduceSum(X, d)\n  Y = Identity(X)\n}");
  const auto report = run_threads(c.request);
  check_passed(report);
  CHECK(report->warnings.empty());
  CHECK(timed(*report, "AllReduce")->count == 2);
}

TEST_CASE("run: statistics that ONNX Runtime writes over its inputs stay with their rank",
          "[exec]") {
  const std::string body =
      "g (float[2,3,4,4] X, float[3] M, float[3] V) => (float[3] N) {\n"
      "  s = Constant <value_floats = [1.0, 2.0, 3.0]> ()\n"
      "  Y, m, v = BatchNormalization <training_mode: int = 1>(X, s, s, M, V)\n  N = Neg(m)\n}";
  Case c({3},
         {{"X", DType::kFloat32, {2, 3, 4, 4}, "[{},{},{},{}]"},
          {"M", DType::kFloat32, {3}, "[{}]"},
          {"V", DType::kFloat32, {3}, "[{}]"}},
         {{"N", DType::kFloat32, {3}, "[{}]"}}, body, body);
  give_inputs(c.request);
  const auto report = run_threads(c.request);
  check_passed(report);
  CHECK(independent_executor_agrees(c, *report));
}

TEST_CASE("run: collectives on constants are neither folded nor merged", "[exec]") {
  Case c(
      {2}, {{"X", DType::kFloat32, {2, 4}, "[{a},{}]"}},
      {{"Y", DType::kFloat32, {2, 4}, "[{a},{}]"}},
      "g (float[1,4] X) => (float[1,4] Y)\n"
      "<float[1,4] W = {1,2,3,4}>\n{\n"
      "  s = ai.autopar.ShardSlice <groups: ints = [0,1], group_size: int = 2, axis: int = 1>(W)\n"
      "  a = ai.autopar.AllGather <groups: ints = [0,1], group_size: int = 2, seq: int = 0, "
      "axis: int = 1>(s)\n"
      "  t = ai.autopar.ShardSlice <groups: ints = [0,1], group_size: int = 2, axis: int = 1>(W)\n"
      "  b = ai.autopar.AllGather <groups: ints = [0,1], group_size: int = 2, seq: int = 0, "
      "axis: int = 1>(s)\n"
      "  dead = ai.autopar.AllReduce <groups: ints = [0,1], group_size: int = 2, seq: int = 2, "
      "reduce_op: string = \"sum\">(t)\n"
      "  Xa = Add(X, a)\n  Y = Add(Xa, b)\n}",
      "g (float[2,4] X) => (float[2,4] Y)\n<float[1,4] W = {2,4,6,8}>\n{ Y = Add(X, W) }");
  for (const bool optimize : {false, true}) {
    c.request.optimize = optimize;
    const auto report = run_threads(c.request);
    check_passed(report);
    CHECK(timed(*report, "ShardSlice")->count == 2);
    CHECK(timed(*report, "AllGather")->count == 2);
    REQUIRE(timed(*report, "AllReduce") != nullptr);  // nobody reads its output
    REQUIRE(report->warnings.size() == 1);            // two collectives have the seq 0
    CHECK(report->warnings[0].find("does not chain") != std::string::npos);
  }
}

TEST_CASE("run: the model may have symbolic dimensions and other inputs' order", "[exec]") {
  Case c = mlp(2, 2);
  save(c.request.model_path,
       "g (float[K,O] V, float[B,8] X, float[8,K] W) => (float[B,O] Z, float[B,K] extra) {\n"
       "  h = MatMul(X, W)\n  extra = Relu(h)\n  Z = MatMul(extra, V)\n}");
  check_passed(run_threads(c.request));
}

TEST_CASE("run: the same bits at every run and with every number of threads", "[exec]") {
  Case c = mlp(1, 6);
  c.request.keep_outputs = true;
  const auto first = run_threads(c.request);
  check_passed(first);
  for (int run = 0; run < 6; ++run) {
    c.request.threads = 1 + run % 3;
    const auto again = run_threads(c.request);
    check_passed(again);
    CHECK((again->values == first->values));
  }
  c.request.seed = 1;
  CHECK((run_threads(c.request)->values != first->values));
}

TEST_CASE("run: 64 ranks", "[exec]") {
  const Mesh mesh = mesh_of({64});
  std::string groups = "0";
  for (int r = 1; r < 64; ++r) groups += "," + std::to_string(r);
  Case c(
      {64}, {{"X", DType::kFloat32, {64, 64}, "[{a},{}]"}},
      {{"Y", DType::kFloat32, {64, 64}, "[{},{a}]"}},
      "g (float[1,64] X) => (float[64,1] Y) {\n  r = Relu(X)\n"
      "  s = ai.autopar.AllToAll <groups: ints = [" +
          groups +
          "], group_size: int = 64, seq: int = 0, split_axis: int = 1, concat_axis: int = 0>(r)\n"
          "  m = ai.autopar.AllReduce <groups: ints = [" +
          groups +
          "], group_size: int = 64, seq: int = 1, reduce_op: string = \"sum\">(s)\n"
          "  t = Relu(s)\n  z = Sub(m, m)\n  Y = Add(t, z)\n}",
      "g (float[64,64] X) => (float[64,64] Y) { Y = Relu(X) }");
  const auto report = run_threads(c.request);
  check_passed(report);
  CHECK(report->ranks == 64);
}

}  // namespace
}  // namespace autopar::exec_run_test
