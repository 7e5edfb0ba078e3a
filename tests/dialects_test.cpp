// Plans in the words of other runtimes: what becomes of single collectives, what is refused and
// why, which ranks share a file. That the files compute what the plan does: dialects_test.py.
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "autopar/export.hpp"
#include "autopar/files.hpp"
#include "folder.hpp"

namespace autopar::dialects_test {

using namespace testing;

namespace {

using Ints = std::vector<std::int64_t>;
const PlanMetadata kMetadata = {"0.1.0", "m-sha", "s-sha", {"t0", "t1"}};

// One collective on 2x2 ranks, of an input or of what `data` holds.
struct Case {
  std::string type;
  std::map<std::string, Attribute> attributes;
  Ints groups = {0, 1, 2, 3};
  std::int64_t group_size = 4;
  DType dtype = DType::kFloat32;
  Shape input = {8, 8};
  Shape output = {8, 8};
};

Plan plan_of(const Case& c) {
  Plan plan;
  plan.mesh.axes = {{"t1", 2, 1, 2}, {"t0", 2, 0, 1}};
  Graph& program = plan.program;
  program.name = "case";
  const ValueId x = program.add_value(
      {.name = "x", .dtype = c.dtype, .shape = c.input, .kind = ValueKind::kInput});
  const ValueId y = program.add_value({.name = "y", .dtype = c.dtype, .shape = c.output});
  Op op = {.name = "op", .type = c.type, .domain = "ai.autopar", .inputs = {x}, .outputs = {y}};
  op.attributes = c.attributes;
  op.attributes["groups"] = IntList(c.groups);
  op.attributes["group_size"] = c.group_size;
  op.attributes["seq"] = std::int64_t{0};
  program.add_op(op);
  program.inputs = {x};
  program.outputs = {y};
  plan.inputs = {{"x", c.dtype, c.input, replicated(c.input.size())}};
  plan.outputs = {{"y", c.dtype, c.output, replicated(c.output.size())}};
  return plan;
}

onnx::ModelProto parse(const std::string& path) {
  onnx::ModelProto model;
  REQUIRE(model.ParseFromString(read_file(path).value()));
  return model;
}

// The op types of rank 0's file, one after the other; or the error.
std::string said(const Case& c, Dialect dialect, const std::string& rank = ".rank0") {
  const Folder folder;
  const auto written = write_dialect(plan_of(c), kMetadata, dialect, folder / "");
  if (!written) {
    CHECK(written.error().code == ErrorCode::kInput);
    CHECK(std::filesystem::is_empty(folder / ""));
    return written.error().message;
  }
  const std::string stem = folder / (std::string("plan.") + name_of(dialect));
  const bool one = std::filesystem::exists(stem + ".onnx");
  const onnx::ModelProto model = parse(stem + (one ? "" : rank) + ".onnx");
  std::string text;
  for (const auto& node : model.graph().node()) {
    text += (text.empty() ? "" : " ") + node.op_type();
    if (node.op_type() != "DistCollective") continue;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == "collective_operation") text += ":" + attribute.s();
      if (attribute.name() == "root") text += "/" + std::to_string(attribute.i());
      if (attribute.name() != "groups") continue;
      text += "@";
      for (std::int64_t r : attribute.ints()) text += std::to_string(r);
    }
  }
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("collectives in TensorRT's words", "[dialects]") {
  const auto trt = [](const Case& c, const std::string& rank = ".rank0") {
    return said(c, Dialect::kTrt, rank);
  };
  const Attribute sum = std::string("sum"), zero = std::int64_t{0}, one = std::int64_t{1};
  CHECK(trt({"AllReduce", {{"reduce_op", sum}}}) == "DistCollective:all_reduce@0123/-1");
  CHECK(trt({"AllReduce", {{"reduce_op", sum}}, {0, 2, 1, 3}, 2}, ".rank1") ==
        "DistCollective:all_reduce@13/-1");
  CHECK(trt({.type = "AllGather", .attributes = {{"axis", zero}}, .output = {32, 8}}) ==
        "DistCollective:all_gather@0123/-1");
  CHECK(trt({.type = "AllGather", .attributes = {{"axis", one}}, .output = {8, 32}}) ==
        "Transpose DistCollective:all_gather@0123/-1 Transpose");
  // The group's order is kept, for it is that of the parts.
  CHECK(trt({.type = "AllGather",
             .attributes = {{"axis", zero}},
             .groups = {0, 2, 1, 3},
             .output = {32, 8}}) == "DistCollective:all_gather@0213/-1");
  CHECK(trt({.type = "AllToAll", .attributes = {{"split_axis", zero}, {"concat_axis", zero}}}) ==
        "DistCollective:all_to_all@0123/-1");
  CHECK(trt({.type = "AllToAll",
             .attributes = {{"split_axis", zero}, {"concat_axis", one}},
             .output = {2, 32}}) == "Reshape DistCollective:all_to_all@0123/-1 Transpose Reshape");
  CHECK(trt({.type = "AllToAll",
             .attributes = {{"split_axis", one}, {"concat_axis", zero}},
             .output = {32, 2}}) == "Reshape Transpose DistCollective:all_to_all@0123/-1 Reshape");
  CHECK(trt({"Broadcast", {{"root", one}}}) == "DistCollective:broadcast@0123/1");
  // What all ranks have alike is scattered, so that there is one file; else each has its Slice.
  CHECK(trt({.type = "ShardSlice", .attributes = {{"axis", zero}}, .output = {2, 8}}) ==
        "DistCollective:reduce_scatter@0123/-1");
  CHECK(trt({.type = "ShardSlice",
             .attributes = {{"axis", zero}},
             .groups = {0, 1, 2, 3},
             .group_size = 2,
             .output = {4, 8}},
            ".rank1") == "Slice");
  CHECK(trt({.type = "AllGather",
             .attributes = {{"axis", zero}},
             .dtype = DType::kBool,
             .output = {32, 8}}) == "Cast DistCollective:all_gather@0123/-1 Cast");
}

TEST_CASE("collectives in ONNX Runtime's words", "[dialects]") {
  const auto ort = [](const Case& c) { return said(c, Dialect::kOrt); };
  const Attribute sum = std::string("sum"), max = std::string("max"), zero = std::int64_t{0},
                  one = std::int64_t{1};
  CHECK(ort({"AllReduce", {{"reduce_op", sum}}}) == "AllReduce");
  CHECK(ort({"AllReduce", {{"reduce_op", sum}}, {0, 2, 1, 3}}) == "AllReduce");
  CHECK(ort({"AllReduce", {{"reduce_op", max}}}) == "Reshape AllGather ReduceMax");
  CHECK(ort({"AllReduce", {{"reduce_op", sum}}, {0, 1, 2, 3}, 4, DType::kInt32}) ==
        "Cast Reshape AllGather ReduceSum Cast");
  CHECK(ort({.type = "AllGather", .attributes = {{"axis", one}}, .output = {8, 32}}) ==
        "AllGather");
  CHECK(ort({.type = "ReduceScatter",
             .attributes = {{"axis", zero}, {"reduce_op", sum}},
             .output = {2, 8}}) == "Reshape AllToAll ReduceSum");
  CHECK(ort({.type = "AllToAll", .attributes = {{"split_axis", zero}, {"concat_axis", zero}}}) ==
        "AllToAll");
  CHECK(ort({.type = "ShardSlice", .attributes = {{"axis", zero}}, .output = {2, 8}}) == "Slice");
}

TEST_CASE("what a dialect cannot say is refused with the reason", "[dialects]") {
  const Attribute sum = std::string("sum"), zero = std::int64_t{0};
  const auto refused = [](const Case& c, Dialect dialect, const std::string& reason) {
    const std::string text = said(c, dialect);
    INFO(text);
    CHECK(has(text, "op 'op' (" + c.type + ")"));
    CHECK(has(text, reason));
    CHECK(has(text, "; try "));
  };
  const Case doubles = {"AllReduce", {{"reduce_op", sum}}, {0, 1, 2, 3}, 4, DType::kFloat64};
  refused(doubles, Dialect::kTrt, "TensorRT does not exchange float64");
  CHECK(said(doubles, Dialect::kOrt) == "AllReduce");
  const Case halves = {"AllReduce", {{"reduce_op", sum}}, {0, 1, 2, 3}, 4, DType::kBFloat16};
  refused(halves, Dialect::kOrt, "do not take bfloat16");
  CHECK(said(halves, Dialect::kTrt) == "DistCollective:all_reduce@0123/-1");
  for (Dialect dialect : {Dialect::kTrt, Dialect::kOrt}) {
    for (const char* type : {"Send", "Recv"}) {
      refused({type, {}, {0, 1}, 2}, dialect, "has no messages between two ranks");
    }
  }
  refused({"Broadcast", {{"root", zero}}, {0, 1, 2, 3}, 2}, Dialect::kTrt,
          "a root is only certain");
  refused({"AllReduce", {{"reduce_op", sum}}, {0, 1, 2, 3}, 2}, Dialect::kOrt,
          "it runs in groups of 2 ranks");
  refused({.type = "AllGather",
           .attributes = {{"axis", zero}},
           .groups = {0, 2, 1, 3},
           .output = {32, 8}},
          Dialect::kOrt, "not in the order of the ranks");
  CHECK(has(said({"AllReduce", {{"reduce_op", sum}}, {0, 1, 2, 2}, 2}, Dialect::kTrt),
            "each of the 4 ranks in exactly one group"));
}

TEST_CASE("ranks have their parts of the weights and share equal files", "[dialects]") {
  Case c = {.type = "ShardSlice", .attributes = {{"axis", std::int64_t{0}}}, .output = {2, 8}};
  Plan plan = plan_of(c);
  plan.program.inputs.clear();
  plan.inputs.clear();
  Value& x = plan.program.values[0];
  x.kind = ValueKind::kParameter;
  plan.program.op(OpId(0)).outputs[0] = plan.program.add_value({.name = "part", .shape = {2, 8}});
  plan.program.values[2].producer = OpId(0);
  plan.program.add_op(
      {.name = "neg", .type = "Neg", .inputs = {ValueId(2)}, .outputs = {ValueId(1)}});
  const Folder folder;

  SECTION("external data is referred to where it lies in one piece") {
    plan.program.values[0].data = ExternalData{"w.bin", 16, 256};
    const auto written = write_dialect(plan, kMetadata, Dialect::kTrt, folder / "");
    INFO((written.ok() ? "" : written.error().message));
    REQUIRE(written.ok());
    CHECK(written->names.size() == 5);
    const onnx::ModelProto model = parse(folder / "plan.trt.rank3.onnx");
    REQUIRE(model.graph().node_size() == 1);
    REQUIRE(model.graph().initializer_size() == 1);
    std::map<std::string, std::string> entries;
    for (const auto& entry : model.graph().initializer(0).external_data()) {
      entries[entry.key()] = entry.value();
    }
    CHECK(entries == std::map<std::string, std::string>{
                         {"location", "w.bin"}, {"offset", "208"}, {"length", "64"}});
  }
  SECTION("slices of a dimension inside are cut by a Slice") {
    plan.program.values[0].data = ExternalData{"w.bin", 0, 256};
    plan.program.ops[0].attributes["axis"] = std::int64_t{1};
    plan.program.values[1].shape = plan.program.values[2].shape = {8, 2};
    plan.outputs[0].shape = {8, 2};
    REQUIRE(write_dialect(plan, kMetadata, Dialect::kTrt, folder / "").ok());
    const onnx::ModelProto model = parse(folder / "plan.trt.rank3.onnx");
    CHECK(model.graph().node(0).op_type() == "Slice");
    CHECK(model.graph().initializer(0).dims(1) == 8);
  }
  SECTION("equal parts make equal files") {
    Tensor first{DType::kFloat32, {8, 8}, std::string(256, '\0')};
    first.bytes[3] = '\x3f';
    plan.program.values[0].data = first;
    const auto written = write_dialect(plan, kMetadata, Dialect::kOrt, folder / "");
    REQUIRE(written.ok());
    CHECK(written->names ==
          std::vector<std::string>{"plan.ort.rank0.onnx", "plan.ort.rank1.onnx", "plan.ort.json"});
    const auto manifest = nlohmann::json::parse(read_file(folder / "plan.ort.json").value());
    CHECK(manifest["files"][0]["ranks"] == nlohmann::json({0}));
    CHECK(manifest["files"][1]["ranks"] == nlohmann::json({1, 2, 3}));
    CHECK(parse(folder / "plan.ort.rank1.onnx").graph().initializer(0).dims(0) == 2);
    const auto read = read_plan(folder / "plan.ort.rank1.onnx");
    REQUIRE(!read.ok());
    CHECK(has(read.error().message, "dialect ort"));
  }
}

TEST_CASE("bodies for collectives do not change what a plan reads back as", "[dialects]") {
  Case c = {.type = "AllGather", .attributes = {{"axis", std::int64_t{1}}}, .output = {8, 32}};
  Plan plan = plan_of(c);
  plan.program.op(OpId(0)).attributes["mesh_axes"] = std::vector<std::string>{"t1", "t0"};
  const Folder folder;
  PlanMetadata metadata = kMetadata;
  for (const bool fallback : {false, true}) {
    metadata.fallback_functions = fallback;
    const auto written = write_plan(plan, metadata, folder / "plan.onnx");
    INFO((written.ok() ? "" : written.error().message));
    REQUIRE(written.ok());
    const onnx::ModelProto model = parse(folder / "plan.onnx");
    REQUIRE(model.functions_size() == (fallback ? 1 : 0));
    if (fallback) {
      CHECK(model.functions(0).name() == "AllGather");
      CHECK(model.functions(0).domain() == "ai.autopar");
    }
    const auto read = read_plan(folder / "plan.onnx");
    INFO((read.ok() ? "" : read.error().message));
    REQUIRE(read.ok());
    CHECK(to_text(read->plan.program) == to_text(plan.program));
    CHECK(read->metadata.fallback_functions == fallback);
  }
}

}  // namespace autopar::dialects_test
