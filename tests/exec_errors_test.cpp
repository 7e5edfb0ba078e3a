// Runs of plans written by hand that end badly: ranks that fail, plans and requests that do not
// fit, results that do not agree, no library.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>

#include "exec/generate.hpp"
#include "exec/library.hpp"
#include "plans_by_hand.hpp"

namespace autopar::exec_errors_test {

using namespace testing::plans_by_hand;

namespace {

TEST_CASE("run: a rank that fails names itself and the op, the others stop", "[exec]") {
  Case c({4}, {{"T", DType::kFloat32, {3, 2}, "[{},{}]"}, {"I", DType::kInt64, {4}, "[{a}]"}},
         {{"Y", DType::kFloat32, {1, 2}, "[{},{}]"}},
         "g (float[3,2] T, int64[1] I) => (float[1,2] Y) {\n"
         "  [lookup] e = Gather <axis: int = 0>(T, I)\n"
         "  [total] Y = ai.autopar.AllReduce <groups: ints = [0,1,2,3], group_size: int = 4, seq: "
         "int = 0, reduce_op: string = \"sum\">(e)\n}");
  c.request.data["I"] = int64_tensor({4}, {0, 1, 7, 2});
  c.request.expected["Y"] = generate("Y", DType::kFloat32, {1, 2}, 0);
  const auto begin = std::chrono::steady_clock::now();
  check_failed(run_threads(c.request), ErrorCode::kRuntime, {"rank 2 failed", "Gather", "lookup"});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

TEST_CASE("run: ranks with different programs are told apart", "[exec]") {
  const std::string reduce =
      "ai.autopar.AllReduce <groups: ints = [0,1], group_size: int = 2, seq: int = 0, reduce_op: "
      "string = \"sum\">";
  const auto plan = [&](const std::string& otherwise) {
    return "g (bool[1] C, float[4] X) => (float[4] Y) {\n  d = Constant <value_ints = [0]> ()\n"
           "  c = Squeeze(C, d)\n"
           "  Y = If (c) <then_branch = t () => (float[4] u) { [yes] u = " +
           reduce + "(X) }, else_branch = e () => (float[4] v) { [no] v = " + otherwise +
           "(X) }>\n}";
  };
  const auto run = [&](const std::string& otherwise) {
    Case c({2}, {{"C", DType::kBool, {2}, "[{a}]"}, {"X", DType::kFloat32, {4}, "[{}]"}},
           {{"Y", DType::kFloat32, {4}, "[{}]"}}, plan(otherwise));
    c.request.data["C"] = Tensor{DType::kBool, {2}, std::string("\1\0", 2)};
    c.request.expected["Y"] = generate("Y", DType::kFloat32, {4}, 0);
    return run_threads(c.request);
  };
  check_failed(run("Identity"), ErrorCode::kRuntime,
               {"AllReduce 'yes'", "rank 0 waits for rank 1", "rank 1 has finished"});
  check_failed(run(reduce), ErrorCode::kRuntime,
               {"AllReduce 'yes'", "AllReduce 'no'", "rank 0", "rank 1", "same order"});
}

TEST_CASE("run: plans that do not fit are refused", "[exec]") {
  const auto run = [](const std::string& op, const std::string& groups, int size,
                      const std::string& attributes, const std::string& spec = "[{a},{}]") {
    Case c({4}, {{"X", DType::kFloat32, {4, 3}, spec}},
           {{"Y", DType::kFloat32, {4, 3}, "[{a},{}]"}},
           one_collective(op, "float", {1, 3}, {1, 3}, groups, size, attributes),
           identity("float", {4, 3}));
    return run_threads(c.request);
  };
  const std::string sum = "reduce_op: string = \"sum\"";
  const auto input = ErrorCode::kInput;
  check_failed(run("AllReduce", "0,1,1,2", 2, sum), input,
               {"plan.onnx", "AllReduce 'c'", "groups"});
  check_failed(run("AllReduce", "0,1", 2, sum), input, {"AllReduce 'c'", "exactly once"});
  check_failed(run("AllReduce", "0,1,2,3", 3, sum), input, {"AllReduce 'c'", "group_size 3"});
  check_failed(run("AllReduce", "0,1,2,3", 2, "reduce_op: string = \"xor\""), input, {"'xor'"});
  check_failed(run("Broadcast", "0,1,2,3", 2, "root: int = 2"), input, {"root 2"});
  check_failed(run("AllGather", "0,1,2,3", 2, "axis: int = 4"), input, {"axis 4"});
  check_failed(run("ReduceScatter", "0,1,2,3", 2, sum + ", axis: int = 1"), input,
               {"not divisible by the group size 2"});
  check_failed(run("AllReduce", "0,1,2,3", 2, sum, "[{},{}]"), input, {"input 'X'", "[1,3]"});
  check_failed(run("AllReduce", "0,1,2,3", 2, sum, "[{},{a}]"), input, {"'X'", "3"});
}

TEST_CASE("run: requests that do not fit are refused", "[exec]") {
  const auto changed = [](const std::function<void(Case&)>& change) {
    Case c = mlp(1, 2);
    change(c);
    return run_threads(c.request);
  };
  const auto input = ErrorCode::kInput;
  check_failed(changed([](Case& c) { c.program().path += ".none"; }), input, {"plan.onnx.none"});
  check_failed(changed([](Case& c) { c.request.model_path += ".none"; }), input,
               {"model.onnx.none"});
  check_failed(changed([](Case& c) { std::ofstream(c.program().path) << "junk"; }), input,
               {"plan.onnx"});
  check_failed(changed([](Case& c) { std::ofstream(c.request.model_path) << "junk"; }), input,
               {"model.onnx"});
  check_failed(changed([](Case& c) { c.program().inputs.pop_back(); }), input, {"V"});
  check_failed(changed([](Case& c) { c.program().outputs[0].name = "Q"; }), input, {"'Q'"});
  check_failed(changed([](Case& c) { c.program().outputs[0].spec.partial = {1}; }), input, {"'Z'"});
  check_failed(changed([](Case& c) { c.request.data["X"] = int64_tensor({1}, {1}); }), input,
               {"input 'X'", "float32[12,8]", "int64[1]"});
  check_failed(changed([](Case& c) {
                 save(c.request.model_path,
                      "g (float[2] other) => (float[2] Z) { Z = Relu(other) }");
               }),
               input, {"'other'", "model.onnx"});
}

TEST_CASE("run: what does not agree is reported, not an error", "[exec]") {
  Case c = mlp(2, 2);
  c.request.keep_outputs = true;
  auto report = run_threads(c.request);
  check_passed(report);
  Tensor right = report->values.at("Z");
  c.request.expected["Z"] = right;
  report = run_threads(c.request);
  check_passed(report);
  CHECK(only(*report).against == "model and data");

  reinterpret_cast<float*>(c.request.expected["Z"].bytes.data())[40] += 1;  // row 6: ranks 2 and 3
  report = run_threads(c.request);
  REQUIRE(report);
  CHECK(!report->passed);
  CHECK(!only(*report).matches);
  CHECK(std::abs(only(*report).max_absolute_error - 1) < 1e-6);
  CHECK(only(*report).problem.find("rank 2 differs from the data in 1 elements; element 4") == 0);

  reinterpret_cast<float*>(c.request.expected["Z"].bytes.data())[40] = std::nanf("");
  CHECK(!run_threads(c.request)->passed);

  c.request.expected["Z"] = generate("Z", DType::kFloat32, {6, 12}, 0);
  report = run_threads(c.request);
  REQUIRE(report);
  CHECK(only(*report).problem.find("float32[6,12]") != std::string::npos);

  c.request.expected = {{"unknown", right}};
  c.request.model_path.clear();
  report = run_threads(c.request);
  REQUIRE(report);
  CHECK(!report->passed);
  CHECK(only(*report).problem.find("neither") != std::string::npos);
  REQUIRE(report->warnings.size() == 1);
  CHECK(report->warnings[0].find("'unknown'") != std::string::npos);
}

TEST_CASE("run: no library is a message that says what to do", "[exec]") {
  const auto none = open_first({"/no/such/libonnxruntime.so.1", "libc.so.6"});
  REQUIRE(!none);
  CHECK(none.error().message.find("OrtGetApiBase") != std::string::npos);
  const auto nothing = open_first({"/no/such/libonnxruntime.so.1"});
  REQUIRE(!nothing);
  CHECK(nothing.error().code == ErrorCode::kInput);
  CHECK(nothing.error().message.find("/no/such/libonnxruntime.so.1") != std::string::npos);
  CHECK(nothing.error().message.find("AUTOPAR_ORT") != std::string::npos);
  CHECK(nothing.error().message.find("scripts/setup") != std::string::npos);
}

}  // namespace
}  // namespace autopar::exec_errors_test
