// Rules of ops, their work and their local forms. That the rules are right is what
// rule_oracle_test.py shows.
#include "autopar/ops.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "assignments.hpp"
#include "meshes.hpp"
#include "strategies.hpp"

namespace autopar::ops_test {

using testing::assigned;
using testing::GraphWriter;
using testing::mesh_of;
using testing::specs_text;

namespace {

struct Instance {
  std::string type;
  std::vector<Shape> inputs;  // the last `constants` ones are given as data
  std::vector<std::vector<std::int64_t>> constants;
  Shape output;
  std::string rule;
  std::map<std::string, Attribute> attributes = {};
};

Graph graph_of(const Instance& instance) {
  GraphWriter b;
  std::vector<ValueId> inputs;
  for (const Shape& shape : instance.inputs) {
    inputs.push_back(b.input("x" + std::to_string(inputs.size()), shape));
  }
  for (const auto& values : instance.constants) {
    inputs.push_back(b.ints("c" + std::to_string(inputs.size()), values));
  }
  b.graph.outputs = {b.op(instance.type, inputs, instance.output, instance.attributes)};
  return b.graph;
}

std::string rule_text(const Graph& graph) {
  auto rule = rule_of(graph, graph.ops[0]);
  REQUIRE(rule.ok());
  return (rule->has_rule ? "" : "none: ") + to_text(rule->rule);
}

}  // namespace

TEST_CASE("rules of ops", "[ops]") {
  const std::vector<Instance> instances = {
      {"MatMul",
       {{8, 64, 32}, {32, 16}},
       {},
       {8, 64, 16},
       "b m k+, k+ n -> b m n | moving row col: m k, k n -> m n | partial: 0, 1"},
      {"Relu", {{4, 1, 6}}, {}, {4, 1, 6}, "d0 _ d2 -> d0 _ d2"},
      {"Add", {{4, 6}, {6}}, {}, {4, 6}, "d0 d1, d1 -> d0 d1 | partial: 0 1"},
      {"Mul", {{4, 6}, {}}, {}, {4, 6}, "d0 d1,  -> d0 d1 | partial: 0, 1"},
      // Heads: batch and sequence merge, the hidden dimension splits.
      {"Reshape",
       {{32, 64}},
       {{4, 8, 16, 4}},
       {4, 8, 16, 4},
       "(d0 d1) (d2 d3), _ -> d0 d1 d2 d3 | partial: 0"},
      // Grouped-query attention: 8 heads of keys, each for 4 of queries.
      {"Reshape",
       {{2, 8, 4, 16, 64}},
       {{2, 32, 16, 64}},
       {2, 32, 16, 64},
       "d0 d1 d2 d3 d4, _ -> d0 (d1 d2) d3 d4 | partial: 0"},
      // Where dimensions do not nest, the greatest common divisor of the major parts is shared.
      {"Reshape", {{6, 4}}, {{4, 6}}, {4, 6}, "(d0=2 d1^=3) _, _ -> (d0 d2^=2) _ | partial: 0"},
      {"Reshape",
       {{6, 4, 5}},
       {{4, 6, 5}},
       {4, 6, 5},
       "(d0=2 d1^=3) _ d5, _ -> (d0 d2^=2) _ d5 | partial: 0"},
      {"Transpose",
       {{2, 4, 6}},
       {},
       {6, 2, 4},
       "d0 d1 d2 -> d2 d0 d1 | partial: 0",
       {{"perm", std::vector<std::int64_t>{2, 0, 1}}}},
      {"Softmax", {{4, 6}}, {}, {4, 6}, "d0 d1~ -> d0 d1~"},
      {"ReduceMax", {{4, 6}}, {{1}}, {4, 1}, "d0 d1>, _ -> d0 _"},
      {"Slice", {{4, 6}}, {{1}, {3}, {0}}, {2, 6}, "_ d1, _, _, _ -> _ d1 | partial: 0"},
      {"Expand", {{4, 1}}, {{2, 4, 6}}, {2, 4, 6}, "d1 _, _ -> d0 d1 d2 | partial: 0"},
      {"Conv",
       {{2, 8, 9}, {4, 4, 3}},
       {},
       {2, 4, 7},
       "n (g=2 c+) _, (g m=2) c+ _ -> n (g m) _ | partial: 0, 1",
       {{"group", std::int64_t{2}}}},
      {"Gather", {{100, 8}, {4, 6}}, {}, {4, 6, 8}, "v+ d1, i0 i1 -> i0 i1 d1 | partial: 0"},
      {"Gather", {{3, 8}}, {{0, 2}}, {2, 8}, "_ d1, i0 -> i0 d1 | partial: 0"},
      {"Einsum",
       {{2, 4, 6}, {2, 6}},
       {},
       {4, 2},
       "b i j+, b j+ -> i b | partial: 0, 1",
       {{"equation", std::string("bij,bj->ib")}}},
      {"NoSuchOp", {{4, 6}}, {}, {4, 6}, "none: _ _ -> _ _"},
      // An instance that its standard does not allow.
      {"Softmax", {{4, 6}}, {}, {4, 6}, "none: _ _ -> _ _", {{"axis", std::int64_t{5}}}},
  };
  for (const Instance& instance : instances) {
    const Graph graph = graph_of(instance);
    INFO(instance.type);
    CHECK(rule_text(graph) == instance.rule);
    auto rule = rule_of(graph, graph.ops[0]);
    CHECK(verify(rule->rule, shapes_of(graph, graph.ops[0])).ok());
  }
}

TEST_CASE("partial sums pass only where the type can be summed", "[ops]") {
  GraphWriter b;
  const ValueId flags = b.input("flags", {4, 6}, DType::kBool);
  const ValueId counts = b.input("counts", {4, 6}, DType::kInt64);
  b.op("Transpose", {flags}, {6, 4});
  b.op("Transpose", {counts}, {6, 4});
  b.op("Div", {counts, counts}, {4, 6});
  const auto text = [&](std::size_t op) {
    return to_text(rule_of(b.graph, b.graph.ops[op])->rule);
  };
  CHECK(text(0) == "d0 d1 -> d1 d0");
  CHECK(text(1) == "d0 d1 -> d1 d0 | partial: 0");
  CHECK(text(2) == "d0 d1, d0 d1 -> d0 d1");
}

TEST_CASE("rules of the user", "[ops]") {
  const std::string file =
      "# comment\n\nMyOp \"n c, c -> n c\"  # why\nacme::Other \"... -> ...\"\r\n";
  auto user = parse_user_rules(file, "rules.txt");
  REQUIRE(user.ok());
  CHECK(user->text_of_type == std::map<std::string, std::string>{{"MyOp", "n c, c -> n c"},
                                                                 {"acme::Other", "... -> ..."}});

  Graph graph = graph_of({"MyOp", {{4, 6}, {6}}, {}, {4, 6}, ""});
  CHECK(!rule_of(graph, graph.ops[0])->has_rule);
  auto rule = rule_of(graph, graph.ops[0], *user);
  REQUIRE(rule.ok());
  CHECK(rule->has_rule);
  CHECK(to_text(rule->rule) == "n c, c -> n c");
  graph.ops[0].domain = "acme";
  graph.ops[0].type = "Other";
  graph.ops[0].inputs.resize(1);
  CHECK(to_text(rule_of(graph, graph.ops[0], *user)->rule) == "d0 d1 -> d0 d1");

  const std::vector<std::pair<std::string, std::string>> errors = {
      {"MyOp n -> n", "rules.txt:1: expected"},
      {"\nMyOp \"n -> n", "rules.txt:2: expected"},
      {"MyOp \"n -> n\" more", "rules.txt:1: expected nothing but"},
      {"MyOp x \"n -> n\"", "rules.txt:1: expected nothing but"},
      {"A \"n -> n\"\nA \"n -> n\"", "rules.txt:2: a second rule for A"},
      {"\"n -> n\"", "rules.txt:1: expected"},
  };
  for (const auto& [text, part] : errors) {
    auto bad = parse_user_rules(text, "rules.txt");
    INFO(text);
    REQUIRE(!bad.ok());
    CHECK(bad.error().message.find(part) == 0);
  }
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"n c -> n c", "it has 1 inputs, the op has 2"},
      {"n c~, c -> n c", "mark it ^ (whole)"},
      {"n c, k -> n _", "output 0 does not have the factor c"},
  };
  graph = graph_of({"MyOp", {{4, 6}, {6}}, {}, {4, 6}, ""});
  for (const auto& [text, part] : wrong) {
    auto bad = rule_of(graph, graph.ops[0], {{{"MyOp", text}}});
    INFO(text);
    REQUIRE(!bad.ok());
    CHECK(bad.error().message.find("op 'MyOp0' (MyOp): the user's rule") == 0);
    CHECK(bad.error().message.find(part) != std::string::npos);
  }
}

TEST_CASE("work of ops", "[ops]") {
  const auto work = [](const Instance& instance) {
    const Graph graph = graph_of(instance);
    return work_of(graph.ops[0], shapes_of(graph, graph.ops[0]));
  };
  const Work matmul = work({"MatMul", {{8, 64, 32}, {32, 16}}, {}, {8, 64, 16}, ""});
  CHECK(matmul.flops == 2.0 * 8 * 64 * 32 * 16);
  CHECK(matmul.bytes == 4.0 * (8 * 64 * 32 + 32 * 16 + 8 * 64 * 16));
  const Work gather = work({"Gather", {{1000, 8}, {4, 6}}, {}, {4, 6, 8}, ""});
  CHECK(gather.bytes == 2 * 4.0 * 4 * 6 * 8);
  const Work view = work({"Reshape", {{4, 6}}, {{24}}, {24}, ""});
  CHECK(view.bytes == 0);
  // The operand that names the axes is not counted.
  const Work sum = work({"ReduceSum", {{4, 6}}, {{1}}, {4, 1}, ""});
  CHECK(sum.bytes == 4.0 * (24 + 4));
  const Work conv =
      work({"Conv", {{2, 8, 9}, {4, 4, 3}}, {}, {2, 4, 7}, "", {{"group", std::int64_t{2}}}});
  CHECK(conv.flops == 2.0 * 2 * 4 * 7 * 4 * 3);
  const Work einsum = work(
      {"Einsum", {{2, 4, 6}, {2, 6}}, {}, {4, 2}, "", {{"equation", std::string("bij,bj->ib")}}});
  CHECK(einsum.flops == 2.0 * 2 * 4 * 6);
}

TEST_CASE("the local form of an op", "[ops]") {
  const auto localised = [](const Instance& instance, const std::vector<std::string>& factors) {
    const Graph graph = graph_of(instance);
    const Op& op = graph.ops[0];
    const Mesh mesh = mesh_of({2, 2});
    const Rule rule = rule_of(graph, op)->rule;
    const Assignment assignment = assigned(rule, factors);
    const OpSpecs specs = specs_of(rule, assignment, mesh).value();
    Graph program;
    program.opset = graph.opset;
    Names values, ops;
    std::vector<ValueId> inputs;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      Value value = graph.value(op.inputs[i]);
      value.shape = local_shape(specs.inputs[i], value.shape, mesh);
      values.take(value.name);
      inputs.push_back(program.add_value(value));
      if (value.kind == ValueKind::kInput) program.inputs.push_back(inputs.back());
    }
    auto outputs = localise({graph,
                             op,
                             rule,
                             assignment,
                             specs,
                             mesh,
                             program,
                             values,
                             ops,
                             inputs,
                             {graph.value(op.outputs[0]).name}});
    REQUIRE(outputs.ok());
    program.outputs = *outputs;
    REQUIRE(verify(program).ok());
    CHECK(program.value(outputs->front()).name == graph.value(op.outputs[0]).name);
    CHECK(program.value(outputs->front()).shape ==
          local_shape(specs.outputs[0], graph.value(op.outputs[0]).shape, mesh));
    return program;
  };
  const auto types = [](const Graph& program) {
    std::vector<std::string> types;
    for (const Op& op : program.ops) types.push_back(op.type);
    return types;
  };
  const auto target = [](const Graph& program, std::size_t port) {
    return constant_ints(program, program.ops[0], port).value();
  };
  using Ints = std::vector<std::int64_t>;

  const Graph reshape =
      localised({"Reshape", {{32, 64}}, {{4, 8, 16, 4}}, {4, 8, 16, 4}, ""}, {"d0", "d2"});
  CHECK(target(reshape, 1) == Ints{2, 8, 8, 4});
  const Graph expand = localised({"Expand", {{4, 1}}, {{1, 1, 6}}, {1, 4, 6}, ""}, {"d1", "d2"});
  CHECK(target(expand, 1) == Ints{1, 2, 3});
  const Graph conv =
      localised({"Conv", {{2, 8, 9}, {8, 2, 3}}, {}, {2, 8, 7}, "", {{"group", std::int64_t{4}}}},
                {"g", "n"});
  CHECK(conv.ops[0].int_attribute("group", 0) == 2);
  CHECK(conv.ops[0].name == "Conv0");

  const Instance softmax = {"Softmax", {{4, 6}}, {}, {4, 6}, ""};
  CHECK(types(localised(softmax, {"d0", ""})) == std::vector<std::string>{"Softmax"});
  const Graph split = localised(softmax, {"d0", "d1"});
  std::vector<std::string> reduced;
  for (const Op& op : split.ops) {
    if (op.domain != "ai.autopar") continue;
    CHECK(op.type == "AllReduce");
    CHECK(op.ints_attribute("axes") == Ints{1});
    reduced.push_back(op.string_attribute("reduce_op", ""));
  }
  CHECK(reduced == std::vector<std::string>{"max", "sum"});

  const Graph graph = graph_of(softmax);
  const Rule rule = rule_of(graph, graph.ops[0])->rule;
  CHECK(is_plain_local(graph, graph.ops[0], rule, assigned(rule, {"d0", ""})));
  CHECK(!is_plain_local(graph, graph.ops[0], rule, assigned(rule, {"d0", "d1"})));
}

TEST_CASE("an image is split where every part needs as many rows of its neighbours", "[ops]") {
  using Ints = std::vector<std::int64_t>;
  const auto conv = [](std::int64_t from, std::int64_t to, std::int64_t kernel,
                       const std::map<std::string, Attribute>& attributes) {
    const Graph graph =
        graph_of({"Conv", {{1, 4, from}, {6, 4, kernel}}, {}, {1, 6, to}, "", attributes});
    const std::string text = rule_text(graph);
    return text.substr(0, text.find(" | partial")) +
           (text.find("halo") == std::string::npos ? "" : text.substr(text.find(" | halo")));
  };
  CHECK(conv(12, 12, 3, {{"pads", Ints{1, 1}}}) == "_ c+ s0, m c+ _ -> _ m s0 | halo s0: 1 1");
  CHECK(conv(12, 12, 3, {{"pads", Ints{2, 0}}}) == "_ c+ s0, m c+ _ -> _ m s0 | halo s0: 2 0");
  CHECK(conv(12, 6, 7, {{"pads", Ints{3, 3}}, {"strides", Ints{2}}}) ==
        "_ c+ (s0 r0^=2), m c+ _ -> _ m s0 | halo s0: 3 2");
  CHECK(conv(12, 12, 3, {{"pads", Ints{2, 2}}, {"dilations", Ints{2}}}) ==
        "_ c+ s0, m c+ _ -> _ m s0 | halo s0: 2 2");
  CHECK(conv(12, 4, 3, {{"strides", Ints{3}}}) == "_ c+ (s0 r0^=3), m c+ _ -> _ m s0");
  CHECK(conv(12, 10, 3, {}) == "_ c+ (s0=2 r0^=6), m c+ _ -> _ m (s0 q0^=5) | halo s0: 2 2");
  CHECK(conv(13, 6, 3, {{"strides", Ints{2}}}) == "_ c+ _, m c+ _ -> _ m _");

  const auto pool = [](std::int64_t rounded_up) {
    return rule_text(graph_of({"MaxPool",
                               {{1, 4, 12}},
                               {},
                               {1, 4, 6},
                               "",
                               {{"kernel_shape", Ints{3}},
                                {"strides", Ints{2}},
                                {"pads", Ints{0, 1 - rounded_up}},
                                {"ceil_mode", std::int64_t{1}}}}));
  };
  CHECK(pool(0) == "_ c (s0 r0^=2) -> _ c s0 | halo s0: 0 1");
  CHECK(pool(1) == "_ c _ -> _ c _");

  // 8 rows in parts of 4 or 2 hold a halo of 2, in parts of 1 they do not.
  const Graph wide =
      graph_of({"Conv", {{1, 1, 8}, {1, 1, 5}}, {}, {1, 1, 8}, "", {{"pads", Ints{2, 2}}}});
  const Rule rule = rule_of(wide, wide.ops[0])->rule;
  const Mesh mesh = mesh_of({2, 2, 2});
  CHECK(specs_text(specs_of(rule, assigned(rule, {"s0", "", "s0"}), mesh), mesh) ==
        "[{},{},{a,c}] [{},{},{}] -> [{},{},{a,c}]");
  CHECK(!specs_of(rule, assigned(rule, {"s0", "s0", "s0"}), mesh));
  for (const Assignment& assignment : candidates(rule, mesh)) {
    CHECK(std::count(assignment.factor_of_axis.begin(), assignment.factor_of_axis.end(),
                     rule.factor_index("s0")) < 3);
  }
}

TEST_CASE("operands only describe an op", "[ops]") {
  Op op;
  op.type = "Slice";
  CHECK(!is_operand_constant(op, 0));
  CHECK(is_operand_constant(op, 1));
  CHECK(is_operand_constant(op, 4));
  op.domain = "acme";
  CHECK(!is_operand_constant(op, 1));
}

// Shapes and attributes as no model has them: a rule, or none, but no crash.
TEST_CASE("rules of senseless ops", "[ops]") {
  const std::vector<std::string> types = {"Add",
                                          "AffineGrid",
                                          "ArgMax",
                                          "Attention",
                                          "BatchNormalization",
                                          "CenterCropPad",
                                          "Clip",
                                          "Col2Im",
                                          "Concat",
                                          "ConstantOfShape",
                                          "Conv",
                                          "ConvTranspose",
                                          "CumSum",
                                          "DFT",
                                          "DeformConv",
                                          "DepthToSpace",
                                          "Dropout",
                                          "Einsum",
                                          "Expand",
                                          "Flatten",
                                          "Gather",
                                          "GatherElements",
                                          "GatherND",
                                          "Gemm",
                                          "GridSample",
                                          "GroupNormalization",
                                          "InstanceNormalization",
                                          "LRN",
                                          "LSTM",
                                          "LayerNormalization",
                                          "MatMul",
                                          "MatMulInteger",
                                          "MaxPool",
                                          "NegativeLogLikelihoodLoss",
                                          "OneHot",
                                          "Pad",
                                          "QLinearConv",
                                          "QLinearMatMul",
                                          "QuantizeLinear",
                                          "ReduceSum",
                                          "Reshape",
                                          "Resize",
                                          "ReverseSequence",
                                          "RotaryEmbedding",
                                          "STFT",
                                          "ScatterElements",
                                          "ScatterND",
                                          "Slice",
                                          "SoftmaxCrossEntropyLoss",
                                          "SpaceToDepth",
                                          "Split",
                                          "Squeeze",
                                          "TensorScatter",
                                          "Tile",
                                          "TopK",
                                          "Transpose",
                                          "Trilu",
                                          "Where"};
  const Mesh mesh = mesh_of({2, 3});
  testing::Random random(3);
  const std::vector<std::int64_t> extents = {0, 1, 2, 6, 12, std::int64_t{1} << 40};
  const auto shape = [&] {
    Shape shape(testing::below(random, 6));
    for (auto& extent : shape) extent = extents[testing::below(random, extents.size())];
    return shape;
  };
  const auto small = [&] { return static_cast<std::int64_t>(testing::below(random, 9)) - 3; };
  const auto list = [&] {
    std::vector<std::int64_t> values(testing::below(random, 5));
    for (auto& value : values) value = small();
    return values;
  };
  int with_rule = 0;
  for (int round = 0; round < 20000; ++round) {
    GraphWriter b;
    const std::string& type = types[static_cast<std::size_t>(round) % types.size()];
    std::vector<ValueId> inputs(testing::below(random, 9));
    for (ValueId& id : inputs) {
      const std::string name = "v" + std::to_string(b.graph.values.size());
      const std::size_t choice = testing::below(random, 6);
      if (choice == 0) continue;
      id = choice == 1 ? b.ints(name, list()) : b.input(name, shape());
    }
    Op op;
    op.name = op.type = type;
    op.inputs = inputs;
    for (std::size_t i = testing::below(random, 4); i > 0; --i) {
      op.outputs.push_back(b.input("v" + std::to_string(b.graph.values.size()), shape()));
    }
    for (const char* name : {"axis", "group", "blocksize", "batch_dims", "num_groups", "keepdims",
                             "is_causal", "q_num_heads", "kv_num_heads", "num_heads", "transA"}) {
      if (testing::below(random, 2) == 0) op.attributes[name] = small();
    }
    for (const char* name : {"perm", "axes", "strides", "pads", "dilations"}) {
      if (testing::below(random, 3) == 0) op.attributes[name] = list();
    }
    op.attributes["equation"] = std::string("...ij,jk->i...k");
    INFO(type << " in round " << round);
    auto rule = rule_of(b.graph, op);
    REQUIRE(rule.ok());
    const OpShapes shapes = shapes_of(b.graph, op);
    CHECK(verify(rule->rule, shapes).ok());
    for (const Assignment& assignment : candidates(rule->rule, mesh)) {
      CHECK(specs_of(rule->rule, assignment, mesh));
    }
    CHECK(work_of(op, shapes).flops >= 0);
    with_rule += rule->has_rule ? 1 : 0;
  }
  CHECK(with_rule > 1000);
}

TEST_CASE("devices that make the same random tensor draw alike", "[ops]") {
  Graph graph = graph_of({"Bernoulli", {{4, 6}}, {}, {4, 6}, ""});
  const Mesh mesh = mesh_of({2});
  const auto seed = [&] {
    const Op& op = graph.ops[0];
    const Rule rule = rule_of(graph, op)->rule;
    const std::vector<Assignment> found = candidates(rule, mesh);
    REQUIRE(found.size() == 1);
    const OpSpecs specs = specs_of(rule, found[0], mesh).value();
    Graph program;
    Names values, ops;
    const ValueId input = program.add_value(graph.value(op.inputs[0]));
    auto outputs =
        localise({graph, op, rule, found[0], specs, mesh, program, values, ops, {input}, {"y"}});
    REQUIRE(outputs.ok());
    return program.ops[0].float_attribute("seed", -1);
  };
  const double first = seed();
  CHECK(first >= 0);
  CHECK(seed() == first);
  graph.ops[0].name = "another";
  CHECK(seed() != first);
  graph.ops[0].attributes["seed"] = 7.0;
  CHECK(seed() == 7.0);
}

}  // namespace autopar::ops_test
