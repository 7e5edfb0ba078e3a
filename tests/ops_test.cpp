// Rules and their text, assignments, specs, work, local forms. That the rules are right is what
// rule_oracle_test.py shows. In one file because its cases are rows of tables over the same rules.
#include "autopar/ops.hpp"

#include <catch2/catch.hpp>

#include "strategies.hpp"

namespace autopar::ops_test {

using testing::GraphWriter;

namespace {

Mesh mesh_of(const std::vector<std::int64_t>& sizes) {
  Mesh mesh;
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    mesh.axes.insert(mesh.axes.begin(),
                     {std::string(1, static_cast<char>('a' + i)), sizes[i], 0, stride});
    stride *= sizes[i];
  }
  return mesh;
}

OpShapes floats(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
  return {inputs, outputs, std::vector<DType>(inputs.size(), DType::kFloat32),
          std::vector<DType>(outputs.size(), DType::kFloat32)};
}

// What the text reads back as, or the error.
std::string reread(const std::string& text, const OpShapes& shapes) {
  auto rule = parse_rule(text, shapes);
  return rule ? to_text(*rule) : rule.error().message;
}

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

Assignment assigned(const Rule& rule, const std::vector<std::string>& factors) {
  Assignment assignment;
  for (const std::string& name : factors) {
    assignment.factor_of_axis.push_back(name.empty() ? -1 : rule.factor_index(name));
    REQUIRE((name.empty() || assignment.factor_of_axis.back() >= 0));
  }
  return assignment;
}

std::string specs_text(const std::optional<OpSpecs>& specs, const Mesh& mesh) {
  if (!specs) return "not valid";
  std::string text;
  for (const Spec& spec : specs->inputs) text += to_text(spec, mesh) + " ";
  text += "->";
  for (const Spec& spec : specs->outputs) text += " " + to_text(spec, mesh);
  return text;
}

}  // namespace

TEST_CASE("rule text reads back as itself", "[ops]") {
  const OpShapes matmul = floats({{8, 64, 32}, {32, 16}}, {{8, 64, 16}});
  const std::string text = "b m k+, k+ n -> b m n | partial: 0, 1";
  CHECK(reread(text, matmul) == text);
  CHECK(reread("... m k+, ... k+ n -> ... m n | partial: 0, 1", matmul) == text);
  CHECK(reread("  ... m k+ ,k+ n->... m n|partial:0,1 ", matmul) == text);

  const std::vector<std::pair<std::string, OpShapes>> rules = {
      {"d0 d1 -> d0 d1", floats({{4, 6}}, {{4, 6}})},
      {"n+ c~, n+ -> , n+ c~", floats({{4, 6}, {4}}, {{}, {4, 6}})},
      {"(a=2 b^=3) _ -> (a c^=2) _ | partial: 0", floats({{6, 4}}, {{4, 6}})},
      {"a k+, a -> a | summand k: 1", floats({{4, 6}, {4}}, {{4}})},
      {"-> d0 | partial: none", floats({}, {{4}})},
      {", d0 -> d0 | partial: 0 1", floats({{}, {4}}, {{4}})},
      {"a> b< -> _ _", floats({{4, 6}}, {{1, 1}})},
      {"(s r^=2) t -> s t | halo s: 3 2 | halo t: 0 1", floats({{8, 6}}, {{4, 6}})},
      {"s t^, t^ -> s t^ | moving ring: s, t -> s | partial: 0 1", floats({{4, 6}, {6}}, {{4, 6}})},
      {"m k+, k+ n -> m n | moving row col: m k, k _ -> m n", floats({{4, 6}, {6, 4}}, {{4, 4}})},
  };
  for (const auto& [rule, shapes] : rules) {
    CHECK(reread(rule, shapes) == rule);
  }
}

TEST_CASE("a size that the shapes tell is not written", "[ops]") {
  CHECK(reread("(a=2 b) -> a b", floats({{12}}, {{2, 6}})) == "(a b) -> a b");
}

TEST_CASE("broadcasting: dimensions of extent 1 have no factor", "[ops]") {
  CHECK(reread("..., ... -> ...", floats({{2, 1, 4}, {6, 1}}, {{2, 6, 4}})) ==
        "d0 _ d2, d1 _ -> d0 d1 d2");
  CHECK(reread("..., ... -> ...", floats({{1}, {1, 1}}, {{1, 1}})) == "_, _ _ -> _ _");
  CHECK(reread("...* -> ...", floats({{4}, {4}, {}}, {{4}})) == "d0, d0,  -> d0");
}

TEST_CASE("a rule that does not fit says why", "[ops]") {
  const OpShapes shapes = floats({{4, 6}}, {{4, 6}});
  const std::vector<std::pair<std::string, std::string>> errors = {
      {"a b, a b", "expected exactly one '->'"},
      {"a b c -> a b c", "input 0 has the shape [4,6], the rule expects 3 dimensions"},
      {"a b ->", "output 0 has the shape [4,6], the rule expects 0 dimensions"},
      {"a b - > a b", "expected exactly one '->'"},
      {"a a -> a a", "extent 6"},
      {"a b -> a b | halo b: 1", "two numbers of rows"},
      {"a b -> a b | halo b: 1 1 1", "two numbers of rows"},
      {"a b~ -> a b | halo b: 1 1", "factor b has a mark and a halo"},
      {"a+ b -> a> b", "factor a has two different marks"},
      {"(a b) c -> a b", ""},
      {"(a b -> a b", "'(' without ')'"},
      {"a) b -> a b", "unmatched ')'"},
      {"... ... -> a b", "'...' twice"},
      {"(_ a) b -> a b", "inside"},
      {"a b=x -> a b", "'b=x' has no valid size"},
      {"a b=0 -> a b", "'b=0' has no valid size"},
      {"a b=5 -> a b", "extent 6"},
      {"(a=4 c=9223372036854775807) b -> a b", "too large"},
      {"a 1 -> a b", "'1' is not a factor"},
      {"a b -> a b | partial: x", "'x' is not the number of an input"},
      {"a b -> a b | partial: 0, 0", "two partial groups begin alike"},
      {"a b -> a b | total: 0", "is none of"},
      {"a b -> a b | moving r: a", "what moves is written as"},
      {"a b -> a b | moving r: a b -> a", "names more factors than move"},
      {"a b -> a b | moving a: a -> a", "two factors a"},
      {"a b -> a b | summand b: 0", "factor b is not summed over"},
      {"(a b) (c d) -> (a b) (c d)", "does not follow from the shapes"},
  };
  for (const auto& [text, part] : errors) {
    INFO(text);
    auto rule = parse_rule(text, shapes);
    REQUIRE(!rule.ok());
    CHECK(rule.error().message.find("rule \"" + text + "\"") == 0);
    CHECK(rule.error().message.find(part) != std::string::npos);
  }
}

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

TEST_CASE("specs of MindSpore's MatMul example", "[ops]") {
  const Mesh mesh = mesh_of({2, 4});
  const Rule rule = *parse_rule("m k+, k+ n -> m n", floats({{64, 128}, {128, 256}}, {{64, 256}}));
  const auto specs = specs_of(rule, assigned(rule, {"m", "n"}), mesh);
  REQUIRE(specs);
  CHECK(strategy_of(specs->inputs, mesh) == std::vector<std::vector<std::int64_t>>{{2, 1}, {1, 4}});
  CHECK(tensor_map(specs->inputs[0], mesh) == std::vector<std::vector<int>>{{1}, {}});
  CHECK(tensor_map(specs->inputs[1], mesh) == std::vector<std::vector<int>>{{}, {0}});
  CHECK(tensor_map(specs->outputs[0], mesh) == std::vector<std::vector<int>>{{1}, {0}});
  CHECK(to_text(assigned(rule, {"m", "n"}), rule, mesh) == "a:m b:n");
}

TEST_CASE("specs of assignments", "[ops]") {
  const OpShapes shapes = floats({{8, 4, 32}, {32, 16}, {16}}, {{8, 4, 16}});
  const std::string text = "b m k+, k+ n, n -> b m n | partial: 0 2, 1 2 | summand k: 2";
  const Rule rule = *parse_rule(text, shapes);
  const Mesh mesh = mesh_of({2, 2, 2});
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"b", "m", "n"}, "[{a},{b},{}] [{},{c}] [{c}] -> [{a},{b},{c}]"},
      {{"b", "", "b"}, "[{a,c},{},{}] [{},{}] [{}] -> [{a,c},{},{}]"},
      {{"k", "m", "k"}, "[{},{b},{a,c}] [{a,c},{}] [{}] +{a,c} -> [{},{b},{}] +{a,c}"},
      {{"partial1", "k", "n"}, "[{},{},{b}] [{b},{c}] +{a} [{c}] +{a,b} -> [{},{},{c}] +{a,b}"},
      {{"m", "m", "m"}, "not valid"},  // 4 rows on 8 devices
  };
  for (const auto& [factors, expected] : table) {
    CHECK(specs_text(specs_of(rule, assigned(rule, factors), mesh), mesh) == expected);
  }
  CHECK(!specs_of(rule, {{0, 0}}, mesh));
  CHECK(!specs_of(rule, {{0, 0, 99}}, mesh));
}

TEST_CASE("a minor factor is split only where the major one is down to 1", "[ops]") {
  const OpShapes shapes = floats({{2, 6}}, {{12}});
  const Rule rule = *parse_rule("a b -> (a b)", shapes);
  const Mesh mesh = mesh_of({3, 2});
  const auto text = [&](const std::vector<std::string>& factors) {
    return specs_text(specs_of(rule, assigned(rule, factors), mesh), mesh);
  };
  CHECK(text({"b", ""}) == "not valid");
  CHECK(text({"", "b"}) == "not valid");
  CHECK(text({"", "a"}) == "[{b},{}] -> [{b}]");
  CHECK(text({"b", "a"}) == "[{b},{a}] -> [{b,a}]");
  const Rule whole = *parse_rule("(a=4 w^) -> (a w^)", floats({{8}}, {{8}}));
  CHECK(specs_text(specs_of(whole, assigned(whole, {"", "w"}), mesh), mesh) == "not valid");
}

TEST_CASE("two kinds of reduction do not meet on one output", "[ops]") {
  const Mesh mesh = mesh_of({2, 2});
  const Rule rule = *parse_rule("a+ b> -> _ _", floats({{4, 6}}, {{1, 1}}));
  CHECK(specs_text(specs_of(rule, assigned(rule, {"", "b"}), mesh), mesh) ==
        "[{},{b}] -> [{},{}] max{b}");
  CHECK(!specs_of(rule, assigned(rule, {"a", "b"}), mesh));
  for (const Assignment& assignment : candidates(rule, mesh)) {
    CHECK(specs_of(rule, assignment, mesh));
  }
}

TEST_CASE("parts that move: an axis splits one factor here and another there", "[ops]") {
  const Rule rule =
      *parse_rule("m k+, k+ n -> m n | moving row col: m k, k n -> m n | partial: 0, 1",
                  floats({{8, 12}, {12, 6}}, {{8, 6}}));
  const auto text = [&](const std::vector<std::int64_t>& sizes,
                        const std::vector<std::string>& factors) {
    const Mesh mesh = mesh_of(sizes);
    return specs_text(specs_of(rule, assigned(rule, factors), mesh), mesh);
  };
  CHECK(text({2, 2}, {"row", "col"}) == "[{a},{b}] [{a},{b}] -> [{a},{b}]");
  CHECK(text({2, 2}, {"col", "row"}) == "[{b},{a}] [{b},{a}] -> [{b},{a}]");
  CHECK(text({2, 2, 2}, {"row", "m", "col"}) == "[{a,b},{c}] [{a},{c}] -> [{a,b},{c}]");
  CHECK(text({2, 2, 2}, {"row", "partial0", "col"}) ==
        "[{a},{c}] +{b} [{a},{c}] -> [{a},{c}] +{b}");
  // Both, on one axis each, of one size; k lies over other axes on either side.
  CHECK(text({2, 2}, {"row", ""}) == "not valid");
  CHECK(text({2, 3}, {"row", "col"}) == "not valid");
  CHECK(text({2, 2, 2}, {"row", "row", "col"}) == "not valid");
  CHECK(text({2, 2, 2}, {"row", "k", "col"}) == "not valid");
  CHECK(text({4, 4}, {"row", "col"}) == "not valid");  // 6 columns
  CHECK(moving_candidates(rule, mesh_of({2, 3})).empty());
  CHECK(moving_candidates(rule, mesh_of({2, 2})).size() == 2);
  for (const Assignment& a : candidates(rule, mesh_of({2, 2, 2}))) CHECK(!is_moving(rule, a));
  const auto moving = moving_candidates(rule, mesh_of({2, 2, 2}));
  CHECK(moving.size() == 6 * 4);  // m, partial0, partial1 or nothing beside the two; n in 3 parts
  for (const Assignment& a : moving) CHECK(is_moving(rule, a));
}

TEST_CASE("candidates are the valid assignments, in order, the whole op last", "[ops]") {
  const OpShapes shapes = floats({{2, 6}, {6, 5}}, {{2, 5}});
  const Rule rule = *parse_rule("m k+, k+ n -> m n | partial: 0, 1", shapes);
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{2}, {2, 2}, {2, 3}, {1}}) {
    const Mesh mesh = mesh_of(sizes);
    const std::vector<Assignment> found = candidates(rule, mesh);
    std::vector<Assignment> expected;
    const int choices = static_cast<int>(rule.factors.size()) + 1;
    const int total = sizes.size() == 1 ? choices : choices * choices;
    for (int i = 0; i < total; ++i) {
      Assignment assignment;
      for (int rest = i, a = static_cast<int>(sizes.size()); a-- > 0; rest /= choices) {
        assignment.factor_of_axis.insert(assignment.factor_of_axis.begin(),
                                         rest % choices == choices - 1 ? -1 : rest % choices);
      }
      if (sizes[0] > 1 && specs_of(rule, assignment, mesh)) expected.push_back(assignment);
    }
    if (sizes[0] == 1) expected = {{{-1}}};
    CHECK(found == expected);
    CHECK(found.back().factor_of_axis == std::vector<int>(sizes.size(), -1));
  }
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
