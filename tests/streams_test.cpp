// Busy times of streams against the simulation of a step: no step is shorter, of any plan, and what
// a search says it has proven holds for plans that are drawn at random.
#include "autopar/streams.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "autopar/grad.hpp"
#include "autopar/kernels.hpp"
#include "cases.hpp"
#include "graphs.hpp"
#include "search/balanced_weights.hpp"
#include "search/build/build.hpp"
#include "search/matrix_game.hpp"

namespace autopar::streams_test {

using namespace testing;

namespace {

// Two layers and a loss, trained in so many passes.
Graph trained(std::int64_t passes, Optimizer optimizer) {
  GraphWriter b;
  const ValueId x = b.input("X", {8, 12});
  const ValueId h = b.op("MatMul", {x, b.parameter("W1", {12, 8})}, {8, 8}, {}, "fc1");
  const ValueId a = b.op("Add", {h, b.parameter("b1", {8})}, {8, 8}, {}, "shift");
  const ValueId r = b.op("Tanh", {a}, {8, 8}, {}, "act");
  const ValueId y = b.op("MatMul", {r, b.parameter("W2", {8, 4})}, {8, 4}, {}, "fc2");
  b.graph.outputs = {y};
  TrainingOptions options;
  options.loss = "cross_entropy";
  options.optimizer = optimizer;
  options.micro_batches = passes;
  auto step = training_step(std::move(b.graph), options);
  REQUIRE(step.ok());
  mark_accumulators(step->graph);
  return std::move(step->graph);
}

// Where now one and now another stream is the busiest.
Cluster cluster_of(std::uint64_t seed) {
  Draw draw{std::mt19937_64(seed)};
  Cluster cluster = small_cluster({2, 2});
  Profile& profile = cluster.profile;
  profile.name = "test";
  profile.fuses_elementwise = draw.below(2) == 0;
  profile.has_strides = draw.below(2) == 0;
  profile.launch_s = draw.below(2) == 0 ? 0 : 1e-6;
  profile.host_s = draw.below(3) == 0 ? 2e-5 : 1e-8;
  profile.bucket_bytes = draw.below(2) == 0 ? 0 : 256;
  for (bool* deferred : {&profile.deferred.all_reduce, &profile.deferred.reduce_scatter,
                         &profile.deferred.gather, &profile.deferred.update}) {
    *deferred = draw.below(3) != 0;
  }
  profile.memory.fraction = 0.5;
  cluster.device.memory_bandwidth_bytes_per_s /= draw.below(2) == 0 ? 1e3 : 1;
  cluster.tiers[draw.below(2)].bandwidth_bytes_per_s /= draw.below(2) == 0 ? 1e3 : 1;
  profile.of_stage = draw.below(2) == 0;
  profile.stage_collective_s = draw.below(2) == 0 ? 0 : 1e-5;
  profile.stage_collective_rank_s = draw.below(2) == 0 ? 0 : 1e-5;
  profile.repeats_whole_segments = draw.below(2) == 0;
  if (draw.below(6) == 0) {
    profile.runs_op_by_op = true;
    profile.fuses_elementwise = profile.has_strides = profile.repeats_whole_segments = false;
  }
  return cluster;
}

struct Case {
  Graph graph;
  Cluster cluster;
  explicit Case(std::uint64_t seed) : cluster(cluster_of(seed)) {
    const bool interleaved = seed % 12 == 1 || seed % 12 == 4;
    graph = seed % 3 == 2 ? random_graph(seed, 6)
                          : trained(interleaved     ? 4
                                    : seed % 3 == 0 ? 1
                                                    : 3,
                                    seed % 2 == 0 ? Optimizer::kSgd : Optimizer::kAdamW);
    if (interleaved) graph.copies = 2;
    // As if they were left of a segment that is repeated.
    for (Op& op : graph.ops) op.ends_segment = op.name == "shift" || op.name == "act";
    graph.kernels = group_kernels(graph, cluster.profile);
  }
};

std::vector<int> drawn(const Problem& problem, Draw& draw) {
  std::vector<int> choices;
  for (const ProblemNode& node : problem.nodes) {
    choices.push_back(static_cast<int>(draw.below(node.cost.size())));
  }
  return choices;
}

// Few draws of large problems keep the rules about what is never resharded: a plan near the best.
std::vector<int> near_best(const Problem& problem, Draw& draw) {
  Problem noisy = problem;
  for (ProblemNode& node : noisy.nodes) {
    for (double& cost : node.cost) cost += 1e-5 * static_cast<double>(draw.below(1000)) / 1000;
  }
  return solve_dp(noisy, {}).choices;
}

}  // namespace

TEST_CASE("no step is shorter than a stream is busy, and the problem adds busy times up",
          "[streams]") {
  int plans = 0, shorter = 0;
  double tightest[kLinks + 3] = {};
  for (std::uint64_t seed = 0; seed < cases(36u); ++seed) {
    const Case c(seed);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    RooflineModel model(c.cluster, *make_mesh(c.cluster, {2, 2}));
    Draw draw{std::mt19937_64(seed)};
    for (std::size_t w = 0; w < kLinks + 3; ++w) {
      StreamTimes weights;
      for (Seconds* weight : weights.all()) *weight = 0.01;
      *weights.all()[w] = 0.95;
      request.weights = weights;
      const MeshProblem built = *build_problem(request, model);
      for (int trial = 0; trial < 20; ++trial) {
        const std::vector<int> choices =
            trial < 4 ? near_best(built.problem, draw) : drawn(built.problem, draw);
        const Evaluation said = evaluate(built.problem, choices);
        if (!(said.cost < kInfinity)) continue;
        ++plans;
        const Strategy strategy = strategy_of(c.graph, built, choices);
        const auto cost = evaluate(c.graph, rules, strategy, model);
        INFO("seed " << seed << ", weighting " << w << ", trial " << trial);
        REQUIRE(cost);
        REQUIRE(cost->step);
        StreamTimes busy = cost->step->busy;
        CHECK(busy.weighted(weights) == Approx(said.cost).epsilon(1e-9));
        const Seconds time = cost->step->seconds;
        CHECK(busy.most() <= time * (1 + 1e-9));
        CHECK(time <= (cost->total() + busy.host) * (1 + 1e-9));
        if (c.graph.copies > 1) {
          Graph apart = c.graph;
          apart.copies = 1;
          const auto in_turn = evaluate(apart, rules, strategy, model);
          CHECK(time <= in_turn->time() * (1 + 1e-9));
          shorter += time < 0.9 * in_turn->time() ? 1 : 0;
        }
        for (std::size_t s = 0; s < kLinks + 3; ++s) {
          tightest[s] = std::max(tightest[s], *busy.all()[s] / time);
        }
      }
    }
  }
  CHECK(plans > cases(500));
  CHECK(shorter > cases(10));
  // Each of them is what decides now and then, but for the link of a third tier.
  for (std::size_t s = 0; s < kLinks + 3; ++s) CHECK((s == 3 || tightest[s] > 0.9));
}

namespace {

OpId when_of(const Graph& graph, const CostTerm& term) {
  return term.op.valid() ? term.op : graph.value(term.value).producer;
}

Streams::Kind kind_of(const Graph& graph, const Streams& streams, const CostTerm& sent) {
  return streams.kind(sent.value, when_of(graph, sent), sent.collective.kind);
}

std::size_t first_reader(const Graph& graph, ValueId id) {
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const auto& inputs = graph.ops[o].inputs;
    if (std::find(inputs.begin(), inputs.end(), id) != inputs.end()) return o;
  }
  return graph.ops.size();
}

// When compute could have begun the collective of `at`: when it was issued, and what is before it
// on the compute stream had ended.
Seconds ready(const std::vector<StepEvent>& events, std::size_t at, Seconds waited_until) {
  Seconds since = waited_until;
  for (std::size_t e = 0; e < at; ++e) {
    const StepEvent& event = events[e];
    const bool issues = event.stream == StepEvent::Stream::kHost && event.term == events[at].term &&
                        event.pass == events[at].pass;
    if (issues || event.stream == StepEvent::Stream::kCompute) {
      since = std::max(since, event.begin + event.seconds);
    }
  }
  return since;
}

}  // namespace

TEST_CASE("one collective at a time on a link, first what compute waits for, or beside a sum",
          "[streams]") {
  int awaited = 0, late = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < cases(48u); ++seed) {
    const Case c(seed);
    if (c.graph.copies > 1) continue;
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    const Mesh mesh = *make_mesh(c.cluster, {2, 2});
    RooflineModel model(c.cluster, mesh);
    const Streams streams(c.graph, "new.*", mesh, c.cluster.profile);
    Draw draw{std::mt19937_64(seed)};
    const MeshProblem built = *build_problem(request, model);
    for (int trial = 0; trial < 8; ++trial) {
      const std::vector<int> choices =
          trial < 2 ? near_best(built.problem, draw) : drawn(built.problem, draw);
      if (!(evaluate(built.problem, choices).cost < kInfinity)) continue;
      const auto cost = evaluate(c.graph, rules, strategy_of(c.graph, built, choices), model);
      REQUIRE(cost);
      const auto events = step_events(c.graph, *cost, mesh, c.cluster);
      INFO("seed " << seed << ", trial " << trial);
      Seconds last = 0, waited_until = 0;
      for (std::size_t e = 0; e < events.size(); ++e) {
        const StepEvent& event = events[e];
        last = std::max(last, event.begin + event.seconds);
        if (event.stream != StepEvent::Stream::kLink) continue;
        const CostTerm& term = cost->terms[event.term];
        const OpId when = when_of(c.graph, term);
        // Compute may have waited for what the op reads, or one before it.
        const auto is_read = [&](const CostTerm& sent) {
          const auto kind = kind_of(c.graph, streams, sent);
          if (kind == Streams::Kind::kNext) {
            return first_reader(c.graph, streams.next_of(sent.value)) <= when.index();
          }
          return (kind == Streams::Kind::kFetched || kind == Streams::Kind::kAwaited) &&
                 sent.op.index() <= when.index();
        };
        for (std::size_t other = 0; other < e; ++other) {
          const StepEvent& first = events[other];
          if (first.stream != StepEvent::Stream::kLink) continue;
          if (is_read(cost->terms[first.term])) {
            waited_until = std::max(waited_until, first.begin + first.seconds);
          }
          if (first.link != event.link) continue;
          // One after the other, or in twice the time beside a sum that is under way and ends
          // later.
          const Seconds ends = first.begin + first.seconds;
          const bool shares =
              ends > event.begin + 1e-12 && event.begin + event.seconds > first.begin + 1e-12;
          if (!shares) continue;
          const auto kind = kind_of(c.graph, streams, cost->terms[first.term]);
          CHECK((kind == Streams::Kind::kSummed || kind == Streams::Kind::kAwaited));
          CHECK(kind_of(c.graph, streams, term) == Streams::Kind::kBlocking);
          CHECK(event.begin + event.seconds <= ends + 1e-12);
          CHECK(event.seconds == Approx(2 * event.alone));
          ++shared;
        }
        // All sums of gradients are sent before the update.
        if (kind_of(c.graph, streams, term) != Streams::Kind::kBlocking) continue;
        if (c.graph.op(when).phase == Phase::kUpdate) continue;
        // What is on the link between has begun before.
        const Seconds since = ready(events, e, waited_until);
        for (std::size_t other = 0; other < e; ++other) {
          const StepEvent& first = events[other];
          if (first.stream != StepEvent::Stream::kLink || first.link != event.link) continue;
          if (first.begin >= event.begin || first.begin + first.seconds <= since) continue;
          CHECK(first.begin <= since);
          ++late;
        }
        ++awaited;
        waited_until = event.begin + event.seconds;
      }
      CHECK(last == Approx(cost->time()));
    }
  }
  CHECK(awaited > cases(300));
  CHECK(late > cases(10));
  CHECK(shared > cases(4));
}

// Three passes of trained() on one link: every op of a pass takes a second. The first op of a pass
// reads W1, which is fetched in 2 s; eight ops before its end a sum of a gradient is ready, and six
// ops later compute waits for a collective of 0.1 s.
TEST_CASE("a sum of gradients waits where it would make a weight late", "[streams]") {
  Cluster cluster = small_cluster({4});
  cluster.profile.name = "test";
  cluster.profile.deferred = {true, true, true, true};
  const Mesh mesh = *make_mesh(cluster, {4});
  const Graph graph = trained(3, Optimizer::kSgd);
  const auto op_of = [&](const std::string& name) {
    const auto found = std::find_if(graph.ops.begin(), graph.ops.end(),
                                    [&](const Op& op) { return op.name == name; });
    return OpId(found - graph.ops.begin());
  };
  struct Sent {
    const char* op;
    const char* value;
    CollectiveKind kind;
    Seconds seconds;
    Streams::Kind is;
  };
  const auto takes = [&](Seconds sum) {
    const std::vector<Sent> all = {
        {"fc1", "W1", CollectiveKind::kAllGather, 2, Streams::Kind::kFetched},
        {"acc.W2", "fc2.grad.1", CollectiveKind::kReduceScatter, sum, Streams::Kind::kSummed},
        {"fc1.grad", "act.grad.2", CollectiveKind::kAllGather, 0.1, Streams::Kind::kBlocking}};
    StrategyCost cost;
    const Streams streams(graph, "new.*", mesh, cluster.profile);
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const OpId id(static_cast<std::int64_t>(o));
      if (graph.op(id).phase == Phase::kUpdate) continue;
      for (const Sent& sent : all) {
        if (op_of(sent.op) != id) continue;
        CostTerm term;
        term.kind = CostTerm::Kind::kCollective;
        term.op = id;
        for (const ValueId input : graph.op(id).inputs) {
          if (input.valid() && graph.value(input).name == sent.value) term.value = input;
        }
        term.collective.kind = sent.kind;
        term.collective.axes = {0};
        term.times = 3;
        term.seconds = 3 * sent.seconds;
        CHECK(kind_of(graph, streams, term) == sent.is);
        cost.terms.push_back(term);
      }
      CostTerm compute;
      compute.op = id;
      compute.times = 3;
      compute.seconds = 3;
      cost.terms.push_back(compute);
    }
    return std::pair(cost, simulate(graph, cost, mesh, cluster));
  };
  const auto exposed_of = [&](const std::pair<StrategyCost, StepTime>& step, const char* name) {
    Seconds sum = 0;
    for (std::size_t t = 0; t < step.first.terms.size(); ++t) {
      const ValueId value = step.first.terms[t].value;
      if (value.valid() && graph.value(value).name == name) sum += step.second.exposed[t];
    }
    return sum;
  };
  // It ends before the weight is needed, or it would not.
  for (const Seconds sum : {6.0, 9.0, 12.0}) {
    const auto step = takes(sum);
    CHECK(exposed_of(step, "W1") == Approx(2));  // when the step begins
  }
  // Each pass makes the same gradient again: it waits until the sum of the pass before is sent.
  const auto bound = takes(50);
  CHECK(exposed_of(bound, "fc2.grad.1") > 2 * (50 - 40));
  CHECK(bound.second.seconds >= 3 * 50);
}

TEST_CASE("with a profile the bound of a search is one on the time of every plan", "[streams]") {
  double widest = 0, sum = 0;
  const std::uint64_t seeds = cases(24u);
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Case c(seed + 100);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    request.mesh = *make_mesh(c.cluster, {2, 2});
    const auto found = search(request);
    INFO("seed " << seed);
    REQUIRE(found);
    CHECK(found->lower_bound > 0);
    CHECK(found->lower_bound <= found->cost.time());
    widest = std::max(widest, found->gap());
    sum += found->gap();
    RooflineModel model(c.cluster, *request.mesh);
    const auto again = evaluate(c.graph, rules, found->strategy, model);
    CHECK(again->time() == found->cost.time());
    const MeshProblem built = *build_problem(request, model);
    Draw draw{std::mt19937_64(seed)};
    for (int trial = 0; trial < 60; ++trial) {
      const std::vector<int> choices =
          trial < 20 ? near_best(built.problem, draw) : drawn(built.problem, draw);
      if (!(evaluate(built.problem, choices).cost < kInfinity)) continue;
      const auto cost = evaluate(c.graph, rules, strategy_of(c.graph, built, choices), model);
      REQUIRE(cost);
      CHECK(cost->time() >= found->lower_bound * (1 - 1e-9));
    }
  }
  INFO("gaps: mean " << sum / static_cast<double>(seeds) << ", widest " << widest);
  CHECK(sum / static_cast<double>(seeds) < 0.15);
}

namespace {

// The least time of all plans on one mesh, each simulated; nothing: there are too many.
std::optional<Seconds> least_time(const Graph& graph, const GraphRules& rules,
                                  const MeshProblem& built, RooflineModel& model) {
  double count = 1;
  for (const ProblemNode& node : built.problem.nodes) {
    count *= static_cast<double>(node.cost.size());
  }
  if (count > 3e4) return {};
  Seconds least = kInfinity;
  std::vector<int> choices(built.problem.nodes.size(), 0);
  for (std::size_t n = 0; n < choices.size();) {
    if (evaluate(built.problem, choices).cost < kInfinity) {
      const auto cost = evaluate(graph, rules, strategy_of(graph, built, choices), model);
      if (cost) least = std::min(least, cost->time());
    }
    for (n = 0; n < choices.size(); ++n) {
      const auto size = static_cast<int>(built.problem.nodes[n].cost.size());
      if (++choices[n] < size) break;
      choices[n] = 0;
    }
  }
  return least;
}

}  // namespace

TEST_CASE("bound <= the least of all simulated plans <= the plan", "[streams]") {
  int tried = 0, best = 0;
  for (std::uint64_t seed = 0; seed < cases(60u); ++seed) {
    Cluster cluster = cluster_of(seed);
    Graph graph = seed % 2 == 0 ? two_matmuls() : random_graph(seed, 2);
    graph.kernels = group_kernels(graph, cluster.profile);
    const GraphRules rules = *rules_of(graph);
    SearchRequest request{graph, rules, cluster};
    request.limit_memory = false;
    request.mesh = *make_mesh(cluster, {4});
    RooflineModel model(cluster, *request.mesh);
    const auto least = least_time(graph, rules, *build_problem(request, model), model);
    if (!least) continue;
    ++tried;
    const auto found = search(request);
    INFO("seed " << seed);
    REQUIRE(found);
    CHECK(found->lower_bound <= *least * (1 + 1e-9));
    CHECK(*least <= found->cost.time() * (1 + 1e-9));
    best += found->cost.time() <= *least * (1 + 1e-9) ? 1 : 0;
  }
  INFO(best << " of " << tried << " plans are the best");
  CHECK(tried > cases(20));
  CHECK(2 * best > tried);
}

TEST_CASE("what the ops take at least is below every plan", "[streams]") {
  double widest = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Case c(seed + 200);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    if (seed % 4 != 3) request.weights = StreamTimes{0.9, {0.02, 0.02, 0.02}, 0.02, 0.02};
    RooflineModel model(c.cluster, *make_mesh(c.cluster, {2, 2}));
    const auto least = least_of_ops(request, model);
    REQUIRE(least);
    const Solution best = solve_dp(build_problem(request, model)->problem, {});
    INFO("seed " << seed);
    REQUIRE(best.feasible);
    CHECK(*least > 0);
    CHECK(*least <= best.cost * (1 + 1e-12));
    widest = std::max(widest, *least / best.cost);
  }
  CHECK(widest > 0.9);
}

TEST_CASE("a search that has to beat a known plan ends by bounds, and misses no cheaper one",
          "[streams]") {
  int without_a_look = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const Case c(seed + 300);
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    const auto free = search(request);
    INFO("seed " << seed);
    REQUIRE(free);
    SearchFindings findings;
    request.findings = &findings;
    request.solve.cutoff = free->cost.time() * 1.001;
    const auto again = search(request);
    REQUIRE(again);
    CHECK(again->cost.time() <= request.solve.cutoff);
    // Nothing is so fast; where compute decides, that is known before anything is looked at.
    request.solve.cutoff = 0.1 * free->lower_bound;
    const auto faster = search(request);
    if (faster) CHECK(faster->cost.time() >= free->lower_bound * (1 - 1e-9));
    if (faster) continue;
    REQUIRE(findings.trials.size() == free->trials.size());
    for (const MeshTrial& trial : findings.trials) {
      CHECK(trial.end == TrialEnd::kPruned);
      CHECK(trial.lower_bound >= request.solve.cutoff);
      CHECK(trial.lower_bound <= free->cost.time() * (1 + 1e-9));
      without_a_look += trial.stages.empty() ? 1 : 0;
    }
  }
  CHECK(without_a_look > 10);
}

// What is on the path of a step adds up to its time; what is not has no weight.
TEST_CASE("by the weights of its path a plan costs what its step takes", "[streams]") {
  int plans = 0, with_links = 0;
  for (std::uint64_t seed = 0; seed < 36; ++seed) {
    Case c(seed);
    if (c.graph.copies > 1) continue;
    Profile& profile = c.cluster.profile;  // the host is on no path
    profile.host_s = profile.stage_collective_s = profile.stage_collective_rank_s = 0;
    const GraphRules rules = *rules_of(c.graph);
    SearchRequest request{c.graph, rules, c.cluster};
    request.limit_memory = false;
    RooflineModel model(c.cluster, *make_mesh(c.cluster, {2, 2}));
    Draw draw{std::mt19937_64(seed)};
    request.weights = StreamTimes{0.4, {0.2, 0.2}, 0.1, 0.1};
    const MeshProblem built = *build_problem(request, model);
    for (int trial = 0; trial < 8; ++trial) {
      const std::vector<int> choices = near_best(built.problem, draw);
      const Strategy strategy = strategy_of(c.graph, built, choices);
      const auto cost = evaluate(c.graph, rules, strategy, model);
      REQUIRE(cost);
      std::vector<StreamPrices> prices =
          prices_by_path(c.graph, *cost, built.mesh, c.cluster, request.updates);
      for (StreamPrices& of_op : prices) of_op.behind = {};
      SearchRequest by_path = request;
      by_path.prices_of_ops = std::make_shared<const std::vector<StreamPrices>>(prices);
      const MeshProblem again = *build_problem(by_path, model);
      INFO("seed " << seed << ", trial " << trial);
      CHECK(evaluate(again.problem, choices).cost == Approx(cost->step->seconds).epsilon(1e-6));
      const bool is_on_links =
          std::any_of(prices.begin(), prices.end(), [](const StreamPrices& of_op) {
            return of_op.weights.links[0] + of_op.weights.links[1] > 0.5;
          });
      with_links += is_on_links ? 1 : 0;
      ++plans;
    }
  }
  CHECK(plans > 100);
  CHECK(with_links > 20);
}

// So it is of ops that all are free.
TEST_CASE("weights of streams that do nothing are weights", "[streams]") {
  for (StreamTimes weights : {StreamTimes().sharp_weights(), balanced_weights({{}, {}})}) {
    double sum = 0;
    for (const Seconds* w : weights.all()) {
      CHECK(*w > 0);
      sum += *w;
    }
    CHECK(sum == Approx(1));
  }
  CHECK(!weights_of_more({{}}, 0));
}

// No mix of rows has more in each column than some mix of columns has in each row, so where both
// are the same, both are the best.
TEST_CASE("the best mix of rows is worth what the best mix of columns is", "[streams]") {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> number(0, 9);
  for (int round = 0; round < 400; ++round) {
    const std::size_t count = 1 + static_cast<std::size_t>(round % 7);
    const std::size_t columns = 1 + static_cast<std::size_t>(round / 7 % 12);
    std::vector<std::vector<double>> rows(count, std::vector<double>(columns));
    std::vector<std::vector<double>> less(columns, std::vector<double>(count));
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        rows[r][c] = number(random) + (r + c == 0 ? 1 : 0);
        less[c][r] = 11 - rows[r][c];
      }
    }
    const auto value = [](const std::vector<std::vector<double>>& matrix) {
      const std::vector<double> mix = best_mix_of_rows(matrix);
      double sum = 0, least = 1e9;
      for (const double w : mix) {
        CHECK(w >= 0);
        sum += w;
      }
      CHECK(sum == Approx(1));
      for (std::size_t c = 0; c < matrix.front().size(); ++c) {
        double of_column = 0;
        for (std::size_t r = 0; r < matrix.size(); ++r) of_column += mix[r] * matrix[r][c];
        least = std::min(least, of_column);
      }
      return least;
    };
    CHECK(value(rows) == Approx(11 - value(less)).margin(1e-6));
  }
}

// ZeRO 2: what brings a gradient to its accumulator, or with one pass to the update, goes on beside
// the passes.
TEST_CASE("only the update waits for what a pass adds to the gradients", "[streams]") {
  const std::int64_t passes = GENERATE(1, 3);
  Cluster cluster = small_cluster({2, 2});
  Profile& profile = cluster.profile;
  profile.name = "test";
  profile.deferred = {true, true, true, true};
  const Mesh mesh = *make_mesh(cluster, {2, 2});
  Graph graph = trained(passes, Optimizer::kAdamW);
  graph.kernels = group_kernels(graph, profile);
  const Streams streams(graph, "new.*", mesh, profile);
  int summed = 0, blocking = 0;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Op& op = graph.ops[o];
    if (op.phase == Phase::kUpdate) continue;
    const bool adds = op.phase == Phase::kBackward &&
                      (graph.value(op.outputs[0]).accumulates || op.sums == SumsAt::kBefore);
    for (const ValueId input : op.inputs) {
      if (graph.value(input).kind != ValueKind::kActivation) continue;
      const auto kind =
          streams.kind(input, OpId(static_cast<std::int64_t>(o)), CollectiveKind::kReduceScatter);
      INFO(op.name << " " << graph.value(input).name);
      if (adds) {
        CHECK(kind == Streams::Kind::kSummed);
        CHECK(!streams.holds_host(Streams::Kind::kBlocking, OpId(static_cast<std::int64_t>(o))));
        ++summed;
      } else if (op.type == "MatMul" || op.type == "Gemm") {
        CHECK(kind == Streams::Kind::kBlocking);
        CHECK(streams.holds_host(kind, OpId(static_cast<std::int64_t>(o))));
        ++blocking;
      }
    }
  }
  CHECK(summed >= 3);  // W1, b1, W2
  CHECK(blocking >= 4);
}

}  // namespace autopar::streams_test
