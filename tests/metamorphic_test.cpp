// What must not change an optimum, or change it in a known way: names, the order of nodes and ops,
// the unit of cost, readers that are told apart, parts that cost nothing. The transformed problem
// is another one to the solver, so that agreement says more than a repeated run.
#include <catch2/catch.hpp>
#include <numeric>

#include "cases.hpp"
#include "graphs.hpp"
#include "problem_checks.hpp"

namespace autopar::metamorphic_test {

using namespace testing;

namespace {

using Change = Problem (*)(Problem problem, Generator& generator);

Problem in_another_order(Problem problem, Generator& generator) {
  return shuffled(problem, static_cast<unsigned>(generator.below(1 << 30)));
}

// Each edge's cost becomes that of two edges between the same nodes.
Problem with_halved_edges(Problem problem, Generator&) {
  const std::size_t edges = problem.edges.size();
  for (std::size_t e = 0; e < edges; ++e) {
    if (problem.edges[e].cost_table < 0) continue;
    CostTable half = problem.tables[static_cast<std::size_t>(problem.edges[e].cost_table)];
    for (double& value : half.values) value /= 2;
    problem.edges[e].cost_table = problem.add_table(std::move(half));
    problem.edges.push_back(problem.edges[e]);
    problem.edges.back().uses.clear();
  }
  return problem;
}

// A node's costs become those of a second node that must choose alike, with some of its edges.
Problem with_split_readers(Problem problem, Generator& generator) {
  const int count = static_cast<int>(problem.nodes.size());
  for (int n = 0; n < count; ++n) {
    if (generator.chance(0.5)) continue;
    const std::size_t choices = problem.nodes[static_cast<std::size_t>(n)].cost.size();
    const int twin = static_cast<int>(problem.nodes.size());
    problem.nodes.push_back({"twin", std::vector<double>(choices, 0.0), {}});
    for (ProblemEdge& edge : problem.edges) {
      if (edge.from == n && generator.chance(0.5)) edge.from = twin;
      if (edge.to == n && edge.from != twin && generator.chance(0.5)) edge.to = twin;
    }
    CostTable alike{static_cast<int>(choices), static_cast<int>(choices), {}};
    for (std::size_t i = 0; i < choices * choices; ++i) {
      alike.values.push_back(i % (choices + 1) == 0 ? 0.0 : kInfinity);
    }
    const int table = problem.add_table(std::move(alike));
    problem.edges.push_back({n, twin, table, {}});
  }
  return problem;
}

Problem with_free_nodes(Problem problem, Generator& generator) {
  const int count = static_cast<int>(problem.nodes.size());
  for (int n = 0; n < count; ++n) {
    const int added = static_cast<int>(problem.nodes.size());
    const int choices = 1 + generator.below(4);
    problem.nodes.push_back(
        {"free", std::vector<double>(static_cast<std::size_t>(choices), 0), {}});
    if (generator.chance(0.3)) continue;
    const int rows = static_cast<int>(problem.nodes[static_cast<std::size_t>(n)].cost.size());
    CostTable table{rows, choices, {}};
    // Whatever the node chooses, one choice of the free one costs nothing.
    for (int r = 0; r < rows; ++r) {
      const int cheap = generator.below(choices);
      for (int c = 0; c < choices; ++c) table.values.push_back(c == cheap ? 0 : generator.below(3));
    }
    problem.edges.push_back({n, added, problem.add_table(std::move(table)), {}});
  }
  return problem;
}

// Costs move from the nodes to edges to a node without a choice.
Problem with_costs_on_edges(Problem problem, Generator&) {
  const int count = static_cast<int>(problem.nodes.size());
  problem.nodes.push_back({"only", {0}, {}});
  for (int n = 0; n < count; ++n) {
    std::vector<double>& costs = problem.nodes[static_cast<std::size_t>(n)].cost;
    CostTable table{static_cast<int>(costs.size()), 1, costs};
    std::fill(costs.begin(), costs.end(), 0.0);
    problem.edges.push_back({n, count, problem.add_table(std::move(table)), {}});
  }
  return problem;
}

// The use of one node split over time and over two entries, the limit shifted by a base use.
Problem with_split_uses(Problem problem, Generator& generator) {
  for (ProblemNode& node : problem.nodes) {
    const std::size_t uses = node.uses.size();
    for (std::size_t u = 0; u < uses; ++u) {
      NodeUse rest = node.uses[u];
      const int cut = rest.begin + generator.below(rest.end - rest.begin + 1);
      node.uses[u].end = cut;
      rest.begin = cut;
      node.uses.push_back(rest);
    }
  }
  problem.base_use += 3;
  problem.use_limit += 3;
  return problem;
}

struct NamedChange {
  const char* name;
  Change change;
};
constexpr NamedChange kChanges[] = {
    {"another order", in_another_order},     {"halved edges", with_halved_edges},
    {"split readers", with_split_readers},   {"free nodes", with_free_nodes},
    {"costs on edges", with_costs_on_edges}, {"split uses", with_split_uses}};

Recipe recipe_of(Generator& generator, unsigned seed) {
  Recipe recipe;
  recipe.topology = kTopologies[seed % 7];
  recipe.nodes = 2 + generator.below(7);
  recipe.most_choices = 2 + generator.below(4);
  recipe.parallel = generator.chance(0.3);
  recipe.forbidden = generator.chance(0.3);
  recipe.ties = generator.chance(0.3);
  recipe.uses = generator.chance(0.6);
  recipe.edge_uses = generator.chance(0.5);
  recipe.tightness = 0.8 * generator.unit();
  return recipe;
}

// --- graphs

SearchRequest request_of(const Graph& graph, const GraphRules& rules, const Cluster& cluster) {
  SearchRequest request{graph, rules, cluster};
  request.limit_memory = false;
  request.max_axes = 3;
  return request;
}

SearchOutcome best_of(const Graph& graph, const Cluster& cluster) {
  INFO(to_text(graph));
  REQUIRE(verify(graph).ok());
  const GraphRules rules = rules_of(graph).value();
  const auto outcome = search(request_of(graph, rules, cluster));
  REQUIRE(outcome.ok());
  CHECK(outcome->gap() <= 1e-9);
  return *outcome;
}

// The ops in another order in which every op comes after those it reads from.
Graph reordered(const Graph& graph, Draw& draw) {
  Graph result = graph;
  result.ops.clear();
  std::vector<char> done(graph.ops.size(), 0);
  while (result.ops.size() < graph.ops.size()) {
    const std::size_t o = draw.below(graph.ops.size());
    const bool ready =
        std::all_of(graph.ops[o].inputs.begin(), graph.ops[o].inputs.end(), [&](ValueId v) {
          const OpId producer = graph.value(v).producer;
          return !producer.valid() || done[producer.index()] != 0;
        });
    if (done[o] != 0 || !ready) continue;
    done[o] = 1;
    result.add_op(graph.ops[o]);
  }
  return result;
}

// Names say nothing but which output is the next value of which input.
Graph renamed(Graph graph) {
  const auto other = [](const std::string& name) {
    const std::string next = "new.";
    return name.rfind(next, 0) == 0 ? next + "zz" + name.substr(next.size()) : "zz" + name;
  };
  for (Op& op : graph.ops) op.name = op.origin_name = other(op.name);
  for (Value& value : graph.values) value.name = other(value.name);
  return graph;
}

// A Reshape to the same shape, which costs nothing, between a value and its readers from `first`
// on.
Graph with_view(const Graph& graph, ValueId value, std::size_t first) {
  const std::vector<Use> uses = uses_of(graph)[value.index()];
  Graph result = graph;
  result.ops.clear();
  const auto add_view = [&] {
    const Shape shape = graph.value(value).shape;
    Value target;
    target.name = "view_shape";
    target.dtype = DType::kInt64;
    target.shape = {static_cast<std::int64_t>(shape.size())};
    target.kind = ValueKind::kConstant;
    target.data = int64_tensor(target.shape, shape);
    Value out = graph.value(value);
    out.name = "view";
    out.kind = ValueKind::kActivation;
    const ValueId to = result.add_value(target), view = result.add_value(out);
    result.add_op({.name = "view",
                   .type = "Reshape",
                   .inputs = {value, to},
                   .outputs = {view},
                   .origin_name = "view",
                   .origin_type = "Reshape"});
    return view;
  };
  ValueId view;
  if (!graph.value(value).producer.valid()) view = add_view();
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    Op op = graph.ops[o];
    for (std::size_t u = first; u < uses.size(); ++u) {
      if (uses[u].op.index() == o) op.inputs[static_cast<std::size_t>(uses[u].port)] = view;
    }
    result.add_op(op);
    if (graph.value(value).producer == OpId(static_cast<std::int64_t>(o))) view = add_view();
  }
  return result;
}

// Two graphs side by side.
Graph joined(const Graph& one, const Graph& other) {
  Graph result = one;
  const auto offset = static_cast<std::int64_t>(one.values.size());
  const auto moved = [&](ValueId v) { return v.valid() ? ValueId(v.value + offset) : v; };
  for (Value value : renamed(other).values) result.add_value(value);
  for (Op op : renamed(other).ops) {
    for (ValueId& v : op.inputs) v = moved(v);
    for (ValueId& v : op.outputs) v = moved(v);
    result.add_op(op);
  }
  for (ValueId v : other.inputs) result.inputs.push_back(moved(v));
  for (ValueId v : other.outputs) result.outputs.push_back(moved(v));
  return result;
}

// Everything costs twice as many seconds.
class Doubled final : public CostModel {
 public:
  explicit Doubled(CostModel& model) : model_(model) {}
  const Mesh& mesh() const override { return model_.mesh(); }
  const Cluster& cluster() const override { return model_.cluster(); }
  Result<OpPrice> op_price(const Graph& graph, const Op& op, const Rule& rule,
                           const Assignment& assignment, const OpSpecs& specs) override {
    AUTOPAR_TRY(price, model_.op_price(graph, op, rule, assignment, specs));
    price.compute *= 2;
    for (PricedCollective& c : price.collectives) c.seconds *= 2;
    return price;
  }
  ReshardTable reshard_prices(const Shape& shape, DType dtype, const std::vector<Spec>& from,
                              const std::vector<Spec>& to) override {
    auto prices = model_.reshard_prices(shape, dtype, from, to);
    for (Seconds& seconds : prices.seconds) seconds *= 2;
    return prices;
  }
  std::vector<PricedCollective> reshard_steps(const Shape& shape, DType dtype, const Spec& from,
                                              const Spec& to) override {
    auto steps = model_.reshard_steps(shape, dtype, from, to);
    for (PricedCollective& step : steps) step.seconds *= 2;
    return steps;
  }

 private:
  CostModel& model_;
};

struct Case {
  Graph graph;
  Cluster cluster;
};
Case random_case(std::uint64_t seed) {
  const std::vector<std::vector<std::int64_t>> clusters = {{2},    {4},    {6},
                                                           {2, 2}, {2, 3}, {2, 2, 2}};
  const int ops = 2 + static_cast<int>(seed % 6);
  return {seed % 2 == 0 ? random_graph(seed, ops) : mixed_graph(seed, ops),
          small_cluster(clusters[seed % clusters.size()])};
}

bool is_output(const Graph& graph, ValueId value) {
  return std::find(graph.outputs.begin(), graph.outputs.end(), value) != graph.outputs.end();
}

}  // namespace

TEST_CASE("problems written otherwise have the same optimum", "[property]") {
  for (unsigned seed = 0; seed < cases(1200u); ++seed) {
    Generator generator(seed + 2000000);
    const Problem problem = generator.make(recipe_of(generator, seed));
    const Solution found = solve_dp(problem, {});
    for (const auto& [name, change] : kChanges) {
      INFO("seed " << seed << ", " << name);
      const Problem other = change(problem, generator);
      REQUIRE(verify(other).ok());
      const Solution again = solve_dp(other, {});
      check_claims(other, again);
      REQUIRE(again.feasible == found.feasible);
      if (!found.feasible) continue;
      CHECK(close(again.cost, found.cost));
      CHECK(close(again.lower_bound, found.lower_bound));
      CHECK(close(again.unlimited_lower_bound, found.unlimited_lower_bound));
    }
  }
}

TEST_CASE("names and units of a problem change no choice", "[property]") {
  for (unsigned seed = 0; seed < cases(600u); ++seed) {
    INFO("seed " << seed);
    Generator generator(seed + 3000000);
    Problem problem = generator.make(recipe_of(generator, seed));
    const Solution found = solve_dp(problem, {});
    problem = scaled(problem, 2);
    problem.use_limit *= 4;
    for (ProblemNode& node : problem.nodes) {
      node.name = "other";
      for (NodeUse& use : node.uses) {
        for (double& bytes : use.bytes) bytes *= 4;
      }
    }
    std::vector<char> scaled_already(problem.tables.size(), 0);
    for (const ProblemEdge& edge : problem.edges) {
      for (const EdgeUse& use : edge.uses) {
        const auto t = static_cast<std::size_t>(use.table);
        if (scaled_already[t]++ != 0) continue;
        for (double& bytes : problem.tables[t].values) bytes *= 4;
      }
    }
    const Solution again = solve_dp(problem, {});
    CHECK(again.choices == found.choices);
    CHECK(again.cost == 2 * found.cost);
    CHECK(again.lower_bound == 2 * found.lower_bound);
    CHECK(again.peak_use == 4 * found.peak_use);
  }
}

TEST_CASE("more memory is never worse", "[property]") {
  for (unsigned seed = 0; seed < cases(400u); ++seed) {
    INFO("seed " << seed);
    Generator generator(seed + 4000000);
    Recipe recipe = recipe_of(generator, seed);
    recipe.uses = true;
    Problem problem = generator.make(recipe);
    double last = kInfinity;
    for (const double limit : {0.0, 2.0, 4.0, 8.0, 8.0, 1e9}) {
      problem.use_limit += limit;
      const Solution found = solve_dp(problem, {});
      CHECK(found.lower_bound <= last * (1 + 1e-9));
      CHECK(found.cost <= last * (1 + 1e-9));
      last = found.cost;
    }
  }
}

TEST_CASE("graphs written otherwise have the same optimum", "[property]") {
  for (std::uint64_t seed = 0; seed < cases(240u); ++seed) {
    INFO("seed " << seed);
    const auto [graph, cluster] = random_case(seed);
    Draw draw{std::mt19937_64(seed)};
    const SearchOutcome found = best_of(graph, cluster);
    const SearchOutcome other_names = best_of(renamed(graph), cluster);
    CHECK(other_names.strategy == found.strategy);
    CHECK(other_names.cost.total() == found.cost.total());
    CHECK(best_of(reordered(graph, draw), cluster).cost.total() ==
          Approx(found.cost.total()).epsilon(1e-12));
  }
}

TEST_CASE("doubled costs double the optimum and change no choice", "[property]") {
  for (std::uint64_t seed = 0; seed < cases(160u); ++seed) {
    INFO("seed " << seed);
    const auto [graph, cluster] = random_case(seed);
    const GraphRules rules = rules_of(graph).value();
    const SearchRequest request = request_of(graph, rules, cluster);
    for (const Mesh& mesh : mesh_candidates(cluster, 2)) {
      RooflineModel model(cluster, mesh);
      Doubled doubled(model);
      const MeshProblem once = build_problem(request, model).value();
      const MeshProblem twice = build_problem(request, doubled).value();
      const Solution found = solve_dp(once.problem, {}), again = solve_dp(twice.problem, {});
      CHECK(again.choices == found.choices);
      CHECK(again.cost == 2 * found.cost);
      CHECK(again.lower_bound == 2 * found.lower_bound);
      const Strategy strategy = strategy_of(graph, twice, again.choices);
      CHECK(evaluate(graph, rules, strategy, doubled).value().total() ==
            2 * evaluate(graph, rules, strategy, model).value().total());
    }
  }
}

TEST_CASE("graphs side by side on one mesh cost what they cost apart", "[property]") {
  for (std::uint64_t seed = 0; seed < cases(120u); ++seed) {
    INFO("seed " << seed);
    const auto [one, cluster] = random_case(seed);
    const Graph other = random_case(seed + 1).graph;
    const Graph both = joined(one, other);
    REQUIRE(verify(both).ok());
    for (const Mesh& mesh : mesh_candidates(cluster, 2)) {
      const auto cost_of = [&, machine = cluster](const Graph& graph) {
        const GraphRules rules = rules_of(graph).value();
        SearchRequest request = request_of(graph, rules, machine);
        request.mesh = mesh;
        return search(request).value().cost.total();
      };
      CHECK(cost_of(both) == Approx(cost_of(one) + cost_of(other)).epsilon(1e-12));
    }
  }
}

TEST_CASE("ops that cost nothing change nothing", "[property]") {
  int between = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < cases(160u); ++seed) {
    INFO("seed " << seed);
    const auto [graph, cluster] = random_case(seed);
    const SearchOutcome found = best_of(graph, cluster);
    const std::vector<std::vector<Use>> uses = uses_of(graph);
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const ValueId id(static_cast<std::int64_t>(v));
      if (graph.value(id).kind == ValueKind::kConstant || uses[v].empty()) continue;
      INFO("value " << graph.value(id).name);
      if (uses[v].size() == 1 && !is_output(graph, id)) {
        CHECK(best_of(with_view(graph, id, 0), cluster).cost.total() ==
              Approx(found.cost.total()).epsilon(1e-12));
        ++between;
      } else if (uses[v].size() > 1 && graph.value(id).kind == ValueKind::kActivation) {
        // Readers that are told apart have all they had, and a layout of their own.
        CHECK(best_of(with_view(graph, id, uses[v].size() / 2), cluster).cost.total() <=
              found.cost.total() * (1 + 1e-12));
        ++apart;
      }
    }
  }
  CHECK(between > cases(100));
  CHECK(apart > cases(20));
}

TEST_CASE("faster links are never worse", "[property]") {
  for (std::uint64_t seed = 0; seed < cases(120u); ++seed) {
    INFO("seed " << seed);
    auto [graph, cluster] = random_case(seed);
    const Seconds before = best_of(graph, cluster).cost.total();
    for (Tier& tier : cluster.tiers) tier.bandwidth_bytes_per_s *= 3;
    CHECK(best_of(graph, cluster).cost.total() <= before * (1 + 1e-12));
  }
}

}  // namespace autopar::metamorphic_test
