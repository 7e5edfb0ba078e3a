// What a strategy costs: seconds by op and by collective, and memory over the live ranges.
//
//   RooflineModel model(cluster, mesh);
//   Result<StrategyCost> cost = evaluate(graph, rules, strategy, model);
//   cost->total() == sum of cost->terms[i].seconds, in this order
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/problem.hpp"
#include "autopar/strategy.hpp"
#include "autopar/streams.hpp"

namespace autopar {

// One collective (or local slicing step) with its price.
struct PricedCollective {
  Collective collective;
  Seconds seconds = 0;
  double sent_bytes = 0;  // by one device
};

struct OpPrice {
  Seconds compute = 0;
  std::vector<PricedCollective> collectives;  // inside the op (a softmax over a split axis)
  Bytes temporaries = 0;  // the most that an exchange of halos needs, inputs and outputs aside
  Seconds total() const;
};

// The way of a value to those who need it: to the hub that several of them share, from there to one
// of them, or to the only one.
enum class Leg { kToHub, kFromHub, kToOnlyReader };

// One of the plans that cost the same.
struct TieBreak {
  Solution plan;
  std::string undone;  // what the rule could not do for this plan; empty: nothing
};

// Prices ops and reshards on one mesh. Deterministic; may cache, so not thread-safe.
//
// A cost model may also be about fewer plans than there are, or prefer some of those that cost the
// same: the functions after limit() say which. Their defaults leave out and prefer none.
class CostModel {
 public:
  virtual ~CostModel() = default;
  virtual const Mesh& mesh() const = 0;
  virtual const Cluster& cluster() const = 0;
  // Precondition: `specs` are those of `assignment`. Errors: the op cannot be localised.
  virtual Result<OpPrice> op_price(const Graph& graph, const Op& op, const Rule& rule,
                                   const Assignment& assignment, const OpSpecs& specs) = 0;
  // Rows: from, columns: to.
  virtual ReshardTable reshard_prices(const Shape& shape, DType dtype,
                                      const std::vector<Spec>& from,
                                      const std::vector<Spec>& to) = 0;
  // The same with what weights make of each. Default: `weights.local` of the whole.
  virtual ReshardTable weighted_reshard_prices(const Shape& shape, DType dtype,
                                               const std::vector<Spec>& from,
                                               const std::vector<Spec>& to,
                                               const ReshardWeights& weights);
  virtual std::vector<PricedCollective> reshard_steps(const Shape& shape, DType dtype,
                                                      const Spec& from, const Spec& to) = 0;
  // What a reshard of a value that is inside a kernel costs beside its steps, since the kernel is
  // broken there: the value goes to memory and back, and there is one more kernel. Default: 0.
  virtual Seconds breaking_seconds(const Shape& shape, DType dtype, const Spec& from,
                                   const Spec& to) const;
  // From now on reshard_prices() counts what it takes, where that may be much, and once it is over
  // answers at once with anything. Null: no limit. It must live as long.
  virtual void limit(Allowance* allowance);

  // What an op may choose from, never empty; none, if it is there, last. Default: all.
  virtual std::vector<Assignment> choices(const Op& op, const Rule& rule) const;
  // Whether it prices ops whose parts move between the ranks (moving_candidates). Default: no.
  virtual bool prices_moving() const;
  // The same for an op with a pin, which picks one of them. Default: all.
  virtual std::vector<Assignment> choices_of_pin(const Op& op, const Rule& rule) const;
  // Whether those of a pin are fewer than the op has, since these are too many. Default: never.
  virtual bool leaves_out(const Rule& rule) const;
  // Whether a value may be resharded on that leg of its way. Default: on each.
  virtual bool may_reshard(const Graph& graph, const Value& value, Leg leg) const;
  // Whether an input, parameter or output, where nothing else says how, may lie in any way, or only
  // as an op that reads or makes it has it, whole, or data parallel. `shared`: several ops read it,
  // so that a layout that is none of theirs may be the cheapest. Default: any.
  virtual bool has_free_boundary(const Value& value, bool shared) const;
  // Sharding propagation takes, of candidates of an op that redistribute as much, the cheapest.
  // What it compares in place of their prices where the op follows no more than one other: a number
  // for each of `specs`, or nothing, which is the default.
  virtual std::vector<double> follower_prices(const Graph& graph, const Op& op,
                                              const std::vector<OpSpecs>& specs) const;
  // Which one is given out of the plans that cost what `best` costs, the solution of `problem`.
  // `nodes`: those of the ops, in the order of the graph. Default: `best` itself.
  virtual TieBreak break_ties(const Problem& problem, const std::vector<int>& nodes, Solution best,
                              const SolveOptions& options) const;
};

// Time of an op: the larger of FLOPs over peak and bytes over memory bandwidth, on local shapes
// (Williams, Waterman, Patterson, "Roofline", CACM 2009); what the op becomes on a rank is priced,
// inner collectives included. Time of a reshard: alpha-beta per collective (comm.hpp).
class RooflineModel final : public CostModel {
 public:
  RooflineModel(Cluster cluster, Mesh mesh);
  ~RooflineModel() override;
  const Mesh& mesh() const override;
  const Cluster& cluster() const override;
  Result<OpPrice> op_price(const Graph& graph, const Op& op, const Rule& rule,
                           const Assignment& assignment, const OpSpecs& specs) override;
  ReshardTable reshard_prices(const Shape& shape, DType dtype, const std::vector<Spec>& from,
                              const std::vector<Spec>& to) override;
  ReshardTable weighted_reshard_prices(const Shape& shape, DType dtype,
                                       const std::vector<Spec>& from, const std::vector<Spec>& to,
                                       const ReshardWeights& weights) override;
  std::vector<PricedCollective> reshard_steps(const Shape& shape, DType dtype, const Spec& from,
                                              const Spec& to) override;
  Seconds breaking_seconds(const Shape& shape, DType dtype, const Spec& from,
                           const Spec& to) const override;
  void limit(Allowance* allowance) override;
  bool prices_moving() const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The dtype whose peak holds for one, and FLOP/s: float32's, else any's, where the device has none
// for it. Precondition: the device has one (verify() of clusters).
using Peak = std::pair<const std::string, double>;
const Peak& peak_of(const Device& device, DType dtype);
// Dtypes in which ops of the graph calculate and for which the device has no peak, so that theirs
// is taken to be that of another dtype. Integers only where that peak decides the time of an op.
struct BorrowedPeak {
  DType dtype = DType::kFloat32;
  std::string of;  // the dtype whose peak is taken: float32's, or any where there is none
  std::string op;  // the first op that calculates so
};
std::vector<BorrowedPeak> borrowed_peaks(const Graph& graph, const Device& device);

// A row of the table of cost models (cost_models.hpp).
struct CostModelRow {
  const char* name;
  const char* what;
  const char* unit;  // of its prices: "seconds", or that they only compare plans with each other
  std::unique_ptr<CostModel> (*make)(const Cluster& cluster, const Mesh& mesh);
  // The meshes that a search tries; null: mesh_candidates.
  std::vector<Mesh> (*meshes)(const Cluster& cluster) = nullptr;
};

// One addend of a strategy's cost.
struct CostTerm {
  enum class Kind { kCompute, kCollective };
  Kind kind = Kind::kCompute;
  OpId op;        // the op that computes, or that reads the resharded value; invalid: graph output
  ValueId value;  // the resharded value; invalid for what happens inside an op
  bool to_hub = false;
  Collective collective;
  Seconds seconds = 0;     // of a step: what happens in every pass counts as often
  double sent_bytes = 0;   // of a step
  std::int64_t times = 1;  // in a step
  // Of a reshard, per device: the value as it lay before, and the peak of what it makes.
  Bytes source = 0, temporaries = 0;
};

// When a term happens: with the op, or the op that makes the output.
inline OpId when_of(const CostTerm& term, const Graph& graph) {
  return term.op.valid() ? term.op : graph.value(term.value).producer;
}

// The peak of the memory per device, at the op during which it is reached, and what lives then.
// What counts: MemoryCharge in strategy.hpp.
struct MemoryPeak {
  Bytes total = 0;
  int time = 0;
  Bytes parameters = 0;  // inputs and parameters as stored
  Bytes constants = 0;
  Bytes activations = 0;  // produced, hub and output copies
  Bytes reshards = 0;     // temporaries of reshards and of exchanges of halos
  // Whose `parameters` and `activations` are, all copies of a value together; in the graph's order.
  std::vector<std::pair<ValueId, Bytes>> values = {};
};

// A step on a runtime with a profile: compute, collectives and the host that issues both go on
// beside each other.
struct StepTime {
  Seconds seconds = 0;
  Seconds compute = 0, communication = 0, host = 0;  // how long each is busy
  StreamTimes busy;  // what a search weighs; compute with the collectives that it waits for
  std::vector<Seconds> exposed;  // per term of the cost: how long compute waits for it
};

struct StrategyCost {
  std::vector<CostTerm> terms;  // ops in order, each after the reshards of what it reads
  MemoryPeak memory;
  // Per op what a device holds while it runs; and what it may hold in all, where that is more than
  // the peak. The rest is for weights that are fetched ahead, and gradients that wait for a link.
  // Without a limit (0) there is room for all of them.
  std::vector<Bytes> held;
  Bytes limit = 0;
  Bytes most_held() const { return std::max(memory.total, limit); }
  std::optional<StepTime> step;  // nothing without a profile: one after the other

  // What the step takes.
  Seconds time() const { return step ? step->seconds : total(); }
  Seconds total() const;
  Seconds compute() const;
  Seconds communication() const;
};
// One device, op by op in the order of the graph, and pass by pass. Compute waits for collectives
// but for those that the profile defers: sums of gradients, which begin as soon as their value is
// there (of accumulated ones: in the last pass) and for which the update waits; gathers of stored
// weights, which are fetched as early as the link is free; both as far as there is room for them
// (StrategyCost::held), else gradients are waited for, and weights fetched later; and gathers of
// updated weights, which happen while the next step begins, as that of the step before while this
// one does. Those over one link (link_of) go one after the other, but for what compute waits for
// while a sum is under way that has more left than it: each then has half of the link. The host
// issues kernels and collectives one after the other and never waits. Interleaved passes
// (Graph::copies) take turns: one computes as far as it has to wait for collectives, then the next
// does while these go on.
StepTime simulate(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                  const Cluster& cluster, const std::string& updates = kNextPattern);

// Per op as weights the part of its seconds of compute, and of its collectives over each link, that
// is on the path of the step: the chain of what waits for each other until the end. Of what it has
// none of, where the path is at that time. And what a collective over each link would wait for
// others there, on average over the passes. Precondition: a profile, and no interleaved passes.
std::vector<StreamPrices> prices_by_path(const Graph& graph, const StrategyCost& cost,
                                         const Mesh& mesh, const Cluster& cluster,
                                         const std::string& updates = kNextPattern);

// One part of a step on a stream: a term of the cost in one pass.
struct StepEvent {
  enum class Stream : std::uint8_t { kCompute, kLink, kHost };
  Stream stream = Stream::kCompute;
  int link = 0;  // kLink: see link_of()
  std::size_t term = 0;
  std::int64_t pass = 0;  // of the update: as many as there are passes
  Seconds begin = 0, seconds = 0;
  Seconds alone = 0;  // what it would take if it did not share its link
};
// When a step does what, in the order in which it is begun: as simulate() has it, and without a
// profile one term after the other. The last ends at StrategyCost::time().
std::vector<StepEvent> step_events(const Graph& graph, const StrategyCost& cost, const Mesh& mesh,
                                   const Cluster& cluster,
                                   const std::string& updates = kNextPattern);

// `updates`: outputs so named hold the next value of input `*` and take its place in memory.
// `limit`: see StrategyCost.
Result<StrategyCost> evaluate(const Graph& graph, const GraphRules& rules, const Strategy& strategy,
                              CostModel& model, const std::string& updates = kNextPattern,
                              Bytes limit = 0);

}  // namespace autopar
