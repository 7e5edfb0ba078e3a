// The passes and the update of a planned step: each op in one of them, what both read lying alike
// in both, and the price of the step as the price of its parts. Plans are drawn at random.
#include "autopar/phases.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "autopar/cost.hpp"
#include "autopar/grad.hpp"
#include "graphs.hpp"

namespace autopar::phases_test {

using namespace testing;

namespace {

// Two layers and a loss that is a mean, trained.
Graph network() {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 12});
  const ValueId h = b.op("MatMul", {x, b.parameter("W1", {12, 8})}, {8, 8}, {}, "fc1");
  const ValueId a = b.op("Add", {h, b.parameter("b1", {8})}, {8, 8}, {}, "shift");
  const ValueId r = b.op("Tanh", {a}, {8, 8}, {}, "act");
  const ValueId y = b.op("MatMul", {r, b.parameter("W2", {8, 4})}, {8, 4}, {}, "fc2");
  b.graph.outputs = {y};
  b.graph.name = "network";
  return std::move(b.graph);
}

TrainingStep step_of(const TrainingOptions& options) {
  auto step = training_step(network(), options);
  INFO((step.ok() ? "" : step.error().message));
  REQUIRE(step.ok());
  return std::move(*step);
}

TrainingOptions options_of(Optimizer optimizer, std::int64_t passes,
                           const std::string& loss = "cross_entropy") {
  TrainingOptions options;
  options.loss = loss;
  options.optimizer = optimizer;
  options.micro_batches = passes;
  return options;
}

std::map<std::string, const ValueSpecs*> specs_by_name(const StepPart& part) {
  std::map<std::string, const ValueSpecs*> found;
  for (std::size_t v = 0; v < part.graph.values.size(); ++v) {
    found[part.graph.values[v].name] = &part.strategy.values[v];
  }
  return found;
}

std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (ValueId id : ids) names.push_back(graph.value(id).name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Strategy random_choices(const SearchRequest& request, CostModel& prices, Random& random) {
  const auto problem = build_problem(request, prices);
  INFO((problem.ok() ? "" : problem.error().message));
  REQUIRE(problem.ok());
  std::vector<int> choices;
  for (const ProblemNode& node : problem->problem.nodes) {
    choices.push_back(static_cast<int>(below(random, node.cost.size())));
  }
  Strategy plan = strategy_of(request.graph, *problem, choices);
  // What only the costs of the problem forbid: both parts read what is stored, and sums stay where
  // they are.
  const Graph& graph = request.graph;
  const std::vector<Readers> readers = readers_of(graph);
  const std::vector<ValueId> updated = updated_inputs(graph, request.updates);
  for (std::size_t v = 0; v < plan.values.size(); ++v) {
    ValueSpecs& specs = plan.values[v];
    if (meets_phases(graph, readers[v])) specs.hub = specs.output = specs.spec;
    if (!graph.values[v].accumulates || !updated[v].valid()) continue;
    specs.output = plan.values[updated[v].index()].spec;
    if (readers[v].count() == 1) specs.hub = specs.output;
  }
  return plan;
}

}  // namespace

TEST_CASE("every op of a step is in the passes or in the update", "[phases]") {
  for (const Optimizer optimizer : {Optimizer::kNone, Optimizer::kSgd, Optimizer::kAdamW}) {
    CAPTURE(name_of(optimizer));
    TrainingStep step = step_of(options_of(optimizer, 4));
    mark_accumulators(step.graph);
    const Graph& graph = step.graph;
    const GraphRules rules = rules_of(graph).value();
    const Cluster cluster = small_cluster({4});
    SearchRequest request{graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 1).back();
    request.searcher = "data_parallel";
    const auto found = search(request);
    INFO((found.ok() ? "" : found.error().message));
    REQUIRE(found.ok());
    const auto parts = parts_of(graph, rules, found->strategy);
    INFO((parts.ok() ? "" : parts.error().message));
    REQUIRE(parts.ok());
    const Graph &pass = parts->pass.graph, &update = parts->update.graph;
    CHECK(pass.passes == 1);
    CHECK(update.passes == 1);
    std::vector<std::string> ops, kept;
    for (const Op& op : graph.ops) ops.push_back(op.name);
    for (const StepPart* part : {&parts->pass, &parts->update}) {
      for (const Op& op : part->graph.ops) {
        kept.push_back(op.name);
        CHECK((op.phase == Phase::kUpdate) == (part == &parts->update));
      }
      CHECK(part->rules.rules.size() == part->graph.ops.size());
      CHECK(part->rules.class_of_op.size() == part->graph.ops.size());
    }
    CHECK(kept == ops);  // the update comes last
    // Data only in the passes, states only in the update, accumulators and weights in both.
    const auto pass_inputs = names_of(pass, pass.inputs),
               update_inputs = names_of(update, update.inputs);
    for (const std::string& name : {std::string("X"), std::string("labels")}) {
      CHECK(has(pass_inputs, name));
      CHECK(!has(update_inputs, name));
    }
    for (const std::string& name : step.facts.states) {
      CHECK(!has(pass_inputs, name));
      CHECK(has(update_inputs, name));
    }
    for (const std::string& name : step.facts.accumulators) {
      CHECK(has(pass_inputs, name));
      CHECK(has(update_inputs, name));
    }
    for (const char* name : {"W1", "W2"}) {
      CHECK(has(pass_inputs, name));
      CHECK(has(update_inputs, name) == (optimizer != Optimizer::kNone));
    }
    // Every output is made by one of the two.
    auto made = names_of(pass, pass.outputs);
    for (const std::string& name : made) CHECK(name.rfind("new.acc.", 0) == 0);
    for (const std::string& name : names_of(update, update.outputs)) made.push_back(name);
    auto wanted = names_of(graph, graph.outputs);
    std::sort(made.begin(), made.end());
    std::sort(wanted.begin(), wanted.end());
    CHECK(made == wanted);
  }
}

TEST_CASE("a loss that is a mean is told by the passes", "[phases]") {
  TrainingStep step = step_of(options_of(Optimizer::kSgd, 2, "mse"));
  const GraphRules rules = rules_of(step.graph).value();
  const Cluster cluster = small_cluster({2});
  SearchRequest request{step.graph, rules, cluster};
  request.mesh = mesh_candidates(cluster, 1).back();
  const auto parts = parts_of(step.graph, rules, search(request).value().strategy).value();
  CHECK(has(names_of(parts.pass.graph, parts.pass.graph.outputs), "loss"));
  CHECK(!has(names_of(parts.update.graph, parts.update.graph.outputs), "loss"));
}

TEST_CASE("a step costs its passes and its update, whatever the plan", "[phases]") {
  int partial = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Optimizer optimizers[] = {Optimizer::kSgd, Optimizer::kAdamW, Optimizer::kNone};
    const std::int64_t passes = std::int64_t{2} << (seed % 3);
    CAPTURE(seed, passes);
    TrainingOptions options =
        options_of(optimizers[seed % 3], passes, seed % 2 == 0 ? "mse" : "cross_entropy");
    if (seed % 5 == 0) options.clip_norm = 0.5;
    TrainingStep step = step_of(options);
    mark_accumulators(step.graph);
    const GraphRules rules = rules_of(step.graph).value();
    const Cluster cluster = small_cluster({2, 2});
    SearchRequest request{step.graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 2).back();
    const auto prices = make_cost_model("roofline", cluster, *request.mesh).value();
    Random random(seed);
    const Strategy plan = random_choices(request, *prices, random);
    const auto parts = parts_of(step.graph, rules, plan);
    INFO((parts.ok() ? "" : parts.error().message));
    REQUIRE(parts.ok());
    const auto whole = evaluate(step.graph, rules, plan, *prices);
    INFO((whole.ok() ? "" : whole.error().message));
    REQUIRE(whole.ok());
    const auto price = [&](const StepPart& part) {
      const auto cost = evaluate(part.graph, part.rules, part.strategy, *prices);
      INFO((cost.ok() ? "" : cost.error().message));
      REQUIRE(cost.ok());
      CHECK(cost->memory.total <= whole->memory.total);
      return cost->total();
    };
    const double of_parts = static_cast<double>(passes) * price(parts->pass) + price(parts->update);
    CHECK(whole->total() == Approx(of_parts).epsilon(1e-9));

    const auto pass = specs_by_name(parts->pass), update = specs_by_name(parts->update);
    for (ValueId input : parts->update.graph.inputs) {
      const std::string& name = parts->update.graph.value(input).name;
      const auto both = pass.find(name);
      if (both != pass.end()) CHECK(both->second->spec == update.at(name)->spec);
    }
    for (const std::string& name : step.facts.accumulators) {
      CHECK(pass.at("new." + name)->output == pass.at(name)->spec);
      partial += pass.at(name)->spec.partial.empty() ? 0 : 1;
    }
  }
  CHECK(partial > 10);
}

// As programs of pipelines: what the forward phase keeps is no partial sum.
TEST_CASE("random plans of phases apart are cut into them", "[phases]") {
  int reduced = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    TrainingStep step = step_of(options_of(Optimizer::kSgd, 2, "mse"));
    mark_accumulators(step.graph);
    const GraphRules rules = rules_of(step.graph).value();
    const Cluster cluster = small_cluster({2, 2});
    SearchRequest request{step.graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 2).back();
    request.phases_apart = true;
    const auto prices = make_cost_model("roofline", cluster, *request.mesh).value();
    const auto problem = build_problem(request, *prices);
    REQUIRE(problem.ok());
    Random random(seed);
    Problem drawn = problem->problem;
    for (ProblemNode& node : drawn.nodes) {
      for (double& cost : node.cost) cost += static_cast<double>(below(random, 1000));
    }
    const Solution solution = solve_dp(drawn, {});
    REQUIRE(solution.feasible);
    const Strategy plan = strategy_of(step.graph, *problem, solution.choices);
    std::vector<int> part_of_op;
    for (const Op& op : step.graph.ops) part_of_op.push_back(static_cast<int>(op.phase));
    const auto parts = cut_parts(step.graph, rules, plan, part_of_op, 3);
    INFO((parts.ok() ? "" : parts.error().message));
    REQUIRE(parts.ok());
    const auto forward = specs_by_name((*parts)[0]);
    for (ValueId output : (*parts)[0].graph.outputs) {
      const auto& specs = *forward.at((*parts)[0].graph.value(output).name);
      CHECK(specs.output.partial.empty());
      reduced += specs.spec.partial.empty() ? 0 : 1;
    }
  }
  CHECK(reduced > 10);
}

namespace {

// Of one device: what forward ops make and backward ops read, each piece of memory once.
Bytes kept_bytes(const Graph& graph) {
  std::set<ValueId> kept;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::kForward) continue;
    for (ValueId id : op.inputs) {
      while (id.valid() && graph.value(id).producer.valid()) {
        const Op& maker = graph.op(graph.value(id).producer);
        if (maker.phase == Phase::kForward && !is_view(maker)) kept.insert(id);
        if (!is_view(maker)) break;
        id = maker.inputs[0];
      }
    }
  }
  Bytes bytes = 0;
  for (ValueId id : kept) bytes += graph.value(id).bytes();
  return bytes;
}

}  // namespace

TEST_CASE("what is kept is there for each micro-batch in flight", "[phases]") {
  TrainingStep step = step_of(options_of(Optimizer::kAdamW, 4, "mse"));
  mark_accumulators(step.graph);
  const GraphRules rules = rules_of(step.graph).value();
  const auto memory_of = [&](const Cluster& cluster, std::int64_t in_flight, Bytes limit) {
    step.graph.in_flight = in_flight;
    SearchRequest request{step.graph, rules, cluster};
    request.mesh = mesh_candidates(cluster, 2).back();
    request.memory_limit = limit;
    const auto found = search(request);
    return found ? found->cost.memory.total : 0;
  };
  const Bytes kept = kept_bytes(step.graph);
  REQUIRE(kept > 0);
  const Cluster one = small_cluster({1});
  const Bytes once = memory_of(one, 1, 0);
  for (const std::int64_t in_flight : {2, 3, 8}) {
    CHECK(memory_of(one, in_flight, 0) == once + (in_flight - 1) * kept);
    CHECK(memory_of(one, in_flight, once + (in_flight - 1) * kept - 1) == 0);
  }
  // What a boundary hands over is there as often; what leaves is not kept.
  const Cluster four = small_cluster({2, 2});
  const Bytes split = memory_of(four, 1, 0);
  const Bytes more = memory_of(four, 5, 0);
  CHECK(more > split);
  CHECK(more <= split + 4 * kept);
  const Bytes limited = memory_of(four, 5, (split + more) / 2);
  CHECK(limited <= (split + more) / 2);
}

}  // namespace autopar::phases_test
