// Phase ops: the readers of one phase share what they reshard from what is kept for the next; plans
// are those of the graph without them or better; files say them in the entry of the value.
#include "autopar/phase_ops.hpp"

#include <array>
#include <catch2/catch.hpp>

#include "autopar/files.hpp"
#include "autopar/hub_ops.hpp"
#include "autopar/partition.hpp"
#include "folder.hpp"
#include "graphs.hpp"

namespace autopar::phase_ops_test {

using namespace testing;

namespace {

// X x W -> H, which three ops read in the forward pass and three in the backward pass, whole; the
// six leave.
struct TwoPasses {
  GraphWriter b;
  GraphRules rules;
  Cluster cluster = small_cluster({4});
  Pins pins;

  TwoPasses() {
    const ValueId x = b.input("X", {64, 64});
    const ValueId h = b.op("MatMul", {x, b.parameter("W", {64, 64})}, {64, 64}, {}, "mm");
    for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
      for (const char* type : {"Relu", "Tanh", "Sigmoid"}) {
        const std::string name = std::string(type) + "_" + name_of(phase);
        b.graph.outputs.push_back(b.op(type, {h}, {64, 64}, {}, name));
        b.graph.ops.back().phase = phase;
        pins.ops[name].in_strategy = {{1, 1}};
      }
    }
    rules = rules_of(b.graph).value();
  }

  void add() {
    REQUIRE(add_phase_ops(b.graph) == 2);
    rules = rules_of(b.graph).value();
  }
  SearchRequest request(const std::string& searcher = "dp") {
    SearchRequest request{b.graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 1).back();
    request.pins = pins;
    request.searcher = searcher;
    return request;
  }
};

const ValueSpecs& specs_of(const Graph& graph, const Strategy& strategy, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return strategy.values[v];
  }
  FAIL("no value " + name);
  return strategy.values.front();
}

int count(const Graph& program, const std::string& type) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                        [&](const Op& op) { return op.type == type; }));
}

std::string error_of(const SearchRequest& request) {
  const auto found = search(request);
  return found ? "" : found.error().message;
}

// Two values made in the forward pass, one of the other, each read there and in the backward pass
// by up to three ops; some of them share a weight, which the update reads.
Graph two_values(std::uint64_t seed) {
  Draw draw{std::mt19937_64(seed)};
  GraphWriter b;
  const ValueId weight = b.parameter("W", {8, 8});
  const auto read = [&](ValueId x, Phase phase) {
    static constexpr std::array kTypes = {"Relu", "Transpose", "MatMul", "Softmax", "Add"};
    const std::string type = kTypes[draw.below(kTypes.size())];
    std::vector<ValueId> inputs = {x};
    std::map<std::string, Attribute> attributes;
    if (type == "Add") inputs.push_back(x);
    if (type == "MatMul") {
      const std::string name = "V" + std::to_string(b.graph.ops.size());
      inputs.push_back(draw.below(2) == 0 ? weight : b.parameter(name, {8, 8}));
    }
    if (type == "Transpose") attributes["perm"] = std::vector<std::int64_t>{1, 0};
    if (type == "Softmax") attributes["axis"] = std::int64_t{1};
    const ValueId y = b.op(type, inputs, {8, 8}, std::move(attributes));
    b.graph.ops.back().phase = phase;
    return y;
  };
  std::vector<ValueId> made = {read(b.input("X", {8, 8}), Phase::kForward)};
  made.push_back(read(made[0], Phase::kForward));
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    for (ValueId value : made) {
      for (std::size_t r = draw.below(4); r > 0; --r) b.graph.outputs.push_back(read(value, phase));
    }
  }
  b.graph.outputs.push_back(read(weight, Phase::kUpdate));
  b.graph.value(b.graph.outputs.back()).name = "new.W";
  return b.graph;
}

}  // namespace

TEST_CASE("a phase op stands before the first reader of its phase", "[phase_ops]") {
  TwoPasses graph;
  const std::string before = to_text(graph.b.graph);
  graph.add();
  const Graph& with = graph.b.graph;
  REQUIRE(verify(with).ok());
  CHECK(with.ops[1].name == "mm_out.forward");
  CHECK(with.ops[5].name == "mm_out.backward");
  CHECK(with.ops[5].phase == Phase::kBackward);
  const PhaseOps phase_ops(with);
  CHECK(phase_ops.of(with.ops[1].inputs[0], Phase::kForward) == OpId(1));
  CHECK(phase_ops.of(with.ops[1].inputs[0], Phase::kBackward) == OpId(5));
  CHECK(!phase_ops.of(with.ops[1].inputs[0], Phase::kUpdate).valid());
  CHECK(phase_ops.contains(OpId(5)));
  CHECK(!phase_ops.contains(OpId(0)));
  // What a phase shares is shared: no hub op comes on top.
  CHECK(possible_hub_ops(with).empty());
  remove_hub_ops(graph.b.graph);
  CHECK(to_text(graph.b.graph) == before);
}

TEST_CASE("phase ops are for values that several phases and several ops of one read",
          "[phase_ops]") {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 8});
  const ValueId one = b.op("ReduceSum", {x, b.ints("axes", {0, 1})}, {1, 1}, {}, "one");
  const ValueId alone = b.op("Relu", {x}, {8, 8}, {}, "alone");
  const ValueId again = b.op("Tanh", {x}, {8, 8}, {}, "again");
  const ValueId twice = b.op("Add", {alone, alone}, {8, 8}, {}, "twice");
  b.graph.outputs = {again, twice};
  const std::size_t forward = b.graph.ops.size();
  for (const ValueId v : {one, alone, again}) {
    b.graph.outputs.push_back(b.op("Neg", {v}, b.shape(v)));
    b.graph.outputs.push_back(b.op("Exp", {v}, b.shape(v)));
  }
  Graph& graph = b.graph;
  CHECK(add_phase_ops(graph) == 0);
  for (std::size_t o = forward; o < graph.ops.size(); ++o) graph.ops[o].phase = Phase::kBackward;
  // `alone` is read by one op in the forward pass; `one` is a number, X is read in one phase only,
  // and `again` too, since an output is no op.
  Graph with = graph;
  CHECK(add_phase_ops(with, [](const std::string& name) { return name == "alone_out.backward"; }) ==
        1);
  CHECK(count(with, "Identity") == 1);
  const auto added = std::find_if(with.ops.begin(), with.ops.end(), is_hub_op);
  CHECK(added->name == "alone_out.backward/1");
  CHECK(with.value(added->outputs[0]).name == "alone_out.backward");
}

TEST_CASE("what is kept split is gathered once in each phase", "[phase_ops]") {
  for (const char* searcher : {"dp", "rec", "auto", "propagate"}) {
    CAPTURE(searcher);
    TwoPasses graph;
    graph.pins.values["mm_out"] = {"[{t0},{}]", "[{},{}]", ""};
    graph.pins.values["mm_out"].kept_spec = "[{t0},{}]";
    graph.pins.values["mm_out"].backward_hub_spec = "[{},{}]";
    graph.add();
    const SearchRequest request = graph.request(searcher);
    const auto found = search(request);
    INFO((found.ok() ? std::string() : found.error().message));
    REQUIRE(found.ok());
    const auto plan = partition(request.graph, request.rules, found->strategy, request.cluster);
    REQUIRE(plan.ok());
    CHECK(count(plan->program, "AllGather") == 2);
    const ValueSpecs& kept = specs_of(request.graph, found->strategy, "mm_out");
    CHECK(kept.hub == kept.spec);
    // Gathered in the forward pass and kept so, it is gathered once and takes four times as much.
    graph.pins.values["mm_out"].kept_spec = "[{},{}]";
    const auto whole = search(graph.request(searcher));
    REQUIRE(whole.ok());
    CHECK(count(partition(request.graph, request.rules, whole->strategy, request.cluster)->program,
                "AllGather") == 1);
    const auto model = make_cost_model("roofline", graph.cluster, *request.mesh).value();
    Seconds gather = 0;
    for (const PricedCollective& step :
         model->reshard_steps({64, 64}, DType::kFloat32, kept.spec, replicated(2))) {
      gather += step.seconds;
    }
    CHECK(found->cost.total() - whole->cost.total() == Approx(gather).epsilon(1e-9));
  }
}

TEST_CASE("pins of passes that cannot be kept are refused", "[phase_ops]") {
  TwoPasses graph;
  graph.pins.values["mm_out"].update_hub_spec = "[{},{}]";
  graph.add();
  CHECK(error_of(graph.request()) ==
        "tensor 'mm_out': update_hub_spec [{},{}] cannot be kept: no op of that phase reads it");
  graph.pins.values["mm_out"] = {};
  graph.pins.values["mm_out"].backward_hub_spec = "[{t1},{}]";
  CHECK(error_of(graph.request()).rfind("tensor 'mm_out' [64,64]: backward_hub_spec: ", 0) == 0);
  graph.pins.values["mm_out"].backward_hub_spec = "[{},{}]";
  CHECK(error_of(graph.request()).empty());
}

TEST_CASE("a phase with one reader is pinned by what that reads", "[phase_ops]") {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 8});
  const ValueId h = b.op("Relu", {x}, {8, 8}, {}, "h");
  b.graph.outputs = {b.op("Tanh", {h}, {8, 8}, {}, "f"), b.op("Exp", {h}, {8, 8}, {}, "g")};
  b.graph.ops.back().phase = Phase::kBackward;
  CHECK(add_phase_ops(b.graph) == 0);
  const GraphRules rules = rules_of(b.graph).value();
  const Cluster cluster = small_cluster({4});
  SearchRequest request{b.graph, rules, cluster};
  request.mesh = mesh_candidates(cluster, 1).back();
  ValuePin& pin = request.pins.values["h_out"];
  pin = {"[{t0},{}]", "[{},{t0}]", ""};
  pin.kept_spec = "[{t0},{}]";
  pin.backward_hub_spec = "[{},{}]";
  const auto found = search(request);
  INFO((found.ok() ? std::string() : found.error().message));
  REQUIRE(found.ok());
  CHECK(to_text(specs_of(b.graph, found->strategy, "h_out").hub, *request.mesh) == "[{t0},{}]");
  const auto op_specs = op_specs_of(b.graph, rules, found->strategy).value();
  CHECK(to_text(op_specs[1].inputs[0], *request.mesh) == "[{},{t0}]");
  CHECK(to_text(op_specs[2].inputs[0], *request.mesh) == "[{},{}]");
}

TEST_CASE("a plan takes as much time with phase ops, and no more memory", "[phase_ops]") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const Graph graph = two_values(seed);
    Graph with = graph;
    if (add_phase_ops(with) == 0) continue;
    REQUIRE(verify(with).ok());
    CAPTURE(seed, to_text(graph));
    const GraphRules rules = rules_of(graph).value(), with_rules = rules_of(with).value();
    const Cluster cluster = small_cluster({2, 2});
    const Mesh mesh = mesh_candidates(cluster, 2).back();
    const Strategy plan = random_strategy(graph, rules, mesh, random);
    Strategy same{mesh, {}, plan.values};
    same.values.resize(with.values.size());
    bool handed_on = true;
    for (std::size_t o = 0, old = 0; o < with.ops.size(); ++o) {
      if (!is_hub_op(with.ops[o])) {
        same.assignments.push_back(plan.assignments[old++]);
        continue;
      }
      const Spec& hub = plan.values[with.ops[o].inputs[0].index()].hub;
      const auto assignment = handing_on(hub, with_rules.rules[o], mesh);
      handed_on &= assignment.has_value();
      same.assignments.push_back(assignment.value_or(Assignment{{-1, -1}}));
      same.values[with.ops[o].outputs[0].index()] = {hub, hub, hub};
    }
    if (!handed_on) continue;
    const auto model = make_cost_model("roofline", cluster, mesh).value();
    const auto before = evaluate(graph, rules, plan, *model);
    const auto after = evaluate(with, with_rules, same, *model);
    REQUIRE(before.ok());
    INFO((after.ok() ? std::string() : after.error().message));
    REQUIRE(after.ok());
    CHECK(after->total() == Approx(before->total()).epsilon(1e-9));
    CHECK(after->memory.total <= before->memory.total);
    ++compared;
  }
  CHECK(compared >= 50);
}

TEST_CASE("the best plan with phase ops is no worse, and files bring it back", "[phase_ops]") {
  const Folder folder;
  int compared = 0, better = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = two_values(seed);
    Graph with = graph;
    if (add_phase_ops(with) == 0) continue;
    CAPTURE(seed, to_text(graph));
    const GraphRules rules = rules_of(graph).value(), with_rules = rules_of(with).value();
    const Cluster cluster = small_cluster({2, 2});
    SearchRequest request{graph, rules, cluster}, of_with{with, with_rules, cluster};
    request.mesh = of_with.mesh = mesh_candidates(cluster, 2).back();
    const auto before = search(request), after = search(of_with);
    REQUIRE(before.ok());
    REQUIRE(after.ok());
    CHECK(after->cost.total() <= before->cost.total() * (1 + 1e-9));
    better += after->cost.total() < before->cost.total() * (1 - 1e-9);
    ++compared;

    const std::string text = strategy_to_json(with, with_rules, after->strategy, cluster, {});
    const StrategyFile file = read_strategy(folder.write("s.json", text)).value();
    for (const Op& op : with.ops) {
      CHECK(file.pins.ops.count(op.name) == (is_hub_op(op) ? 0 : 1));
    }
    CHECK(is_complete(with, file));
    const auto complete = complete_strategy(with, with_rules, cluster, file);
    INFO((complete.ok() ? std::string() : complete.error().message));
    REQUIRE(complete.ok());
    CHECK(*complete == after->strategy);
    CHECK(strategy_to_json(with, with_rules, *complete, cluster, {}) == text);
    // As pins they leave nothing else, but for equals.
    of_with.pins = file.pins;
    const auto pinned = search(of_with);
    INFO((pinned.ok() ? std::string() : pinned.error().message));
    REQUIRE(pinned.ok());
    CHECK(pinned->cost.total() == Approx(after->cost.total()).epsilon(1e-9));
  }
  CHECK(compared >= 60);
  CHECK(better >= 3);
}

}  // namespace autopar::phase_ops_test
