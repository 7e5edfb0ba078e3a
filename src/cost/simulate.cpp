#include "autopar/step_events.hpp"
#include "cost/simulation.hpp"

namespace autopar {
namespace {

// What a step takes, and the turns with which it does: those that make it shorter.
std::pair<Turns, StepTime> faster_turns(const Graph& graph, const StrategyCost& cost,
                                        const Mesh& mesh, const Cluster& cluster,
                                        const std::string& updates) {
  const auto time = [&](Turns turns) {
    return StepSimulation(graph, cost, mesh, cluster, updates, turns, nullptr).run();
  };
  StepTime ready = time(Turns::kReady);
  if (graph.copies == 1) return {Turns::kReady, std::move(ready)};
  StepTime sections = time(Turns::kSections);
  if (sections.seconds < ready.seconds) return {Turns::kSections, std::move(sections)};
  return {Turns::kReady, std::move(ready)};
}

}  // namespace

StepTime simulate(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                  const Cluster& cluster, const std::string& updates) {
  return faster_turns(graph, cost, mesh, cluster, updates).second;
}

std::vector<StreamPrices> prices_by_path(const Graph& graph, const StrategyCost& cost,
                                         const Mesh& mesh, const Cluster& cluster,
                                         const std::string& updates) {
  CriticalPath path;
  StepSimulation(graph, cost, mesh, cluster, updates, Turns::kReady, nullptr, &path).run();
  std::vector<OpId> whens;
  for (const CostTerm& term : cost.terms) {
    whens.push_back(when_of(term, graph));
  }
  std::vector<std::int64_t> times;
  for (const Op& op : graph.ops) times.push_back(graph.times(op));
  return path.prices(whens, times);
}

namespace {

// Of several passes that are interleaved the turns have to be found; others have only one order.
Turns turns_of(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
               const Cluster& cluster, const std::string& updates) {
  if (graph.copies == 1) return Turns::kReady;
  return faster_turns(graph, cost, mesh, cluster, updates).first;
}

// Without a profile: one term after the other.
void visit_in_turn(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                   const std::function<void(const StepEvent&)>& visit) {
  Seconds now = 0;
  for (std::int64_t pass = 0; pass <= graph.passes; ++pass) {
    for (std::size_t t = 0; t < cost.terms.size(); ++t) {
      const CostTerm& term = cost.terms[t];
      const OpId when = when_of(term, graph);
      if ((graph.op(when).phase == Phase::kUpdate) != (pass == graph.passes)) continue;
      const bool sends =
          term.kind == CostTerm::Kind::kCollective && communicates(term.collective.kind);
      const Seconds once =
          term.seconds / static_cast<double>(std::max<std::int64_t>(1, term.times));
      const auto stream = sends ? StepEvent::Stream::kLink : StepEvent::Stream::kCompute;
      const int link = sends ? link_of(term.collective.axes, mesh) : 0;
      visit({stream, link, t, pass, now, once, once});
      now += once;
    }
  }
}

}  // namespace

std::vector<StepEvent> step_events(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                                   const Cluster& cluster, const std::string& updates) {
  std::vector<StepEvent> events;
  if (cluster.profile.ideal()) {
    visit_in_turn(graph, cost, mesh, [&](const StepEvent& event) { events.push_back(event); });
    return events;
  }
  const Turns turns = turns_of(graph, cost, mesh, cluster, updates);
  StepSimulation(graph, cost, mesh, cluster, updates, turns, &events).run();
  return events;
}

void visit_step_events(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                       const Cluster& cluster, const std::string& updates,
                       const std::function<void(const StepEvent&)>& visit) {
  if (cluster.profile.ideal()) {
    visit_in_turn(graph, cost, mesh, visit);
    return;
  }
  const Turns turns = turns_of(graph, cost, mesh, cluster, updates);
  StepSimulation simulation(graph, cost, mesh, cluster, updates, turns, nullptr);
  simulation.visit(visit);
  simulation.run();
}

}  // namespace autopar
