// What a step holds beside the account of its plan: read off its events, op by op.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "autopar/cost.hpp"
#include "autopar/grad.hpp"
#include "autopar/streams.hpp"
#include "cases.hpp"
#include "graphs.hpp"

namespace autopar::held_ahead_test {

using namespace testing;

namespace {

// Four layers and a loss, trained in so many passes.
Graph trained(std::int64_t passes) {
  GraphWriter b;
  ValueId x = b.input("X", {8, 8});
  for (const char* layer : {"1", "2", "3", "4"}) {
    const std::string n = layer;
    x = b.op("MatMul", {x, b.parameter("W" + n, {8, 8})}, {8, 8}, {}, "fc" + n);
    x = b.op("Tanh", {x}, {8, 8}, {}, "act" + n);
  }
  b.graph.outputs = {x};
  TrainingOptions options;
  options.loss = "cross_entropy";
  options.optimizer = Optimizer::kSgd;
  options.micro_batches = passes;
  auto step = training_step(std::move(b.graph), options);
  REQUIRE(step.ok());
  mark_accumulators(step->graph);
  return std::move(step->graph);
}

struct Step {
  Graph graph = trained(3);
  Cluster cluster;
  Mesh mesh;

  Step() : cluster(small_cluster({2, 2})) {
    cluster.profile.name = "test";
    cluster.profile.deferred = {true, true, true, true};
    mesh = *make_mesh(cluster, {2, 2});
  }

  Streams::Kind kind_of(const CostTerm& term) const {
    const Streams streams(graph, "new.*", mesh, cluster.profile);
    return streams.kind(term.value, term.op, term.collective.kind);
  }

  // Each op of a pass takes some time. Weights that it reads are gathered, gradients that it adds
  // up are scattered, and compute waits for some other values.
  StrategyCost draw(Draw& draw) const {
    StrategyCost cost;
    for (std::size_t o = 0; o < graph.ops.size(); ++o) {
      const Op& op = graph.ops[o];
      const OpId id(static_cast<std::int64_t>(o));
      if (op.phase == Phase::kUpdate) continue;
      for (const ValueId input : op.inputs) {
        if (!input.valid() || draw.below(4) == 0) continue;
        CostTerm term;
        term.kind = CostTerm::Kind::kCollective;
        term.op = id;
        term.value = input;
        term.collective.axes = {static_cast<int>(draw.below(2))};
        const bool is_weight = graph.value(input).kind == ValueKind::kParameter;
        term.collective.kind =
            is_weight ? CollectiveKind::kAllGather : CollectiveKind::kReduceScatter;
        const Streams::Kind kind = kind_of(term);
        if (kind == Streams::Kind::kBlocking && draw.below(6) != 0) continue;
        term.times = 3;
        term.seconds = 3.0 * static_cast<double>(1 + draw.below(8)) / 2;
        term.source = static_cast<Bytes>(draw.below(20));
        term.temporaries = static_cast<Bytes>(1 + draw.below(20));
        cost.terms.push_back(term);
      }
      CostTerm compute;
      compute.op = id;
      compute.times = 3;
      compute.seconds = 3.0 * static_cast<double>(1 + draw.below(4)) / 4;
      cost.terms.push_back(compute);
    }
    return cost;
  }

  // While each op computes: what is fetched for later ones, and the gradients of earlier ones that
  // are not sent.
  std::vector<Bytes> held_while(const StrategyCost& cost, const std::vector<StepEvent>& events,
                                std::vector<OpId>& ops) const {
    std::vector<const StepEvent*> computed;
    for (const StepEvent& event : events) {
      if (event.stream == StepEvent::Stream::kCompute) computed.push_back(&event);
    }
    std::vector<Bytes> held(computed.size(), 0);
    const auto at = [&](OpId op, std::int64_t pass) {
      const auto found =
          std::find_if(computed.begin(), computed.end(), [&](const StepEvent* event) {
            return event->pass == pass && when_of(cost.terms[event->term], graph) == op;
          });
      return static_cast<std::size_t>(found - computed.begin());
    };
    for (const StepEvent& event : events) {
      if (event.stream != StepEvent::Stream::kLink) continue;
      const CostTerm& term = cost.terms[event.term];
      const Streams::Kind kind = kind_of(term);
      // Of a sum the pass is that in which it is sent; it may be made in the one before.
      std::int64_t pass = std::min(event.pass, graph.passes - 1);
      if (kind == Streams::Kind::kSummed &&
          computed[at(term.op, pass)]->begin > event.begin + 1e-9) {
        --pass;
      }
      const std::size_t its = at(term.op, pass);
      const Seconds end = event.begin + event.seconds;
      if (kind == Streams::Kind::kFetched) {
        for (std::size_t c = its;
             c-- > 0 && computed[c]->begin + computed[c]->seconds > event.begin + 1e-9;) {
          held[c] += term.temporaries;
        }
      }
      if (kind == Streams::Kind::kSummed) {
        for (std::size_t c = its + 1; c < computed.size() && computed[c]->begin < end - 1e-9; ++c) {
          held[c] += term.source + term.temporaries;
        }
      }
    }
    for (const StepEvent* event : computed) ops.push_back(when_of(cost.terms[event->term], graph));
    return held;
  }
};

}  // namespace

TEST_CASE("what is fetched ahead and what waits never takes more than the plan leaves",
          "[held_ahead]") {
  const Step step;
  int binds = 0, beyond = 0;
  for (std::uint64_t seed = 0; seed < cases(200u); ++seed) {
    Draw draw{std::mt19937_64(seed)};
    StrategyCost cost = step.draw(draw);
    const Seconds free = simulate(step.graph, cost, step.mesh, step.cluster).seconds;
    for (std::size_t o = 0; o < step.graph.ops.size(); ++o) {
      cost.held.push_back(static_cast<Bytes>(draw.below(60)));
      cost.memory.total = std::max(cost.memory.total, cost.held.back());
    }
    cost.limit = static_cast<Bytes>(1 + draw.below(120));
    const Bytes most = cost.most_held();
    const Seconds within = simulate(step.graph, cost, step.mesh, step.cluster).seconds;
    std::vector<OpId> ops;
    const auto held =
        step.held_while(cost, step_events(step.graph, cost, step.mesh, step.cluster), ops);
    INFO("seed " << seed);
    for (std::size_t c = 0; c < held.size(); ++c) {
      CHECK(cost.held[ops[c].index()] + held[c] <= most);
    }
    binds += within > free;
    // Where there is room for all, nothing changes.
    cost.limit = 1 << 20;
    CHECK(simulate(step.graph, cost, step.mesh, step.cluster).seconds == free);
    StrategyCost unlimited = cost;
    unlimited.limit = 0;
    std::vector<OpId> same;
    const auto ahead = step.held_while(
        unlimited, step_events(step.graph, unlimited, step.mesh, step.cluster), same);
    for (std::size_t c = 0; c < ahead.size(); ++c) {
      beyond += cost.held[same[c].index()] + ahead[c] > most;
    }
  }
  CHECK(binds > cases(100));   // limits that cost time
  CHECK(beyond > cases(100));  // ops that would hold more without them
}

}  // namespace autopar::held_ahead_test
