// Busy times of streams against the simulation of a step: no step is shorter, of any plan, and what
// waits for what.
#include "autopar/streams.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "cases.hpp"
#include "search/build/build.hpp"
#include "stream_cases.hpp"

namespace autopar::streams_test {

using namespace testing;
using namespace testing::stream_cases;

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
