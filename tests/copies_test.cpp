// Interleaved passes of a training step: what their program is, how long it takes, what it holds.
#include "autopar/copies.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "autopar/cost.hpp"
#include "autopar/grad.hpp"
#include "autopar/phases.hpp"
#include "autopar/search.hpp"
#include "graphs.hpp"

namespace autopar::copies_test {

using namespace testing;

namespace {

// Two layers split over the four devices as a tensor-parallel block is, and their update.
struct Trained {
  Graph graph;
  GraphRules rules;
  Cluster cluster = small_cluster({2, 2});
  Strategy strategy;
  StrategyCost cost;

  explicit Trained(std::int64_t passes, std::int64_t copies = 1, const char* profile = "") {
    GraphWriter b;
    const ValueId x = b.input("X", {8, 12});
    const ValueId h = b.op("MatMul", {x, b.parameter("W1", {12, 8})}, {8, 8}, {}, "fc1");
    const ValueId r = b.op("Tanh", {h}, {8, 8}, {}, "act");
    const ValueId y = b.op("MatMul", {r, b.parameter("W2", {8, 4})}, {8, 4}, {}, "fc2");
    b.graph.outputs = {y};
    TrainingOptions options;
    options.loss = "mse";
    options.micro_batches = passes;
    auto step = training_step(std::move(b.graph), options);
    REQUIRE(step.ok());
    graph = std::move(step->graph);
    mark_accumulators(graph);
    graph.copies = copies;
    cluster.profile.name = profile;
    rules = *rules_of(graph);
    SearchRequest request{graph, rules, cluster};
    request.limit_memory = false;
    request.mesh = *make_mesh(cluster, {2, 2});
    request.pins.ops["fc1"].assignment = {{"t1", "m"}, {"t0", "n"}};
    request.pins.ops["fc2"].assignment = {{"t1", "m"}, {"t0", "k"}};
    const auto found = search(request);
    INFO((found ? "" : found.error().message));
    REQUIRE(found);
    strategy = found->strategy;
    cost = found->cost;
  }

  // Of one pass.
  Plan pass() const {
    const auto parts = parts_of(graph, rules, strategy);
    REQUIRE(parts);
    const auto plan =
        partition(parts->pass.graph, parts->pass.rules, parts->pass.strategy, cluster);
    REQUIRE(plan);
    return *plan;
  }
};

bool exchanges(const Op& op) { return op.domain == "ai.autopar" && op.type != "ShardSlice"; }

// By name: which copy an op is of.
int copy_of(const Op& op) { return op.name.find(".copy1") != std::string::npos ? 1 : 0; }

const Op& maker_of(const Graph& program, const std::string& value) {
  for (const Op& op : program.ops) {
    for (const ValueId output : op.outputs) {
      if (output.valid() && program.value(output).name == value) return op;
    }
  }
  FAIL("nothing makes " << value);
  return program.ops.front();
}

}  // namespace

TEST_CASE("the program of two copies is that of one twice, in turns", "[copies]") {
  const Trained trained(4);
  const Plan pass = trained.pass();
  const std::vector<MicroInput> inputs = {{"X", 0}, {"labels", 0}};
  const std::vector<StepOutput> outputs = {{"loss", Combining::kMean}};
  const auto both = interleave_copies(pass, 2, inputs, outputs);
  REQUIRE(both);
  CHECK(verify(*both));
  const Graph& program = both->program;

  const auto count = [](const Graph& graph, const auto& matches) {
    return std::count_if(graph.ops.begin(), graph.ops.end(), matches);
  };
  REQUIRE(count(pass.program, exchanges) > 1);
  CHECK(count(program, exchanges) == 2 * count(pass.program, exchanges));
  const auto multiplies = [](const Op& op) { return op.type == "MatMul"; };
  CHECK(count(program, multiplies) == 2 * count(pass.program, multiplies));

  // Both read the weights; data are there for two, everything leaves once and under its name.
  REQUIRE(both->inputs.size() == pass.inputs.size());
  for (std::size_t i = 0; i < pass.inputs.size(); ++i) {
    const bool is_data = pass.inputs[i].name == "X" || pass.inputs[i].name == "labels";
    CHECK(both->inputs[i].shape[0] == (is_data ? 2 : 1) * pass.inputs[i].shape[0]);
    CHECK(both->inputs[i].spec == pass.inputs[i].spec);
  }
  REQUIRE(both->outputs.size() == pass.outputs.size());
  for (std::size_t o = 0; o < pass.outputs.size(); ++o) {
    CHECK(program.value(program.outputs[o]).name == pass.outputs[o].name);
  }
  const Op& cut = maker_of(program, "X.copy1");
  CHECK(cut.type == "Slice");
  CHECK(constant_ints(program, cut, 1) == std::vector<std::int64_t>{1});
  CHECK(constant_ints(program, cut, 4) == std::vector<std::int64_t>{2});

  // The second copy adds to what the first has added.
  const Op& second = maker_of(program, "new.acc.W1");
  const Op& first = maker_of(program, "new.acc.W1.copy0");
  CHECK(copy_of(second) == 1);
  CHECK(std::find(second.inputs.begin(), second.inputs.end(), first.outputs[0]) !=
        second.inputs.end());

  // Behind the collectives of one come ops of the other.
  int turns = 0;
  for (std::size_t o = 1; o < program.ops.size(); ++o) {
    const Op& op = program.ops[o];
    const bool ends = exchanges(program.ops[o - 1]) && !exchanges(op);
    if (!ends) continue;
    ++turns;
    INFO(program.ops[o - 1].name << ", " << op.name);
    CHECK(copy_of(op) != copy_of(program.ops[o - 1]));
  }
  CHECK(turns > 2);
}

TEST_CASE("the program of two copies has their ops in the order of the turns", "[copies]") {
  const Trained trained(4);
  const Plan pass = trained.pass();
  std::vector<std::string> collectives;
  for (const Op& op : pass.program.ops) {
    if (exchanges(op)) collectives.push_back(op.name);
  }
  REQUIRE(collectives.size() > 2);
  // The first copy sends two of them before the second begins.
  std::vector<CopyTurn> turns = {{0}, {0}, {1}, {1, "fc2"}};
  for (std::size_t c = 2; c < collectives.size(); ++c) turns.push_back({0});
  for (std::size_t c = 1; c < collectives.size(); ++c) turns.push_back({1});
  const std::vector<MicroInput> inputs = {{"X", 0}, {"labels", 0}};
  const std::vector<StepOutput> outputs = {{"loss", Combining::kMean}};
  const auto both = interleave_copies(pass, 2, inputs, outputs, turns);
  REQUIRE(both);
  std::vector<int> order;
  for (const Op& op : both->program.ops) {
    if (exchanges(op)) order.push_back(copy_of(op));
  }
  std::vector<int> expected = {0, 0, 1};
  expected.insert(expected.end(), collectives.size() - 2, 0);
  expected.insert(expected.end(), collectives.size() - 1, 1);
  CHECK(order == expected);

  // Of which copy sends what is not all said: in sections.
  turns.pop_back();
  const auto without = interleave_copies(pass, 2, inputs, outputs);
  const auto partly = interleave_copies(pass, 2, inputs, outputs, turns);
  REQUIRE(partly);
  CHECK(to_text(partly->program) == to_text(without->program));
  CHECK(to_text(partly->program) != to_text(both->program));
}

TEST_CASE("a copy that reads what another has yet to make comes behind it", "[copies]") {
  // The sum is gathered before something is added to it, and split again.
  Graph graph;
  const auto value = [&](const char* name, Shape shape, ValueKind kind) {
    return graph.add_value({.name = name, .shape = std::move(shape), .kind = kind});
  };
  const ValueId x = value("X", {4}, ValueKind::kInput);
  const ValueId acc = value("acc.w", {2}, ValueKind::kParameter);
  const ValueId whole = value("whole", {4}, ValueKind::kActivation);
  const ValueId sum = value("sum", {4}, ValueKind::kActivation);
  const ValueId next = value("new.acc.w", {2}, ValueKind::kActivation);
  graph.inputs = {x, acc};
  const std::map<std::string, Attribute> over_all = {{"axis", std::int64_t{0}},
                                                     {"groups", IntList({0, 1})},
                                                     {"seq", std::int64_t{0}},
                                                     {"mesh_axes", std::vector<std::string>{"d"}},
                                                     {"group_size", std::int64_t{2}}};
  std::map<std::string, Attribute> summed = over_all;
  summed["reduce_op"] = std::string("sum");
  summed["seq"] = std::int64_t{1};
  graph.add_op({.name = "gather",
                .type = "AllGather",
                .domain = "ai.autopar",
                .inputs = {acc},
                .outputs = {whole},
                .attributes = over_all});
  graph.add_op({.name = "add", .type = "Add", .inputs = {whole, x}, .outputs = {sum}});
  graph.add_op({.name = "split",
                .type = "ReduceScatter",
                .domain = "ai.autopar",
                .inputs = {sum},
                .outputs = {next},
                .attributes = summed});
  graph.outputs = {next};
  const Mesh mesh{{{"d", 2, 0, 1}}};
  const Spec split{{{0}}, {}};
  Plan pass{graph,
            mesh,
            {{"X", DType::kFloat32, {4}, replicated(1)}, {"acc.w", DType::kFloat32, {4}, split}},
            {{"new.acc.w", DType::kFloat32, {4}, split}}};
  const Status good = verify(pass);
  INFO((good ? "" : good.error().message));
  REQUIRE(good);
  const auto both = interleave_copies(pass, 2, {{"X", 0}}, {});
  REQUIRE(both);
  std::vector<std::string> order;
  for (const Op& op : both->program.ops) {
    if (op.type != "Slice") order.push_back(op.name);
  }
  CHECK(order == std::vector<std::string>{"gather", "add", "split", "gather.copy1", "add.copy1",
                                          "split.copy1"});
}

namespace {

// a, a collective of what it makes, b; in so many passes of which two are interleaved or none.
struct ByHand {
  Graph graph;
  StrategyCost cost;
  Cluster cluster = small_cluster({2});
  Mesh mesh = *make_mesh(cluster, {2});

  explicit ByHand(std::int64_t copies) {
    GraphWriter b;
    const ValueId y = b.op("Relu", {b.input("X", {4})}, {4}, {}, "a");
    b.graph.outputs = {b.op("Relu", {y}, {4}, {}, "b")};
    graph = b.graph;
    graph.passes = 2;
    graph.copies = copies;
    const auto add = [&](CostTerm::Kind kind, int op, ValueId value, Seconds once) {
      CostTerm term;
      term.kind = kind;
      term.op = OpId(op);
      term.value = value;
      term.collective.kind = CollectiveKind::kAllReduce;
      term.collective.axes = {0};
      term.seconds = 2 * once;
      term.times = 2;
      cost.terms.push_back(term);
    };
    add(CostTerm::Kind::kCompute, 0, {}, 3);
    add(CostTerm::Kind::kCollective, 1, y, 2);
    add(CostTerm::Kind::kCompute, 1, {}, 4);
    cluster.profile.name = "by hand";
  }
  StepTime time() const { return simulate(graph, cost, mesh, cluster); }
};

}  // namespace

TEST_CASE("collectives of one copy go beside the compute of the other", "[copies]") {
  CHECK(ByHand(1).time().seconds == Approx(18));
  ByHand two(2);
  // 0-3 a, 3-6 a', 6-10 b, 10-14 b'; the collectives 3-5 and 6-8.
  CHECK(two.time().seconds == Approx(14));
  CHECK(two.time().busy.compute == Approx(14));
  CHECK(two.time().busy.links[0] == Approx(4));
  CHECK(two.time().exposed[1] == Approx(0).margin(1e-12));
  const std::vector<StepEvent> events =
      step_events(two.graph, two.cost, two.mesh, two.cluster, "new.*");
  REQUIRE(events.size() >= 6);
  Seconds end = 0;
  for (const StepEvent& event : events) end = std::max(end, event.begin + event.seconds);
  CHECK(end == Approx(14));

  // What a collective takes of the compute beside it.
  two.cluster.profile.slowdown = 0.1;
  CHECK(two.time().seconds == Approx(14.4));
  CHECK(two.time().exposed[1] == Approx(0.4));

  // One that takes longer than the other copy computes: 0-3 a, 3-6 a', 3-10 and 10-17 the
  // collectives, 10-14 b, 17-21 b'.
  two.cluster.profile.slowdown = 0;
  two.cost.terms[1].seconds = 14;
  CHECK(two.time().seconds == Approx(21));
  CHECK(two.time().exposed[1] == Approx(4 + 3));
  ByHand one(1);
  one.cost.terms[1].seconds = 14;
  CHECK(one.time().seconds == Approx(28));
}

TEST_CASE("what one copy sends in its backward pass need not wait for the forward pass of another",
          "[copies]") {
  ByHand two(2);
  two.graph.ops[1].phase = Phase::kBackward;
  two.cost.terms[1].seconds = 2 * 100;
  // 0-3 a, 3-6 a', 3-103 and 103-203 the collectives, 203-207 b'.
  CHECK(two.time().seconds == Approx(207));
  CHECK(two.time().busy.tail == Approx(203));
}

TEST_CASE("each copy has its activations in memory, and all have the weights", "[copies]") {
  const Trained one(4), two(4, 2);
  RooflineModel model(one.cluster, one.strategy.mesh);
  const auto single = evaluate(one.graph, one.rules, one.strategy, model);
  const auto both = evaluate(two.graph, two.rules, one.strategy, model);
  REQUIRE(single);
  REQUIRE(both);
  CHECK(both->memory.total > single->memory.total);
  CHECK(both->memory.total < 2 * single->memory.total);
  // By ideal prices, which know of nothing that goes on beside something, time is the same.
  CHECK(both->time() == single->time());
}

TEST_CASE("the memory of interleaved passes is what their search limits", "[copies]") {
  const Trained free(4, 2);
  SearchRequest request{free.graph, free.rules, free.cluster};
  request.mesh = free.strategy.mesh;
  request.memory_limit = free.cost.memory.total - 1;
  const auto found = search(request);
  if (found) CHECK(found->cost.memory.total <= request.memory_limit);
  request.memory_limit = free.cost.memory.total;
  const auto fits = search(request);
  REQUIRE(fits);
  CHECK(fits->cost.memory.total <= request.memory_limit);
}

}  // namespace autopar::copies_test
