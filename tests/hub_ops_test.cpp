// Hub ops: readers of a pinned hub share what they reshard from it, and the plan costs the least
// that sharing can cost; graphs come back as they were; names of the user's are left alone.
#include "autopar/hub_ops.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "autopar/partition.hpp"
#include "cases.hpp"
#include "graphs.hpp"

namespace autopar::hub_ops_test {

using namespace testing;

namespace {

constexpr double kMostPlans = 2e4;

// X [64,64] x W -> H, read by three ops, each of which is pinned to take it whole.
struct Readers3 {
  GraphWriter b;
  GraphRules rules;
  Cluster cluster = small_cluster({4});
  Pins pins;

  Readers3() {
    const ValueId x = b.input("X", {64, 64});
    const ValueId h = b.op("MatMul", {x, b.parameter("W", {64, 64})}, {64, 64}, {}, "mm");
    for (const char* type : {"Relu", "Tanh", "Sigmoid"}) {
      const ValueId y = b.op(type, {h}, {64, 64}, {}, type);
      b.graph.outputs.push_back(y);
      pins.ops[type].in_strategy = {{1, 1}};
    }
    rules = rules_of(b.graph).value();
  }

  SearchRequest request(const std::string& searcher = "dp") {
    SearchRequest request{b.graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 1).back();
    request.pins = pins;
    request.searcher = searcher;
    return request;
  }
  std::vector<std::string> wanted(const SearchRequest& request) const {
    std::vector<std::string> names;
    for (const HubOp& hub_op : pinned_hub_ops(request, possible_hub_ops(b.graph))) {
      names.push_back(hub_op.name);
    }
    return names;
  }
  // As the user's commands do.
  void add() {
    add_hub_ops(b.graph, pinned_hub_ops(request(), possible_hub_ops(b.graph)));
    rules = rules_of(b.graph).value();
  }
};

int count(const Graph& program, const std::string& type) {
  return static_cast<int>(std::count_if(program.ops.begin(), program.ops.end(),
                                        [&](const Op& op) { return op.type == type; }));
}

using Names3 = std::vector<std::string>;

}  // namespace

TEST_CASE("readers of a pinned hub share one reshard", "[hub_ops]") {
  // By the hub, and by an out_strategy that is a ReduceScatter of what a split of k leaves.
  for (const bool by_counts : {false, true}) {
    for (const char* searcher : {"dp", "rec", "auto", "propagate", "exhaustive"}) {
      CAPTURE(by_counts, searcher);
      Readers3 graph;
      if (by_counts) {
        graph.pins.ops["mm"].in_strategy = {{1, 4}, {4, 1}};
        graph.pins.ops["mm"].out_strategy = {{4, 1}};
      } else {
        graph.pins.values["mm_out"].hub_spec = "[{t0},{}]";
      }
      CHECK(graph.wanted(graph.request()) == Names3{"mm_out.hub"});
      const auto apart = search(graph.request(searcher));
      REQUIRE(apart.ok());
      graph.add();
      REQUIRE(verify(graph.b.graph).ok());
      const SearchRequest request = graph.request(searcher);
      const auto found = search(request);
      REQUIRE(found.ok());
      const auto gathers = [](const SearchOutcome& outcome) {
        return std::count_if(outcome.cost.terms.begin(), outcome.cost.terms.end(),
                             [](const CostTerm& term) {
                               return term.kind == CostTerm::Kind::kCollective &&
                                      term.collective.kind == CollectiveKind::kAllGather;
                             });
      };
      CHECK(gathers(*apart) == 3);
      CHECK(gathers(*found) == 1);
      const auto plan = partition(request.graph, request.rules, found->strategy, request.cluster);
      REQUIRE(plan.ok());
      CHECK(count(plan->program, "AllGather") == 1);
      CHECK(found->cost.total() < 0.6 * apart->cost.total());
    }
  }
}

namespace {

// A value H, made of X, that three or four ops read, some of them twice, and what becomes of it.
Graph fan(Draw& draw) {
  GraphWriter b;
  ValueId h = b.input("H", {8, 12});
  if (draw.below(2) == 0) h = b.op("MatMul", {h, b.parameter("W", {12, 8})}, {8, 8}, {}, "make");
  const Shape shape = b.shape(h);
  const std::size_t readers = 3 + draw.below(2);
  for (std::size_t r = 0; r < readers; ++r) {
    const std::string name = "read" + std::to_string(r);
    const std::size_t kind = draw.below(4);
    ValueId y;
    if (kind == 0) y = b.op("Relu", {h}, shape, {}, name);
    if (kind == 1) y = b.op("Add", {h, h}, shape, {}, name);
    if (kind == 2) {
      y = b.op("Transpose", {h}, {shape[1], shape[0]}, {{"perm", std::vector<std::int64_t>{1, 0}}},
               name);
    }
    if (kind == 3) {
      y = b.op("MatMul", {h, b.parameter("V" + std::to_string(r), {shape[1], 4})}, {shape[0], 4},
               {}, name);
    }
    b.graph.outputs.push_back(y);
  }
  if (draw.below(3) == 0) b.graph.outputs.push_back(h);
  if (!b.graph.value(b.graph.outputs.back()).producer.valid()) b.graph.outputs.pop_back();
  return b.graph;
}

std::map<std::string, std::string> names_of(const Assignment& assignment, const Rule& rule,
                                            const Mesh& mesh) {
  std::map<std::string, std::string> names;
  for (std::size_t a = 0; a < mesh.axes.size(); ++a) {
    const int factor = assignment.factor_of_axis[a];
    if (factor < 0) continue;
    names[mesh.axes[a].name] = rule.factors[static_cast<std::size_t>(factor)].name;
  }
  return names;
}

// Some ops as one of their choices has them.
Pins random_pins(const SearchRequest& request, const MeshProblem& built, Draw& draw) {
  Pins pins;
  for (std::size_t o = 0; o < request.graph.ops.size(); ++o) {
    if (draw.below(4) == 0) continue;
    const auto& all = built.choices_of_op[o]->assignments;
    pins.ops[request.graph.ops[o].name].assignment =
        names_of(all[draw.below(all.size())], request.rules.rules[o], *request.mesh);
  }
  return pins;
}

// What it takes at least where readers of `value` may share one more layout on the way from its
// hub: of every plan of the problem that has the hub, what its readers pay each for itself is
// replaced.
class Sharing {
 public:
  Sharing(const Graph& graph, const MeshProblem& built, CostModel& model, ValueId value)
      : graph_(graph), built_(built), model_(model), value_(value) {
    const auto uses = uses_of(graph_);
    for (const Use& use : uses[value.index()]) {
      for (const OpSpecs& specs : built.choices_of_op[use.op.index()]->specs) {
        shared_.insert(specs.inputs[static_cast<std::size_t>(use.port)]);
      }
      readers_[use.op].push_back(static_cast<std::size_t>(use.port));
    }
    // Of what also leaves the graph the hub op may read any layout: it is not the only reader.
    const auto& outputs = graph.outputs;
    if (std::find(outputs.begin(), outputs.end(), value) == outputs.end()) return;
    Graph shared = graph;
    add_hub_ops(shared, possible_hub_ops(graph));
    const GraphRules rules = rules_of(shared).value();
    for (std::size_t o = 0; o < shared.ops.size(); ++o) {
      if (!is_hub_op(shared.ops[o])) continue;
      for (const Assignment& a : candidates(rules.rules[o], model.mesh())) {
        shared_.insert(autopar::specs_of(rules.rules[o], a, model.mesh())->inputs[0]);
      }
    }
  }

  double least() {
    const auto& nodes = built_.problem.nodes;
    const auto hub_node = static_cast<std::size_t>(built_.hub_node[value_.index()]);
    REQUIRE(built_.specs_of_node[hub_node].size() == 1);
    const Spec& hub = built_.specs_of_node[hub_node][0];
    std::vector<int> choices(nodes.size(), 0);
    double best = kInfinity;
    while (true) {
      best = std::min(best, evaluate(built_.problem, choices).cost + saved(hub, choices));
      std::size_t n = 0;
      while (n < nodes.size() && ++choices[n] == static_cast<int>(nodes[n].cost.size())) {
        choices[n++] = 0;
      }
      if (n == nodes.size()) return best;
    }
  }

 private:
  double price(const Spec& from, const Spec& to) {
    const auto [known, is_new] = prices_.try_emplace({from, to}, 0.0);
    const Value& value = graph_.value(value_);
    if (is_new) {
      known->second = model_.reshard_prices(value.shape, value.dtype, {from}, {to}).seconds[0];
    }
    return known->second;
  }

  double read_from(const Spec& from, const std::vector<int>& choices) {
    double sum = 0;
    for (const auto& [op, ports] : readers_) {
      const auto node = static_cast<std::size_t>(built_.node_of_op[op.index()]);
      const OpSpecs& specs =
          built_.choices_of_op[op.index()]->specs[static_cast<std::size_t>(choices[node])];
      std::set<Spec> needed;
      for (std::size_t port : ports) needed.insert(specs.inputs[port]);
      for (const Spec& spec : needed) sum += price(from, spec);
    }
    return sum;
  }

  // At most 0.
  double saved(const Spec& hub, const std::vector<int>& choices) {
    const double apart = read_from(hub, choices);
    double best = apart;
    for (const Spec& spec : shared_) {
      best = std::min(best, price(hub, spec) + read_from(spec, choices));
    }
    return best - apart;
  }

  const Graph& graph_;
  const MeshProblem& built_;
  CostModel& model_;
  const ValueId value_;
  std::map<OpId, std::vector<std::size_t>> readers_;
  std::set<Spec> shared_;
  std::map<std::pair<Spec, Spec>, double> prices_;
};

const ValueSpecs& specs_of(const Graph& graph, const Strategy& plan, const std::string& name) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return plan.values[v];
  }
  FAIL("no value " << name);
  return plan.values[0];
}

}  // namespace

TEST_CASE("with a hub op the search finds the least that sharing can cost", "[hub_ops]") {
  int compared = 0, cheaper = 0;
  for (std::uint64_t seed = 0; seed < cases(150u); ++seed) {
    Draw draw{std::mt19937_64(seed)};
    const Graph graph = fan(draw);
    const std::vector<HubOp> possible = possible_hub_ops(graph);
    REQUIRE(possible.size() == 1);
    const ValueId value = possible[0].value;
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster(seed % 3 == 0 ? std::vector<std::int64_t>{2, 2}
                                                        : std::vector<std::int64_t>{4});
    SearchRequest request{graph, rules, cluster};
    request.limit_memory = false;
    request.mesh = mesh_candidates(cluster, 2).back();
    const auto model = make_cost_model("roofline", cluster, *request.mesh).value();
    const auto free = build_problem(request, *model);
    REQUIRE(free.ok());
    request.pins = random_pins(request, *free, draw);
    const std::string name = graph.value(value).name;
    const auto hub_node = static_cast<std::size_t>(free->hub_node[value.index()]);
    const Spec hub =
        free->specs_of_node[hub_node][draw.below(free->specs_of_node[hub_node].size())];
    request.pins.values[name].hub_spec = to_text(hub, *request.mesh);
    REQUIRE(pinned_hub_ops(request, possible).size() == 1);
    const auto pinned = build_problem(request, *model);
    REQUIRE(pinned.ok());
    if (combinations(pinned->problem) > kMostPlans) continue;
    CAPTURE(seed, to_text(graph), request.pins.values[name].hub_spec);
    const double least = Sharing(graph, *pinned, *model, value).least();
    const double apart = search(request).value().cost.total();

    Graph shared = graph;
    add_hub_ops(shared, possible);
    REQUIRE(verify(shared).ok());
    const GraphRules shared_rules = rules_of(shared).value();
    SearchRequest of_shared{shared, shared_rules, cluster};
    of_shared.limit_memory = false;
    of_shared.mesh = request.mesh;
    of_shared.pins = request.pins;
    for (const char* searcher : {"dp", "rec", "auto", "propagate", "data_parallel", "replicate"}) {
      of_shared.searcher = searcher;
      const auto found = search(of_shared);
      INFO(searcher << ": " << (found.ok() ? std::string() : found.error().message));
      REQUIRE(found.ok());
      CHECK(specs_of(shared, found->strategy, name).hub == hub);
      CHECK(found->cost.total() >= least * (1 - 1e-9));
      if (searcher != std::string("dp")) continue;
      CHECK(found->cost.total() == Approx(least).epsilon(1e-9));
      CHECK(found->lower_bound == Approx(least).epsilon(1e-9));
      CHECK(partition(shared, shared_rules, found->strategy, cluster).ok());
      cheaper += found->cost.total() < apart * (1 - 1e-9);
    }
    ++compared;
  }
  CHECK(compared >= cases(60));
  CHECK(cheaper >= cases(20));
}

TEST_CASE("a plan takes as much time with a hub op, and no more memory", "[hub_ops]") {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Graph graph = mixed_graph(seed, 6);
    const std::vector<HubOp> possible = possible_hub_ops(graph);
    if (possible.empty()) continue;
    CAPTURE(seed, to_text(graph));
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster({2, 2});
    Random random(seed);
    const Mesh mesh = mesh_candidates(cluster, 2).back();
    Strategy plan = random_strategy(graph, rules, mesh, random);
    // The values that get none stand where they stood, and so do the ops.
    Graph shared = graph;
    add_hub_ops(shared, possible);
    const GraphRules shared_rules = rules_of(shared).value();
    Strategy same{mesh, {}, plan.values};
    bool handed_on = true;
    for (std::size_t o = 0, old = 0; o < shared.ops.size(); ++o) {
      if (!is_hub_op(shared.ops[o])) {
        same.assignments.push_back(plan.assignments[old++]);
        continue;
      }
      const Spec& hub = plan.values[shared.ops[o].inputs[0].index()].hub;
      Assignment assignment{std::vector<int>(mesh.axes.size(), -1)};
      for (const Assignment& a : candidates(shared_rules.rules[o], mesh)) {
        if (autopar::specs_of(shared_rules.rules[o], a, mesh)->inputs[0] == hub) assignment = a;
      }
      handed_on &= autopar::specs_of(shared_rules.rules[o], assignment, mesh)->inputs[0] == hub;
      same.assignments.push_back(std::move(assignment));
    }
    if (!handed_on) continue;
    for (const HubOp& hub_op : possible) {
      const Spec& hub = plan.values[hub_op.value.index()].hub;
      same.values.push_back({hub, hub, hub});
    }
    for (const char* name : {"roofline", "mindspore", "symbolic"}) {
      CAPTURE(name);
      const auto model = make_cost_model(name, cluster, mesh).value();
      const auto before = evaluate(graph, rules, plan, *model);
      const auto after = evaluate(shared, shared_rules, same, *model);
      REQUIRE(before.ok());
      INFO((after.ok() ? std::string() : after.error().message));
      REQUIRE(after.ok());
      CHECK(after->total() == Approx(before->total()).epsilon(1e-9));
      CHECK(after->memory.total <= before->memory.total);
    }
    ++compared;
    remove_hub_ops(shared);
    CHECK(to_text(shared) == to_text(graph));
  }
  CHECK(compared >= 50);
}

TEST_CASE("hub ops get names that nobody has", "[hub_ops]") {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 8});
  b.graph.values[x.index()].name = "X";
  const ValueId a = b.op("Relu", {x}, {8, 8}, {}, "X.hub");
  const ValueId y = b.op("Tanh", {x}, {8, 8}, {}, "tanh");
  b.graph.values[y.index()].name = "X.hub";
  b.graph.outputs = {a, b.op("Add", {y, y}, {8, 8}, {}, "add")};
  auto found = possible_hub_ops(b.graph);
  REQUIRE(found.size() == 1);  // not of what one op reads twice
  CHECK(found[0].name == "X.hub/1");
  CHECK(found[0].output == "X.hub/1");
  found = possible_hub_ops(b.graph, [](const std::string& name) { return name == "X.hub/1"; });
  CHECK(found[0].name == "X.hub/2");
  CHECK(found[0].output == "X.hub/1");
  const std::string before = to_text(b.graph);
  add_hub_ops(b.graph, found);
  CHECK(verify(b.graph).ok());
  CHECK(b.graph.ops[0].name == "X.hub/2");
  CHECK(count(b.graph, "Identity") == 1);
  CHECK(to_text(b.graph) != before);
  remove_hub_ops(b.graph);
  CHECK(to_text(b.graph) == before);
}

TEST_CASE("hub ops are for pinned hubs that several ops read", "[hub_ops]") {
  Readers3 graph;
  CHECK(graph.wanted(graph.request()).empty());
  // How it is made is no hub; nor are outputs, and what one op reads.
  graph.pins.values["mm_out"].spec = "[{t0},{}]";
  graph.pins.values["X"].hub_spec = "[{t0},{}]";
  graph.pins.values["Relu_out"].hub_spec = "[{},{}]";
  CHECK(graph.wanted(graph.request()).empty());
  // What no op leaves is no Identity's either, and the search takes it as before.
  graph.pins = {};
  graph.cluster = small_cluster({2, 2});
  const auto on_two_axes = [&](const std::string& hub) {
    graph.pins.values["mm_out"].hub_spec = hub;
    SearchRequest request = graph.request();
    request.mesh.reset();
    const auto found = search(request);
    INFO(hub << ": " << (found.ok() ? std::string() : found.error().message));
    CHECK(found.ok());
    return graph.wanted(request);
  };
  CHECK(on_two_axes("[{t1,t0},{}]") == Names3{"mm_out.hub"});
  CHECK(on_two_axes("[{t0,t1},{}]").empty());
  CHECK(on_two_axes("[{t1},{}] +{t0}") == Names3{"mm_out.hub"});
  // A count that the op leaves as it is needs none either.
  graph.pins = {};
  graph.pins.ops["mm"].out_strategy = {{4, 1}};
  CHECK(graph.wanted(graph.request()).empty());
  // MindSpore's readers each reshard for themselves.
  graph.pins.values["mm_out"].hub_spec = "[{t1},{}]";
  SearchRequest request = graph.request();
  request.mesh.reset();
  CHECK(graph.wanted(request) == Names3{"mm_out.hub"});
  request.cost_model = "mindspore";
  CHECK(graph.wanted(request).empty());
}

}  // namespace autopar::hub_ops_test
