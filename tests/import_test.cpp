// Import of ONNX text models: elaboration, normalisation, boundary, messages.
#include "autopar/import.hpp"

#include <onnx/defs/parser.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "autopar/sha256.hpp"

namespace autopar::import_test {

namespace {

struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& bytes) {
    static int count = 0;
    path = (std::filesystem::temp_directory_path() /
            ("autopar_import_test_" + std::to_string(getpid()) + "_" + std::to_string(count++)))
               .string();
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
};

onnx::ModelProto parsed(const std::string& text) {
  onnx::ModelProto model;
  const auto status = onnx::OnnxParser::Parse(model, text.c_str());
  INFO(status.ErrorMessage() << "\n" << text);
  REQUIRE(status.IsOK());
  return model;
}

// A model of one graph at an opset; `rest` follows the graph (functions).
std::string model_text(const std::string& graph, int opset = 18, const std::string& rest = "") {
  return "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + ", \"local\" : 1]>\n" +
         graph + rest;
}

Result<ImportedModel> import_proto(const onnx::ModelProto& model,
                                   const ImportOptions& options = {}) {
  const TemporaryFile file(model.SerializeAsString());
  return import_model(file.path, options);
}

// Ops only: one line "outputs = Type(inputs) # name" per op; shapes, constants by value.
std::string ops_of(const Graph& graph) {
  std::string text;
  for (const Op& op : graph.ops) {
    for (const ValueId id : op.outputs) {
      text += id.valid() ? graph.value(id).name + to_text(graph.value(id).shape) + " " : "- ";
    }
    text += "= " + op.type + "(";
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      text += i ? ", " : "";
      const auto ints = constant_ints(graph, op, i);
      text += !op.has_input(i) ? "-" : (ints ? to_text(*ints) : graph.value(op.inputs[i]).name);
    }
    text += ") # " + op.name + "\n";
  }
  return text;
}

void check_import(const std::string& graph, const std::string& expected, int opset = 18,
                  const ImportOptions& options = {}, const std::string& rest = "") {
  INFO(graph);
  const auto imported = import_proto(parsed(model_text(graph, opset, rest)), options);
  INFO((imported ? "" : imported.error().message));
  REQUIRE(imported.ok());
  CHECK(verify(imported->graph).ok());
  CHECK(ops_of(imported->graph) == expected);
}

void check_error(const std::string& graph, const std::string& part, int opset = 18,
                 const ImportOptions& options = {}, const std::string& rest = "") {
  INFO(graph);
  const auto imported = import_proto(parsed(model_text(graph, opset, rest)), options);
  REQUIRE_FALSE(imported.ok());
  INFO(imported.error().message);
  CHECK(imported.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("gemm becomes a product as it is stored and a sum", "[import]") {
  check_import(R"(g (float[4,8] x, float[16,8] w, float[16] b) => (float[4,16] y) {
      [fc] y = Gemm <transB = 1> (x, w, b)
    })",
               "y/product[4,16] = Gemm(x, w) # fc\n"
               "y[4,16] = Add(y/product, b) # fc/add\n");
  check_import("g (float[4,8] x, float[8,16] w) => (float[4,16] y) { [fc] y = Gemm (x, w) }",
               "y[4,16] = Gemm(x, w) # fc\n");
  check_import(R"(g (float[8,4] x, float[8,16] w, float c) => (float[4,16] y) {
      [fc] y = Gemm <transA = 1, alpha = 2.0, beta = 0.5> (x, w, c)
    })",
               "y/product[4,16] = Gemm(x, w) # fc\n"
               "c/scaled[] = Mul(c, fc/factor) # fc/scale\n"
               "y[4,16] = Add(y/product, c/scaled) # fc/add\n");
  // What is not added is not there.
  check_import(R"(g (float[4,8] x, float[8,16] w, float[16] b) => (float[4,16] y) {
      [fc] y = Gemm <beta = 0.0> (x, w, b)
    })",
               "y[4,16] = Gemm(x, w) # fc\n");
}

TEST_CASE("an Einsum broadcasts as runtimes do, by operands without those dimensions", "[import]") {
  check_import(R"(g (float[1,4,6] q, float[8,5,6] k) => (float[8,4,5] s) {
      [dot] s = Einsum <equation = "bqd, bkd -> bqk"> (q, k)
    })",
               "q/squeezed[4,6] = Reshape(q, [4,6]) # dot/squeeze\n"
               "s[8,4,5] = Einsum(q/squeezed, k) # dot\n");
  // What is 1 long everywhere stays, as does what an ellipsis stands for.
  check_import(R"(g (float[1,4] a, float[1,5] b) => (float[1,4,5] s) {
      [outer] s = Einsum <equation = "bi,bj->bij"> (a, b)
    })",
               "s[1,4,5] = Einsum(a, b) # outer\n");
  check_import(R"(g (float[2,1,6] a, float[2,3,6] b) => (float[2,3] s) {
      [rows] s = Einsum <equation = "...kd,...kd->...k"> (a, b)
    })",
               "a/squeezed[2,6] = Reshape(a, [2,6]) # rows/squeeze\n"
               "s[2,3] = Einsum(a/squeezed, b) # rows\n");
}

TEST_CASE("identities and dropout go, graph outputs keep their names", "[import]") {
  check_import(R"(g (float[4] x) => (float[4] y) {
      a = Identity(x)
      b = Relu(a)
      c, mask = Dropout(b)
      d = Cast <to = 1> (c)
      y = Identity(d)
    })",
               "y[4] = Relu(x) # Relu_b\n");
  // Two names for one value: the second stays an op.
  check_import("g (float[4] x) => (float[4] y, float[4] z) { y = Relu(x) z = Identity(y) }",
               "y[4] = Relu(x) # Relu_y\nz[4] = Identity(y) # Identity_z\n");
  // Dropout in training mode is not an identity.
  check_import(R"(g (float[4] x) => (float[4] y) {
      r = Constant <value = float {0.5}> ()
      t = Constant <value = bool {1}> ()
      y = Dropout(x, r, t)
    })",
               "y[4] = Dropout(x, r, [1]) # Dropout_y\n");
}

TEST_CASE("outputs that no op produces", "[import]") {
  check_import("g (float[2] x) => (float[2] x, int64[1] c) { c = Constant <value_ints = [7]> () }",
               "x/output[2] = Identity(x) # Identity_x\nc[1] = Identity([7]) # Identity_c\n");
}

TEST_CASE("shape subgraphs are folded", "[import]") {
  check_import(R"(g (float[B,12,S] x) => (float[a,b,c,d] y) {
      shape = Shape(x)
      zero = Constant <value_int = 0> ()
      batch = Gather(shape, zero)
      axes = Constant <value_ints = [0]> ()
      batch1 = Unsqueeze(batch, axes)
      rest = Constant <value_ints = [3, 4, -1]> ()
      target = Concat <axis = 0> (batch1, rest)
      y = Reshape(x, target)
    })",
               "y[2,3,4,5] = Reshape(x, [2,3,4,5]) # Reshape_y\n", 18,
               {.dims = {{"B", 2}, {"S", 5}}});
  check_import(R"(g (float[2,3] x, float[3] m) => (float[2,3] y) {
      n = Size(x)
      zero = Constant <value_int = 0> ()
      one = Constant <value_int = 1> ()
      iota = Range(zero, n, one)
      six = Constant <value_int = 4> ()
      less = Less(iota, six)
      shape = Shape(x)
      mask = Reshape(less, shape)
      y = Where(mask, x, m)
    })",
               "y[2,3] = Where([1,1,1,1,0,0], x, m) # Where_y\n");
}

TEST_CASE("what is larger than the limit stays an op", "[import]") {
  const char* graph = R"(g (float[4] x) => (float[1000,4] y) {
      shape = Constant <value_ints = [1000, 4]> ()
      zeros = ConstantOfShape(shape)
      y = Add(zeros, x)
    })";
  check_import(graph, "y[1000,4] = Add(zeros, x) # Add_y\n");
  check_import(graph,
               "zeros[1000,4] = ConstantOfShape([1000,4]) # ConstantOfShape_zeros\n"
               "y[1000,4] = Add(zeros, x) # Add_y\n",
               18, {.dims = {}, .fold_limit_bytes = 1000});
}

TEST_CASE("a scalar expanded to more than 2^31 elements is not built", "[import]") {
  check_import(R"(g (float[1] x) => (float[65536,65536] y) {
      shape = Constant <value_ints = [65536, 65536]> ()
      half = Constant <value_float = 0.5> ()
      big = Expand(half, shape)
      y = Mul(big, x)
    })",
               "big[65536,65536] = Expand(half, [65536,65536]) # Expand_big\n"
               "y[65536,65536] = Mul(big, x) # Mul_y\n");
}

TEST_CASE("reshapes and operands are explicit", "[import]") {
  check_import(R"(g (float[2,3,4] x) => (float[1,24] y) {
      f = Flatten <axis = -1> (x)
      a = Constant <value_ints = [-1]> ()
      u = Unsqueeze(f, a)
      s = Squeeze(u, a)
      t = Constant <value_ints = [1, -1]> ()
      r = Relu(s)
      y = Reshape(r, t)
    })",
               "f[6,4] = Reshape(x, [6,4]) # Flatten_f\n"
               "u[6,4,1] = Reshape(f, [6,4,1]) # Unsqueeze_u\n"
               "s[6,4] = Reshape(u, [6,4]) # Squeeze_s\n"
               "r[6,4] = Relu(s) # Relu_r\n"
               "y[1,24] = Reshape(r, [1,24]) # Reshape_y\n");
  check_import(R"(g (float[2,6] x) => (float[2,2] a, float[2,2] b, float[2,2] c) {
      a, b, c = Split <axis = -1, num_outputs = 3> (x)
    })",
               "a[2,2] b[2,2] c[2,2] = Split(x, [2,2,2]) # Split_a\n");
  check_import(R"(g (float[2,6] x) => (float[2] y, float[2,4] z)
    <int64[1] s = {-4}, int64[1] e = {9223372036854775807}, int64[1] a = {-1}> {
      y = ReduceMean <keepdims = 0, axes = [-1]> (x)
      z = Slice(x, s, e, a)
    })",
               "y[2] = ReduceMean(x) # ReduceMean_y\n"
               "z[2,4] = Slice(x, [2], [6], [1], [1]) # Slice_z\n",
               13);
  check_import("g (float[2,6] x) => (float y) { y = ReduceSum <keepdims = 0> (x) }",
               "y[] = ReduceSum(x, [0,1]) # ReduceSum_y\n");
  // Without the attribute ONNX's strict inference refuses the plan.
  const auto mean_variance = import_proto(parsed(model_text(
      "g (float[2,3,4,4] x) => (float[2,3,4,4] y) { y = MeanVarianceNormalization(x) }", 18, "")));
  REQUIRE(mean_variance.ok());
  CHECK(mean_variance->graph.ops[0].ints_attribute("axes") == std::vector<std::int64_t>{0, 2, 3});
}

TEST_CASE("an op for which ONNX has no shape inference", "[import]") {
  check_import(R"(g (float[2,4,3] x, float[4] s, float[4] b) => (float[2,4,3] y) {
      y = GroupNormalization <num_groups = 2> (x, s, b)
    })",
               "y[2,4,3] = GroupNormalization(x, s, b) # GroupNormalization_y\n", 21);
}

TEST_CASE("functions are inlined under the name of the call", "[import]") {
  const std::string functions = R"(
    <domain: "local", opset_import: ["" : 18, "local" : 1]>
    Twice <k> (a) => (b) { c = local.Scale <factor: float = @k> (a) [last] b = local.Scale <factor: float = @k> (c) }
    <domain: "local", opset_import: ["" : 18]>
    Scale <factor: float = 3.0> (a) => (b) {
      f = Constant <value_float: float = @factor> ()
      b = Mul(a, f)
    })";
  check_import("g (float[4] x) => (float[4] y) { [t] y = local.Twice <k = 2.0> (x) }",
               "t/c[4] = Mul(x, t/Scale_c/f) # t/Scale_c/Mul_b\n"
               "y[4] = Mul(t/c, t/Scale_c/f) # t/last/Mul_b\n",
               18, {}, functions);
}

TEST_CASE("a function that calls itself is an error", "[import]") {
  check_error("g (float[4] x) => (float[4] y) { y = local.F (x) }", "call themselves", 18, {}, R"(
    <domain: "local", opset_import: ["" : 18, "local" : 1]>
    F (a) => (b) { b = local.F (a) })");
}

TEST_CASE("an If on a known condition is its branch", "[import]") {
  const char* graph = R"(g (float[2,3] x) => (float[2,3] y) {
      rank = Shape(x)
      two = Constant <value_ints = [2, 3]> ()
      same = Equal(rank, two)
      index = Constant <value_int = 0> ()
      first = Gather(same, index)
      [choice] y = If (first) <
        then_branch = yes () => (float[2,3] t) { r = Relu(x) [inner] t = Neg(r) },
        else_branch = no () => (float[2,3] e) { e = Abs(x) }>
    })";
  check_import(graph, "r[2,3] = Relu(x) # Relu_r\ny[2,3] = Neg(r) # inner\n");
  // A name of a branch alone, that an op behind it has as well.
  const auto twice = import_proto(parsed(model_text(R"(g (float[2] x) => (float[2] y) {
      yes = Constant <value_int = 1> ()
      so = Cast <to = 9> (yes)
      z = If (so) <
        then_branch = yes () => (float[2] r) { t = Relu(x) r = Neg(t) },
        else_branch = no () => (float[2] e) { e = Abs(x) }>
      t = Exp(z)
      y = Sin(t)
    })")));
  REQUIRE(twice.ok());
  CHECK(twice->graph.ops.size() == 4);
  check_error(R"(g (float[2] x, bool c) => (float[2] y) {
      [choice] y = If (c) <
        then_branch = yes () => (float[2] t) { t = Relu(x) },
        else_branch = no () => (float[2] e) { e = Abs(x) }>
    })",
              "op 'choice' (If): its condition 'c' is not known at import");
}

TEST_CASE("ops out of order are sorted, cycles are an error", "[import]") {
  check_import("g (float[2] x) => (float[2] y) { y = Relu(b) b = Neg(a) a = Abs(x) }",
               "a[2] = Abs(x) # Abs_a\nb[2] = Neg(a) # Neg_b\ny[2] = Relu(b) # Relu_y\n");
  check_error("g (float[2] x) => (float[2] y) { a = Add(x, b) b = Neg(a) y = Relu(b) }",
              "the graph has a cycle");
}

TEST_CASE("names are unique, and user ops can be found", "[import]") {
  const auto imported = import_proto(parsed(model_text(R"(g (float[4,4] x) => (float[4,4] y) {
      [same] a = Relu(x)
      [same] b = Gemm <transB = 1> (a, a)
      [gone] c = Identity(b)
      [dead] d = Neg(c)
      y = Relu(c)
    })")));
  REQUIRE(imported.ok());
  using Names = std::vector<std::string>;
  const auto& map = *imported->ops_of_user_op;
  CHECK(map.at("same") == Names{"same"});
  CHECK(map.at("same/1") == Names{"same/1"});
  CHECK(map.at("gone").empty());
  CHECK(map.at("dead").empty());
  CHECK(map.at("Relu_y") == Names{"Relu_y"});
}

TEST_CASE("kinds of inputs and initializers", "[import]") {
  onnx::ModelProto model = parsed(model_text(R"(g
    (float[4,4] x, float[4,4] m, float[4,4] p) => (float[4,4] y, float[4,4] new_m)
    <float[4,4] w = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}, float s = {2}, int64[1] i = {0}> {
      a = Mul(x, w) b = Mul(a, s) c = Add(b, p) y = ReduceSum(c, i)
      new_m = Add(m, x)
    })"));
  const auto kind = [](const ImportedModel& m, const std::string& name) {
    for (const Value& value : m.graph.values) {
      if (value.name == name) return value.kind;
    }
    FAIL(name);
    return ValueKind::kActivation;
  };
  auto imported = import_proto(model, {.dims = {}, .updates = "new_*"});
  REQUIRE(imported.ok());
  CHECK(kind(*imported, "x") == ValueKind::kInput);
  CHECK(kind(*imported, "p") == ValueKind::kInput);
  CHECK(kind(*imported, "m") == ValueKind::kParameter);  // there is a new_m
  CHECK(kind(*imported, "w") == ValueKind::kParameter);
  CHECK(kind(*imported, "s") == ValueKind::kConstant);
  auto& property = *model.add_metadata_props();
  property.set_key("data_inputs");
  property.set_value("x");
  imported = import_proto(model);
  REQUIRE(imported.ok());
  CHECK(kind(*imported, "x") == ValueKind::kInput);
  CHECK(kind(*imported, "p") == ValueKind::kParameter);
  CHECK(imported->metadata.at("data_inputs") == "x");
  CHECK(imported->ir_version == 8);
}

TEST_CASE("messages say where and what to do", "[import]") {
  check_error("g (float[B] x) => (float[B] y) { y = Relu(x) }",
              "graph input 'x': dimension 0 is symbolic ('B'); give its size with --dim B=SIZE");
  check_error("g (float[2] x) => (float[2] y) { y = Relu(x) }", "--dim C=3: no graph input", 18,
              {.dims = {{"C", 3}}});
  check_error("g (float[2] x) => (float[2] y) { [r] y = Relo(x) }",
              "op 'r' (Relo): unknown op type");
  check_error("g (float[2] x) => (float[2] y) { y = Relu(x) }", "opset version 12", 12);
  check_error("g (float[2] x) => (float[2] y) { y = Relu(x) }", "expected 13 to 26", 27);
  check_error("g (float[2] x) => (float[2] y) { y = Swish(x) }", "since opset version 24", 20);
  check_error("g (float[2] x, int64[2] i) => (float[2] y) { [a] y = Add(x, i) }",
              "op 'a' (Add): input 1 (B) is int64");
  check_error("g (float[2] x, float[3] z) => (float[2] y) { [a] y = Add(x, z) }",
              "its inputs: 'x' float32[2], 'z' float32[3]");
  check_error(
      "g (float[2] x) => (int64[1,n] y) { [nz] y = NonZero(x) }",
      "op 'nz' (NonZero): the shape of its output 'y' depends on data (on the values of 'x')");
  check_error("g (float[2] x) => (float[2] y) { y = Relu(q) }",
              "reads 'q', which nothing produces");
  check_error("g (float[2] x) => (float[2] y) { y = Relu(x) y = Neg(x) }",
              "which is there already");
  check_error("g (float[6] x) => (float[2] y) { [s] y, , z = Split <num_outputs = 3> (x) }",
              "op 's' (Split): its output 1 has no name");
  check_error("g (float[2] x) => (float[2] z) { y = Relu(x) }", "graph output 'z'");
  check_error("g (float[2] x) => (float[2] y) { y = Cast <to = 17> (x) }", "FLOAT8E4M3FN");
  check_error("g (complex64[2] x) => (complex64[2] y) { y = Identity(x) }", "COMPLEX64");
  check_error(
      "g (float[1,1,4,4] x, float[1,1,2,2] w) => (float[a,b,c,d] y) "
      "{ [c] y = Conv <strides = [0, 1]> (x, w) }",
      "op 'c' (Conv): attribute 'strides' is out of range");
  check_error(
      "g (float[2,3,8] x, float[9,2] c, int64[4,3] p) => (float[2,3,8] y) "
      "{ [r] y = RotaryEmbedding <num_heads = 2> (x, c, c, p) }",
      "op 'r' (RotaryEmbedding): dimension 0 of its input 3 (position_ids) is 4; expected 2 "
      "(batch), "
      "since dimension 0 of input 0 (X) is 2",
      23);
  check_error(
      "g (float[1,4,6,8] x, float[2,6,4] c) => (float[1,4,6,8] y) "
      "{ [r] y = RotaryEmbedding (x, c, c) }",
      "op 'r' (RotaryEmbedding): dimension 0 of its input 1 (cos_cache) is 2; expected 1 (batch)",
      23);
  // ONNX's inference looks at the data of these alone.
  const std::string scatter =
      "g (float[4,3] x, int64[2,1] i, float[2,4] u) => (float[4,3] y) { [s] y = ";
  check_error(
      scatter + "ScatterND(x, i, u) }",
      "op 's' (ScatterND): its updates are [2,4]; for [4,3] and indices [2,1] expected [2,3]");
  check_error(scatter + "ScatterElements(x, i, u) }", "expected [2,1]");
  check_error(
      "g (float[4,3] x, int64[2,3] i, float[2] u) => (float[4,3] y) { y = ScatterND(x, i, u) }",
      "expect 1 to 2 numbers in their last dimension");
}

TEST_CASE("inputs whose shapes do not fit together are refused", "[import]") {
  struct WrongModel {
    const char* inputs;  // of the graph
    const char* node;
    const char* told;
    int opset = 18;
  };
  const std::vector<WrongModel> models = {
      {"float[1,3,5,5] x, float[3,2,3,3] w",
       "ConvTranspose <auto_pad = \"SAME_UPPER\", strides = [2,2], output_padding = [1,1]> (x, w)",
       "'output_padding' [1,1]; expected one of them"},
      {"float[1,4,8,8] x, float[6,3,3,3] w", "Conv <group = 2> (x, w)",
       "op 'n' (Conv): dimension 1 of its input 1 (W) is 3; expected 2 (channels), since dimension "
       "1 of input 0 (X) is 4 and group is 2"},
      {"float[1,4,8,8] x, float[5,2,3,3] w", "Conv <group = 2> (x, w)",
       "input 1 (W) is 5; expected a multiple of 2 (group*features), since group is 2"},
      {"float[1,4,8,8] x, float[6,4,3,3] w, float[5] b", "Conv(x, w, b)",
       "dimension 0 of its input 2 (B) is 5; expected 6 (group*features)"},
      {"float[1,4,8,8] x, float[6,4,3,3] w", "Conv <kernel_shape = [5, 5]> (x, w)",
       "expected 5 (kernel0), since kernel_shape is [5,5]"},
      {"float[1,4,8,8] x, float[6,4,9,9] w", "Conv(x, w)",
       "input 0 (X) is 8; expected, with the padding, at least the extent of the kernel"},
      {"float[1,4,8] x, float[3,6,3] w", "ConvTranspose(x, w)",
       "dimension 0 of its input 1 (W) is 3; expected 4 (group*channels)"},
      {"uint8[1,4,8] x, uint8[6,3,3] w", "ConvInteger(x, w)", "input 1 (w) is 3; expected 4"},
      {"float[1,2,8] x", "MaxPool <kernel_shape = [3], pads = [3, 0]> (x)",
       "attribute 'pads' is [3,0]; expected less than kernel_shape [3] everywhere"},
      {"float[5,2,3] x, float[1,24,4] w, float[1,24,8] r", "GRU <hidden_size = 8> (x, w, r)",
       "dimension 2 of its input 1 (W) is 4; expected 3 (inputs)"},
      {"float[5,2,3] x, float[1,24,3] w, float[1,24,8] r", "LSTM <hidden_size = 8> (x, w, r)",
       "dimension 1 of its input 1 (W) is 24; expected 32 (4*hidden_size), since hidden_size is 8"},
      {"float[5,2,3] x, float[1,8,3] w, float[1,8,8] r, float[1,8] b",
       "RNN <hidden_size = 8> (x, w, r, b)", "dimension 1 of its input 3 (B) is 8; expected 16"},
      {"float[5,2,3] x, float[1,8,3] w, float[1,8,8] r",
       "RNN <hidden_size = 8, direction = \"bidirectional\"> (x, w, r)",
       "input 1 (W) is 1; expected 2 (directions), since it is bidirectional"},
      {"float[2,4] a, float[3,4] b", "Einsum <equation = \"ij,jk->ik\"> (a, b)",
       "dimension 0 of its input 1 (Inputs) is 3; expected 4 or 1 (j)"},
      {"float[2,3] a, float[3,4] b, float[3] c", "Gemm(a, b, c)",
       "dimension 0 of its input 2 (C) is 3; expected 4 or 1 (columns)"},
      {"float[2,4,3] x, float[5,1] s", "PRelu(x, s)",
       "dimension 0 of its input 1 (slope) is 5; expected 4 or 1 (d1)"},
      {"float[2,4,3] x, float[4] s", "LayerNormalization(x, s)",
       "dimension 0 of its input 1 (Scale) is 4; expected 3 or 1 (d2)"},
      {"float[2,4,3] x, float[3] s", "LayerNormalization <axis = 3> (x, s)",
       "attribute 'axis' is 3; expected -3 to 2, since its input 0 (X) is [2,4,3]"},
      {"float[2,4,3] x, float[4] s", "RMSNormalization(x, s)", "expected 3 or 1 (d2)", 23},
      {"float[2,4,3] x, float[3] s", "InstanceNormalization(x, s, s)",
       "dimension 0 of its input 1 (scale) is 3; expected 4 (channels)"},
      {"float[2,5,3] x, float[5] s", "GroupNormalization <num_groups = 2> (x, s, s)",
       "dimension 1 of its input 0 (X) is 5; expected a multiple of 2 (num_groups*width)", 21},
      {"float[2,4,6,8] q, float[3,4,6,8] k", "Attention(q, k, k)",
       "dimension 0 of its input 1 (K) is 3; expected 2 (batch)", 23},
      {"float[2,4,6,8] q, float[2,4,6,7] k", "Attention(q, k, k)",
       "dimension 3 of its input 1 (K) is 7; expected 8 (head)", 23},
      {"float[2,4,6,8] q, float[2,3,6,8] k", "Attention(q, k, k)",
       "its queries have 4 heads; expected a multiple of the 3 heads of its keys and values", 23},
      {"float[2,4,6,8] q, float[2,4,5,8] k, float[6,6] m", "Attention(q, k, k, m)",
       "dimension 1 of its input 3 (attn_mask) is 6; expected 5 or 1 (total)", 23},
      {"float[2,4,6,8] q, float[2,4,6,8] k, float[2,4,5,7] p", "Attention(q, k, k, , p, p)",
       "dimension 3 of its input 4 (past_key) is 7; expected 8 (head)", 24},
      {"float[1,4,6,8] x, float[9,3] c, int64[1,6] p", "RotaryEmbedding(x, c, c, p)",
       "dimension 1 of its input 1 (cos_cache) is 3; expected 4 (half)", 23},
      {"int8[2,4] x, float[3] s", "DequantizeLinear <axis = 1> (x, s)",
       "dimension 0 of its input 1 (x_scale) is 3; expected 4 (d1)"},
      {"float[2,4] x, float[2,3] s", "QuantizeLinear <axis = 1, block_size = 2> (x, s)",
       "expected 2 (d1), since there are 2 blocks of 2 in dimension 1", 21},
      {"float[4,3] x, int64[4] i", "GatherElements(x, i)",
       "its input 1 (indices) is [4], of 1 dimensions; expected 2"},
      {"float[4,3] x, int64[4,5] i", "GatherElements(x, i)",
       "dimension 1 of its input 1 (indices) is 5; expected at most 3"},
      {"float[4,3] x, int64[4,3] i", "ScatterElements <axis = 2> (x, i, x)",
       "attribute 'axis' is 2; expected -2 to 1"},
      {"float[2,4,3] x", "Transpose <perm = [1, 0]> (x)",
       "attribute 'perm' is [1,0]; expected 3 numbers"},
      {"float[2,6,3,3] x", "DepthToSpace <blocksize = 2> (x)",
       "dimension 1 of its input 0 (input) is 6; expected a multiple of 4"},
      {"float[4,8] x, int64[3] t", "SoftmaxCrossEntropyLoss(x, t)",
       "dimension 0 of its input 1 (labels) is 3; expected 4 (batch)"},
      {"float[2,8] x, float[2] b", "Clip(x, b)",
       "input 1 (min) is [2], of 1 dimensions; expected one number"},
  };
  for (const WrongModel& model : models) {
    check_error(
        std::string("g (") + model.inputs + ") => (float[a] y) { [n] y = " + model.node + " }",
        model.told, model.opset);
  }
}

TEST_CASE("shapes that fit together by broadcasting or by being left out", "[import]") {
  const auto check_fits = [](const std::string& inputs, const std::string& node, int opset = 18) {
    const std::string graph = "g (" + inputs + ") => (float[a] y) { y = " + node + " }";
    INFO(graph);
    const auto imported = import_proto(parsed(model_text(graph, opset)));
    INFO((imported ? "" : imported.error().message));
    CHECK(imported.ok());
  };
  check_fits("float[2,3] a, float[1,4] b", "Einsum <equation = \"ij,jk->ik\"> (a, b)");
  check_fits("float[2,3] a, float[3,4] b, float c", "Gemm(a, b, c)");
  check_fits("float[2,3] a, float[3,4] b, float[2,1] c", "Gemm(a, b, c)");
  check_fits("float[2,4,3] x, float[1] s", "LayerNormalization(x, s)");
  check_fits("float[2,4,3] x, float[4,1] s", "PRelu(x, s)");
  check_fits("float[2,8] x, float b", "Clip(x, , b)");
  check_fits("float[5,2,3] x, float[1,24,3] w, float[1,24,8] r, float[1,2,8] h",
             "GRU <hidden_size = 8> (x, w, r, , , h)");
  check_fits("float[2,4,6,8] q, float[2,2,5,8] k, float[2,2,5,3] v, bool[1,1,6,5] m",
             "Attention(q, k, v, m)", 23);
  check_fits("float[2,4,6,8] q, float[2,4,6,8] k, float[6,4] m", "Attention(q, k, k, m)", 24);
  check_fits("int8[2,4] x, float s, int8 z", "DequantizeLinear <axis = 7> (x, s, z)");
}

TEST_CASE("external data", "[import]") {
  const auto with_location = [](const std::string& location, std::int64_t length) {
    onnx::ModelProto model = parsed(model_text(
        "g (float[2,3] x) => (float[3,2] y) <int64[2] t = {3, 2}> { [r] y = Reshape(x, t) }"));
    auto& tensor = *model.mutable_graph()->mutable_initializer(0);
    tensor.clear_int64_data();
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"location", location},
                                     {"offset", "8"},
                                     {"length", std::to_string(length)}}) {
      auto& entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(value);
    }
    return model;
  };
  const std::int64_t numbers[] = {99, 3, 2};
  const TemporaryFile data(std::string(reinterpret_cast<const char*>(numbers), sizeof numbers));
  const std::string name = std::filesystem::path(data.path).filename().string();
  const auto found = import_proto(with_location(name, 16));
  REQUIRE(found.ok());
  CHECK(ops_of(found->graph) == "y[3,2] = Reshape(x, [3,2]) # r\n");
  const auto message = [&](const std::string& location, std::int64_t length) {
    const auto result = import_proto(with_location(location, length));
    return result ? std::string("imported") : result.error().message;
  };
  CHECK(message("missing.bin", 16).find("that file cannot be read") != std::string::npos);
  CHECK(message("../" + name, 16).find("not a path below") != std::string::npos);
  CHECK(message("/etc/passwd", 16).find("not a path below") != std::string::npos);
  CHECK(message(name, 17).find("17 bytes") != std::string::npos);
}

TEST_CASE("ops of other domains take their types from value_info", "[import]") {
  const std::string graph =
      "g (float[2] x) => (float[2] y) { [c] m = local.Custom(x) y = Relu(m) }";
  check_error(graph,
              "op 'c' (Custom): ONNX cannot infer what local::Custom makes, so the type and the "
              "shape of its output 'm' must stand in the model's value_info; it does not");
  onnx::ModelProto model = parsed(model_text(graph));
  auto& info = *model.mutable_graph()->add_value_info();
  info.set_name("m");
  *info.mutable_type() = model.graph().output(0).type();
  const auto imported = import_proto(model);
  REQUIRE(imported.ok());
  CHECK(imported->graph.ops[0].domain == "local");
}

TEST_CASE("a wrong declaration of an output is a warning", "[import]") {
  const auto imported =
      import_proto(parsed(model_text("g (float[2,3] x) => (float[2,4] y) { y = Relu(x) }")));
  REQUIRE(imported.ok());
  REQUIRE(imported->warnings.size() == 1);
  CHECK(imported->warnings[0].find("graph output 'y' has the shape [2,3]") == 0);
}

TEST_CASE("sha256", "[import]") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256_hex(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace autopar::import_test
