// From strategies to programs: which collectives, in which order, under which names.
#include "autopar/partition.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "strategies.hpp"

namespace autopar::partition_test {

using namespace testing;

namespace {

using Factors = std::vector<std::vector<std::string>>;

Plan plan_of(const Graph& graph, const Cluster& cluster, const std::vector<std::int64_t>& mesh,
             const Factors& factors) {
  const GraphRules rules = rules_of(graph).value();
  const Strategy strategy = named_strategy(graph, rules, make_mesh(cluster, mesh).value(), factors);
  Result<Plan> plan = partition(graph, rules, strategy, cluster);
  INFO((plan.ok() ? "" : plan.error().message));
  REQUIRE(plan.ok());
  return *plan;
}

// "AllGather {nvlink} 1" per collective that communicates.
std::vector<std::string> collectives(const Plan& plan, bool local = false) {
  std::vector<std::string> texts;
  const auto found = collectives_of(plan).value();
  for (const ProgramCollective& c : found) {
    if (local || communicates(c.collective.kind)) texts.push_back(to_text(c.collective, plan.mesh));
  }
  return texts;
}

const Op* op_named(const Graph& program, const std::string& name) {
  for (const Op& op : program.ops) {
    if (op.name == name) return &op;
  }
  return nullptr;
}
const Value* value_named(const Graph& program, const std::string& name) {
  for (const Value& value : program.values) {
    if (value.name == name) return &value;
  }
  return nullptr;
}
std::vector<std::string> types_of(const Graph& program) {
  std::vector<std::string> types;
  for (const Op& op : program.ops) types.push_back(op.type);
  return types;
}
std::size_t count(const Graph& program, const std::string& type) {
  const std::vector<std::string> types = types_of(program);
  return static_cast<std::size_t>(std::count(types.begin(), types.end(), type));
}

}  // namespace

TEST_CASE("two matrix products: the collectives of the textbook", "[partition]") {
  const Graph graph = two_matmuls();
  const Cluster four = cluster_of({4});
  using Texts = std::vector<std::string>;
  // ((4,1),(1,1)) then ((1,1),(1,4))
  CHECK(collectives(plan_of(graph, four, {4}, {{"m"}, {"n"}})) == Texts{"AllGather {nvlink} 0"});
  // ((1,1),(1,4)) then ((4,1),(1,1))
  const Texts all_to_all = collectives(plan_of(graph, four, {4}, {{"n"}, {"m"}}));
  REQUIRE(all_to_all.size() == 1);
  CHECK(all_to_all[0].find("AllToAll {nvlink}") == 0);
  // ((2,1),(1,2)) then ((2,2),(2,1))
  CHECK(collectives(plan_of(graph, four, {2, 2}, {{"m", "n"}, {"m", "k"}})) ==
        Texts{"AllReduce {nvlink_1}"});
  // Data parallel; replicated.
  CHECK(collectives(plan_of(graph, four, {4}, {{"m"}, {"m"}})).empty());
  CHECK(collectives(plan_of(graph, four, {4}, {{""}, {""}})).empty());
}

TEST_CASE("a local form does not depend on how many values there are before", "[partition]") {
  for (int before = 0; before < 48; ++before) {
    GraphWriter b;
    ValueId rows = b.input("rows", {4, 6});
    Factors factors;
    for (int i = 0; i < before; ++i) {
      rows = b.op("Relu", {rows}, {4, 6});
      factors.push_back({""});
    }
    const ValueId at = b.input("at", {4, 6}, DType::kInt64);
    const ValueId data = b.input("data", {4, 8});
    b.graph.outputs = {b.op("ScatterElements", {data, at, rows}, {4, 8},
                            {{"axis", std::int64_t{1}}, {"reduction", std::string("add")}},
                            "scatter")};
    factors.push_back({"v"});
    INFO(before);
    const Plan plan = plan_of(b.graph, cluster_of({2}), {2}, factors);
    const Op* mask = op_named(plan.program, "scatter/Reshape");
    if (mask == nullptr) continue;  // it has the shape
    CHECK(plan.program.value(mask->outputs[0]).shape == Shape{4, 6});
  }
}

TEST_CASE("a split image: the rows between the parts are gathered", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {1, 2, 12, 6});
  b.graph.outputs = {b.op("Conv", {x, b.parameter("w", {4, 2, 3, 3})}, {1, 4, 12, 6},
                          {{"pads", std::vector<std::int64_t>{1, 1, 1, 1}}})};
  const Cluster six = cluster_of({6});
  const Plan rows = plan_of(b.graph, six, {6}, {{"s0"}});
  CHECK(collectives(rows) == std::vector<std::string>{"AllGather {nvlink} 2"});
  const Op* conv = op_named(rows.program, b.graph.ops[0].name);
  REQUIRE(conv != nullptr);
  CHECK(conv->type == "Conv");
  CHECK(conv->ints_attribute("pads") == std::vector<std::int64_t>{0, 1, 0, 1});
  CHECK(rows.program.value(conv->inputs[0]).shape == Shape{1, 2, 4, 6});
  CHECK(rows.program.value(conv->outputs[0]).shape == Shape{1, 4, 2, 6});

  // Rows, then columns of what that gives, so that corners come along.
  const Plan both = plan_of(b.graph, six, {3, 2}, {{"s0", "s1"}});
  CHECK(collectives(both) ==
        std::vector<std::string>{"AllGather {nvlink_0} 2", "AllGather {nvlink_1} 3"});
  const Op* corner = op_named(both.program, b.graph.ops[0].name);
  REQUIRE(corner != nullptr);
  CHECK(both.program.value(corner->inputs[0]).shape == Shape{1, 2, 6, 5});
}

TEST_CASE("local shapes, names, groups and boundaries", "[partition]") {
  const Plan plan = plan_of(two_matmuls(), cluster_of({4, 2}), {2, 4}, {{"m", "n"}, {"m", "k"}});
  const Graph& program = plan.program;
  CHECK(value_named(program, "X")->shape == Shape{32, 128});
  CHECK(value_named(program, "W")->shape == Shape{128, 64});
  CHECK(value_named(program, "fc1_out")->shape == Shape{32, 64});
  CHECK(value_named(program, "fc2_out")->shape == Shape{32, 32});
  CHECK(program.value(program.outputs[0]).name == "fc2_out");
  REQUIRE(op_named(program, "fc1") != nullptr);
  REQUIRE(op_named(program, "fc2") != nullptr);
  // The produced version has another name, since the model's is that of what leaves.
  CHECK(program.value(op_named(program, "fc2")->outputs[0]).name != "fc2_out");
  const Op* reduce = op_named(program, "fc2_out/AllReduce");
  REQUIRE(reduce != nullptr);
  CHECK(reduce->domain == "ai.autopar");
  CHECK(reduce->ints_attribute("groups") == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(reduce->int_attribute("group_size", 0) == 4);
  CHECK(std::get<std::vector<std::string>>(reduce->attributes.at("mesh_axes")) ==
        std::vector<std::string>{"nvlink"});
  CHECK(reduce->string_attribute("reduce_op", "") == "sum");
  CHECK(reduce->attributes.count("axes") == 0);
  REQUIRE(plan.inputs.size() == 3);
  CHECK(plan.inputs[0].name == "X");
  CHECK(plan.inputs[0].shape == Shape{64, 128});
  CHECK(to_text(plan.inputs[0].spec, plan.mesh) == "[{ib},{}]");
  CHECK(to_text(plan.inputs[2].spec, plan.mesh) == "[{nvlink},{}]");
  CHECK(to_text(plan.outputs[0].spec, plan.mesh) == "[{ib},{}]");
}

TEST_CASE("groups need not be neighbours", "[partition]") {
  const Plan plan = plan_of(two_matmuls(), cluster_of({4, 2}), {2, 4}, {{"k", ""}, {"", ""}});
  const auto found = collectives_of(plan).value();
  const auto reduce = std::find_if(found.begin(), found.end(), [](const auto& c) {
    return c.collective.kind == CollectiveKind::kAllReduce;
  });
  REQUIRE(reduce != found.end());
  CHECK(reduce->groups == std::vector<std::int64_t>{0, 4, 1, 5, 2, 6, 3, 7});
  CHECK(reduce->group_size == 2);
  CHECK(reduce->input_bytes == 64 * 256 * 4);
}

TEST_CASE("an initializer stays whole and is sliced", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16});
  const ValueId w = b.weight("w", {16, 8});
  b.graph.outputs = {b.op("MatMul", {x, w}, {8, 8}, {}, "fc")};
  const Plan plan = plan_of(b.graph, cluster_of({2, 2}), {2, 2}, {{"k", "n"}});
  CHECK(value_named(plan.program, "w")->shape == Shape{16, 8});
  CHECK(value_named(plan.program, "w")->tensor() != nullptr);
  CHECK(count(plan.program, "ShardSlice") == 2);
  const Op* fc = op_named(plan.program, "fc");
  CHECK(plan.program.value(fc->inputs[1]).shape == Shape{8, 4});
  CHECK(plan.inputs.size() == 1);  // not an input of the program
}

TEST_CASE("equal slices of equal constants are made once", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16});
  const ValueId k = b.constant("k", {8, 16});
  const ValueId same = b.constant("k", {8, 16});
  b.graph.value(same).name = "same";
  const ValueId a = b.op("Add", {x, k}, {8, 16});
  const ValueId c = b.op("Mul", {a, k}, {8, 16});
  b.graph.outputs = {b.op("Add", {c, same}, {8, 16})};
  const std::string first = rules_of(b.graph).value().rules[0].factors[0].name;
  const Plan plan = plan_of(b.graph, cluster_of({2}), {2}, {{first}, {first}, {first}});
  CHECK(count(plan.program, "ShardSlice") == 1);
  CHECK(value_named(plan.program, "same") == nullptr);
  CHECK(collectives(plan).empty());
}

TEST_CASE("a value that every reader needs whole is gathered once", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16});
  const ValueId h = b.op("Relu", {x}, {8, 16});
  const ValueId p = b.op("Relu", {h}, {8, 16});
  const ValueId q = b.op("Neg", {h}, {8, 16});
  b.graph.outputs = {b.op("Add", {p, q}, {8, 16})};
  const std::string first = rules_of(b.graph).value().rules[0].factors[0].name;
  const Plan plan = plan_of(b.graph, cluster_of({2}), {2}, {{first}, {""}, {""}, {""}});
  CHECK(collectives(plan) == std::vector<std::string>{"AllGather {nvlink} 0"});
}

TEST_CASE("a summand becomes a partial sum at its reader", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16});
  const ValueId w = b.parameter("w", {16, 8});
  const ValueId bias = b.parameter("bias", {8});
  const ValueId y = b.op("MatMul", {x, w}, {8, 8}, {}, "fc");
  b.graph.outputs = {b.op("Add", {y, bias}, {8, 8}, {}, "add")};
  const GraphRules rules = rules_of(b.graph).value();
  const auto& factors = rules.rules[1].factors;
  const auto partial = std::find_if(factors.begin(), factors.end(), [](const Factor& f) {
    return f.kind == FactorKind::kPartial && f.partial_inputs.size() == 2;
  });
  REQUIRE(partial != factors.end());
  const Plan plan = plan_of(b.graph, cluster_of({4}), {4}, {{"k"}, {partial->name}});
  // One AllReduce at the end; on all ranks but the first of a group the bias is zero.
  CHECK(collectives(plan) == std::vector<std::string>{"AllReduce {nvlink}"});
  CHECK(count(plan.program, "Where") == 1);
  CHECK(count(plan.program, "MakePartial") == 0);
  const Op* add = op_named(plan.program, "add");
  CHECK(plan.program.op(plan.program.value(add->inputs[1]).producer).type == "Where");
}

TEST_CASE("a summand of a type without Where is selected in a wider one", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8, 16}, DType::kBFloat16);
  const ValueId w = b.input("w", {16, 8}, DType::kBFloat16);
  const ValueId bias = b.input("bias", {8}, DType::kBFloat16);
  const ValueId y = b.op("MatMul", {x, w}, {8, 8}, {}, "fc");
  b.graph.outputs = {b.op("Add", {y, bias}, {8, 8}, {}, "add")};
  const GraphRules rules = rules_of(b.graph).value();
  const auto& factors = rules.rules[1].factors;
  const auto partial = std::find_if(factors.begin(), factors.end(), [](const Factor& f) {
    return f.kind == FactorKind::kPartial && f.partial_inputs.size() == 2;
  });
  REQUIRE(partial != factors.end());
  const Plan plan = plan_of(b.graph, cluster_of({4}), {4}, {{"k"}, {partial->name}});
  const auto producer = [&](ValueId v) { return plan.program.op(plan.program.value(v).producer); };
  const Op narrow = producer(op_named(plan.program, "add")->inputs[1]);
  CHECK(narrow.type == "Cast");
  CHECK(narrow.int_attribute("to", 0) == 16);
  const Op select = producer(narrow.inputs[0]);
  CHECK(select.type == "Where");
  CHECK(plan.program.value(select.inputs[1]).dtype == DType::kFloat32);
  CHECK(producer(select.inputs[1]).type == "Cast");
}

TEST_CASE("a reshard sees a dimension cut where a rank holds several blocks of it", "[partition]") {
  Graph graph;
  const ValueId x =
      graph.add_value({.name = "X", .shape = {1024, 2048}, .kind = ValueKind::kInput});
  const ValueId y = graph.add_value({.name = "Y", .shape = {1024, 2048}});
  const ValueId z = graph.add_value({.name = "Z", .shape = {1024, 2048}});
  graph.add_op({.name = "a", .type = "Relu", .inputs = {x}, .outputs = {y}});
  graph.add_op({.name = "b", .type = "Neg", .inputs = {y}, .outputs = {z}});
  graph.inputs = {x};
  graph.outputs = {z};
  // The first axis leaves the rows for the columns, from under the second one.
  const Plan plan = plan_of(graph, cluster_of({4}), {2, 2}, {{"d0", "d0"}, {"d1", "d0"}});
  CHECK(collectives(plan) ==
        std::vector<std::string>{"AllToAll {nvlink_0} 2 0", "AllToAll {nvlink_1} 0 1"});
  CHECK(types_of(plan.program) == std::vector<std::string>{"Relu", "Reshape", "AllToAll", "Reshape",
                                                           "AllToAll", "Reshape", "Neg"});
  const Value* cut = value_named(plan.program, "Y/Reshape");
  REQUIRE(cut != nullptr);
  CHECK(cut->shape == Shape{1, 256, 2048});
}

TEST_CASE("a scalar is reduced as a vector of one", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8});
  b.graph.outputs = {b.op("ReduceSum", {x}, {}, {{"keepdims", std::int64_t{0}}}, "sum")};
  const std::string factor = rules_of(b.graph).value().rules[0].factors[0].name;
  const Plan plan = plan_of(b.graph, cluster_of({2}), {2}, {{factor}});
  CHECK(types_of(plan.program) ==
        std::vector<std::string>{"ReduceSum", "Reshape", "AllReduce", "Reshape"});
  CHECK(plan.program.value(plan.program.op(OpId(2)).inputs[0]).shape == Shape{1});
  CHECK(plan.program.value(plan.program.outputs[0]).shape.empty());
}

TEST_CASE("on one device nothing is inserted", "[partition]") {
  const Plan plan = plan_of(two_matmuls(), cluster_of({1}), {1}, {{"k"}, {"m"}});
  CHECK(types_of(plan.program) == std::vector<std::string>{"MatMul", "MatMul"});
  CHECK(plan.program.value(plan.program.outputs[0]).name == "fc2_out");
}

TEST_CASE("a value may leave as it came", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {8});
  const ValueId k = b.constant("k", {8});
  const ValueId w = b.weight("w", {8});
  b.graph.outputs = {x, k, w, b.op("Relu", {x}, {8})};
  const GraphRules rules = rules_of(b.graph).value();
  const Cluster cluster = cluster_of({2});
  const Mesh mesh = make_mesh(cluster, {2}).value();
  Strategy strategy = named_strategy(b.graph, rules, mesh, {{""}});
  const Spec split{{{0}}, {}, Reduction::kSum};
  strategy.values[k.index()].output = split;
  strategy.values[w.index()].output = split;
  Result<Plan> plan = partition(b.graph, rules, strategy, cluster);
  REQUIRE(plan.ok());
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(plan->program.value(plan->program.outputs[i]).name == plan->outputs[i].name);
  }
  CHECK(plan->program.value(plan->program.outputs[1]).shape == Shape{4});
  CHECK(plan->program.value(plan->program.outputs[2]).shape == Shape{4});
  strategy.values[x.index()].output = split;
  plan = partition(b.graph, rules, strategy, cluster);
  REQUIRE(!plan.ok());
  CHECK(plan.error().message.find("'x' is an input and an output") != std::string::npos);
}

TEST_CASE("collectives are numbered and wait for each other", "[partition]") {
  Random random(11);
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  Cluster cluster = cluster_of({2, 3});
  for (int i = 0; i < 80; ++i) {
    // Where something may run beside a collective, it waits for the one before and nothing else.
    cluster.profile.name = i % 2 == 0 ? "" : "test";
    const Mesh mesh = make_mesh(cluster, {3, 2}).value();
    const Strategy strategy = random_strategy(graph, rules, mesh, random);
    const Result<Plan> plan = partition(graph, rules, strategy, cluster);
    if (!plan.ok()) continue;
    std::int64_t last = -1, calls = 0;
    std::vector<std::int64_t> behind(plan->program.values.size(), 0);  // calls on the way to it
    for (const Op& op : plan->program.ops) {
      std::int64_t before = 0;
      for (ValueId input : op.inputs) {
        if (input.valid()) before = std::max(before, behind[input.index()]);
      }
      if (!op.domain.empty()) {
        CHECK(op.int_attribute("seq", -1) > last);
        last = op.int_attribute("seq", -1);
      }
      if (!op.domain.empty() && op.type != "ShardSlice") {
        CHECK(before == calls);
        before = ++calls;
      }
      for (ValueId output : op.outputs) behind[output.index()] = before;
    }
  }
}

// Weights that are gathered one after the other, each for one product.
TEST_CASE("what a collective waits for stays in memory for that alone where it is small",
          "[partition]") {
  GraphWriter b;
  ValueId x = b.input("x", {4, 64});
  for (const char* name : {"a", "b", "c"}) {
    x = b.op("MatMul", {x, b.parameter(std::string("w") + name, {64, 64})}, {4, 64}, {}, name);
  }
  b.graph.outputs = {x};
  const GraphRules rules = rules_of(b.graph).value();
  Cluster cluster = cluster_of({2});
  const Mesh mesh = make_mesh(cluster, {2}).value();
  Strategy strategy = named_strategy(b.graph, rules, mesh, {{"m"}, {"m"}, {"m"}});
  for (std::size_t v = 0; v < b.graph.values.size(); ++v) {
    const bool is_weight = b.graph.values[v].kind == ValueKind::kParameter;
    if (is_weight) strategy.values[v].spec = {{{0}, {}}, {}, Reduction::kSum};
  }
  for (const bool ideal : {true, false}) {
    cluster.profile.name = ideal ? "" : "test";
    const Result<Plan> plan = partition(b.graph, rules, strategy, cluster);
    REQUIRE(plan.ok());
    const Graph& program = plan->program;
    int ordered = 0;
    for (const Op& op : program.ops) {
      if (op.type != "AllGather" || op.inputs.size() < 2) continue;
      ++ordered;
      const OpId maker = program.value(op.inputs[1]).producer;
      REQUIRE(maker.valid());
      CHECK((program.op(maker).type == "AllGather") == !ideal);
    }
    CHECK(ordered == 2);
  }
}

TEST_CASE("a damaged plan is refused", "[partition]") {
  const Plan good = plan_of(two_matmuls(), cluster_of({4, 2}), {2, 4}, {{"m", "n"}, {"n", "k"}});
  REQUIRE(verify(good).ok());
  REQUIRE(collectives(good).size() >= 2);
  const auto refused = [&](auto change, const std::string& what) {
    Plan plan = good;
    std::vector<Op*> collective;
    for (Op& op : plan.program.ops) {
      if (!op.domain.empty() && op.type != "ShardSlice") collective.push_back(&op);
    }
    change(plan, *collective[0], *collective[1]);
    const Status status = verify(plan);
    INFO(what << ": " << (status.ok() ? "accepted" : status.error().message));
    CHECK((!status.ok() && status.error().message.find(what) != std::string::npos));
  };
  using Ints = std::vector<std::int64_t>;
  const auto swap_ranks = [](Op& op) {
    Ints groups = op.ints_attribute("groups");
    std::swap(groups[0], groups[1]);
    op.attributes["groups"] = groups;
  };
  refused([&](Plan&, Op& a, Op&) { swap_ranks(a); }, "every rank in exactly one group");
  refused([](Plan&, Op& a, Op&) { a.attributes["group_size"] = std::int64_t{1}; }, "group_size");
  refused([](Plan&, Op& a, Op&) { a.attributes.erase("groups"); }, "groups");
  refused([](Plan&, Op& a, Op& b) { b.attributes["seq"] = a.attributes["seq"]; }, "seq");
  refused([](Plan&, Op& a, Op&) { a.type = "AllMix"; }, "is not an op of this domain");
  refused([](Plan&, Op& a, Op&) { a.attributes["mesh_axes"] = std::vector<std::string>{"pod"}; },
          "is not one of the mesh");
  refused(
      [&](Plan&, Op& a, Op&) {
        a.attributes.erase("mesh_axes");
        Ints groups = a.ints_attribute("groups");
        groups[0] = groups[1];
        a.attributes["groups"] = groups;
      },
      "every rank must be in exactly one group");
  refused([](Plan& p, Op& a, Op&) { p.program.value(a.outputs[0]).shape[0] *= 2; }, "gives");
  refused([](Plan& p, Op&, Op&) { p.inputs[0].spec = replicated(2); }, "input 0 'X'");
  refused([](Plan& p, Op&, Op&) { p.inputs[0].name = "Q"; }, "input 0 'Q' is called 'X'");
  refused([](Plan& p, Op&, Op&) { p.outputs.clear(); }, "specs are there for 0");
  refused([](Plan& p, Op&, Op&) { p.outputs[0].spec.partial = {0}; }, "output 0");
  refused([](Plan& p, Op&, Op&) { std::swap(p.program.ops[0], p.program.ops[1]); }, "");
}

TEST_CASE("shapes and axes of more bits than there are are refused", "[partition]") {
  const auto power = [](int bits) { return std::int64_t{1} << bits; };
  const auto op = [](const std::string& type, std::int64_t axis, std::int64_t concat_axis = 0) {
    return Op{.name = "c",
              .type = type,
              .domain = "ai.autopar",
              .attributes = {{"axis", axis}, {"concat_axis", concat_axis}}};
  };
  struct Row {
    Result<Shape> found;
    std::string why;
  };
  const std::vector<Row> rows = {
      {collective_output_shape(op("AllGather", 0), power(40), {power(40), 3}), "dimension 0"},
      {collective_output_shape(op("AllGather", 1), 2, {3, power(62)}), "dimension 1"},
      {collective_output_shape(op("AllToAll", 0, 1), 2, {2, power(62)}), "dimension 1"},
      {collective_output_shape(op("AllGather", power(32)), 2, {2, 4}), "axis 4294967296"},
      {collective_output_shape(op("ShardSlice", power(32)), 2, {2, 4}), "axis 4294967296"},
      {collective_output_shape(op("AllToAll", 0, power(32)), 2, {2, 4}), "concat_axis 4294967296"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.why);
    if (row.found) FAIL_CHECK("gives " + to_text(*row.found));
    if (!row.found) CHECK(row.found.error().message.find(row.why) != std::string::npos);
  }
  CHECK(*collective_output_shape(op("AllGather", 1), 2, {3, power(61)}) == Shape{3, power(62)});

  // What is read back says of such an axis that it is none.
  Plan plan = plan_of(two_matmuls(), cluster_of({4}), {4}, {{"m"}, {"n"}});
  for (Op& each : plan.program.ops) {
    if (each.type == "AllGather") each.attributes["axis"] = power(32);
  }
  const auto read = collectives_of(plan).value();
  const auto is_gather = [](const auto& c) {
    return c.collective.kind == CollectiveKind::kAllGather;
  };
  REQUIRE(std::count_if(read.begin(), read.end(), is_gather) == 1);
  CHECK(std::find_if(read.begin(), read.end(), is_gather)->collective.axis == -1);
}

TEST_CASE("the same strategy gives the same program", "[partition]") {
  const Graph graph = two_matmuls();
  const GraphRules rules = rules_of(graph).value();
  const Cluster cluster = cluster_of({2, 2});
  Random random(5);
  const Strategy strategy =
      random_strategy(graph, rules, make_mesh(cluster, {2, 2}).value(), random);
  const Plan a = partition(graph, rules, strategy, cluster).value();
  const Plan b = partition(graph, rules, strategy, cluster).value();
  CHECK(to_text(a.program) == to_text(b.program));
}

TEST_CASE("an assignment that does not divide is refused by name", "[partition]") {
  GraphWriter b;
  const ValueId x = b.input("x", {6, 16});
  const ValueId w = b.parameter("w", {16, 8});
  b.graph.outputs = {b.op("MatMul", {x, w}, {6, 8}, {}, "fc")};
  const GraphRules rules = rules_of(b.graph).value();
  const Cluster cluster = cluster_of({4});
  const Mesh mesh = make_mesh(cluster, {4}).value();
  Strategy strategy = named_strategy(b.graph, rules, mesh, {{"n"}});
  strategy.assignments[0].factor_of_axis[0] = rules.rules[0].factor_index("m");
  const Result<Plan> plan = partition(b.graph, rules, strategy, cluster);
  REQUIRE(!plan.ok());
  CHECK(plan.error().code == ErrorCode::kInput);
  CHECK(plan.error().message.find("'fc' (MatMul)") != std::string::npos);
}

}  // namespace autopar::partition_test
