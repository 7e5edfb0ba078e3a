// The text of rules, assignments of factors to axes, and the specs that they give.
#include <catch2/catch.hpp>

#include "assignments.hpp"
#include "meshes.hpp"

namespace autopar::rule_test {

using namespace testing;

namespace {

OpShapes floats(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
  return {inputs, outputs, std::vector<DType>(inputs.size(), DType::kFloat32),
          std::vector<DType>(outputs.size(), DType::kFloat32)};
}

// What the text reads back as, or the error.
std::string reread(const std::string& text, const OpShapes& shapes) {
  auto rule = parse_rule(text, shapes);
  return rule ? to_text(*rule) : rule.error().message;
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

}  // namespace autopar::rule_test
