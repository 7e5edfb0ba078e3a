#include "planning/parts_of_step.hpp"

#include <algorithm>
#include <cmath>

#include "autopar/stages.hpp"
#include "search/uniform/uniform.hpp"

namespace autopar {

namespace {

// Weights of ops are so many parts of one, and what they wait for of a pass: a grid, so that ops
// that are alike share prices, fine beside what weights differ by. Chosen, not tuned.
constexpr double kWeightSteps = 64;
constexpr double kBehindSteps = 1024;

}  // namespace

Result<LeastTime> least_time(Inputs& inputs, const PlanOptions& options,
                             const std::optional<StrategyFile>& pins, const CommonOptions& common,
                             const std::optional<StreamTimes>& weights) {
  AUTOPAR_TRY(request, request_of(inputs, pins, options, common));
  request.searcher = "dp";
  request.limit_memory = false;
  request.weights = weights;
  AUTOPAR_TRY(outcome, search(request));
  LeastTime least{outcome.lower_bound, {}};
  if (outcome.cost.step) least.busy = outcome.cost.step->busy;
  for (const MeshTrial& trial : outcome.trials) {
    if (trial.end == TrialEnd::kPinsNotKept) continue;
    least.of_meshes.emplace_back(to_text(trial.mesh), trial.lower_bound);
  }
  return least;
}

namespace {

// Ops of which nothing is said are taken to be as those before them.
std::shared_ptr<const std::vector<StreamPrices>> in_order(const Graph& graph,
                                                          const OpPrices& weights,
                                                          const StreamTimes& first) {
  auto of_ops = std::make_shared<std::vector<StreamPrices>>();
  for (const Op& op : graph.ops) {
    const auto known = weights.find(op.name);
    const StreamPrices before = of_ops->empty() ? StreamPrices{first} : of_ops->back();
    of_ops->push_back(known == weights.end() ? before : known->second);
  }
  return of_ops;
}

std::map<ValueId, ValueId> values_of(const Graph& graph, const HandedOn& handed_on) {
  std::map<std::string_view, ValueId> ids;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    ids.emplace(graph.values[v].name, ValueId(static_cast<std::int64_t>(v)));
  }
  std::map<ValueId, ValueId> found;
  for (const auto& [output, input] : handed_on) {
    if (ids.count(output) != 0 && ids.count(input) != 0) found[ids[output]] = ids[input];
  }
  return found;
}

}  // namespace

Result<PricedProblem> problem_on(const std::shared_ptr<Inputs>& inputs, const PlanOptions& options,
                                 const std::optional<StrategyFile>& pins,
                                 const CommonOptions& common, const std::string& mesh,
                                 const std::optional<StreamTimes>& weights,
                                 const OpPrices* prices_of_ops, const HandedOn& handed_on) {
  PlanOptions own = options;
  own.meshes = {mesh};
  AUTOPAR_TRY(asked, request_of(*inputs, pins, own, common));
  const auto request = std::make_shared<SearchRequest>(std::move(asked));
  request->searcher = "dp";
  request->weights = weights;
  request->leaves_as = values_of(request->graph, handed_on);
  if (prices_of_ops != nullptr) {
    request->prices_of_ops = in_order(request->graph, *prices_of_ops, *weights);
  }
  const Mesh on = request->mesh ? *request->mesh : request->meshes.front();
  AUTOPAR_TRY(built, build_problem(*request, on));
  PricedProblem problem{std::move(built), {}};
  problem.seconds = [inputs, request, on](const MeshProblem& built,
                                          const std::vector<int>& choices) -> Result<Seconds> {
    AUTOPAR_TRY(model, make_cost_model(request->cost_model, request->cluster, on));
    const Strategy strategy = strategy_of(request->graph, built, choices);
    AUTOPAR_TRY(cost, evaluate(*request, strategy, *model));
    return cost.time();
  };
  return problem;
}

namespace {

// Prices of ops in equal parts by the paths of plans, and by the weights that they began with.
class MeanPrices {
 public:
  MeanPrices(const StreamTimes& weights, std::size_t ops) : sums_(ops, StreamPrices{weights}) {}

  void add(const std::vector<StreamPrices>& path, Seconds pass) {
    if (paths_ == 0) step_ = pass / kBehindSteps;
    ++paths_;
    for (std::size_t o = 0; o < sums_.size(); ++o) {
      StreamTimes weights = path[o].weights;
      const auto to = sums_[o].weights.all(), from = weights.all();
      for (std::size_t s = 0; s < to.size(); ++s) *to[s] += *from[s];
      for (std::size_t l = 0; l < kLinks; ++l) sums_[o].behind[l] += path[o].behind[l];
    }
  }

  // In steps, so that ops that are alike share their prices.
  std::shared_ptr<const std::vector<StreamPrices>> mean(bool with_behind) const {
    auto means = std::make_shared<std::vector<StreamPrices>>(sums_);
    for (StreamPrices& prices : *means) {
      for (Seconds* w : prices.weights.all()) {
        const double mean = std::round(*w / (paths_ + 1) * kWeightSteps) / kWeightSteps;
        *w = std::max(StreamTimes::kLeastWeight, mean);
      }
      for (Seconds& behind : prices.behind) {
        behind = with_behind ? std::round(behind / paths_ / step_) * step_ : 0;
      }
    }
    return means;
  }

 private:
  std::vector<StreamPrices> sums_;
  int paths_ = 0;
  Seconds step_ = 0;
};

Seconds pass_of(const Graph& graph, Seconds step) {
  return step / static_cast<double>(std::max<std::int64_t>(1, graph.passes));
}

}  // namespace

Result<PathPrices> prices_by_paths(Inputs& inputs, const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common, const std::string& mesh,
                                   const StreamTimes& weights, const HandedOn& handed_on,
                                   const PathSearch& search) {
  PlanOptions own = options;
  own.meshes = {mesh};
  AUTOPAR_TRY(request, request_of(inputs, pins, own, common));
  request.searcher = "dp";
  request.weights = weights;
  request.leaves_as = values_of(request.graph, handed_on);
  request.limit_memory = false;
  const Mesh on = request.mesh ? *request.mesh : request.meshes.front();
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, on));
  const std::vector<Op>& ops = request.graph.ops;
  SolveOptions solve;
  solve.effort = search.effort;
  MeanPrices prices(weights, ops.size());
  PathPrices best{{}, kInfinity, kInfinity};
  Seconds to_beat = kInfinity, before = kInfinity;
  for (int round = 0; round <= search.rounds; ++round) {
    AUTOPAR_TRY(built, build_problem(request, *model));
    const Solution solution = solve_dp(built.problem, solve);
    if (!solution.feasible) break;
    const Strategy strategy = strategy_of(request.graph, built, solution.choices);
    AUTOPAR_TRY(cost, evaluate(request, strategy, *model));
    if (round == 0) best.first = cost.time();
    best.least = std::min(best.least, cost.time());
    if (cost.time() < to_beat) {
      to_beat = round == 0 ? (1 - search.gain) * cost.time() : cost.time();
      best.of_ops.clear();
      for (std::size_t o = 0; o < ops.size() && request.prices_of_ops != nullptr; ++o) {
        best.of_ops[ops[o].name] = (*request.prices_of_ops)[o];
      }
    }
    const bool is_far = round == 0 && cost.time() >= search.far;
    if (best.least <= search.enough || is_far || cost.time() == before) break;
    before = cost.time();
    prices.add(prices_by_path(request.graph, cost, on, request.cluster, request.updates),
               pass_of(request.graph, cost.time()));
    request.prices_of_ops = prices.mean(false);
  }
  return best;
}

namespace {

std::shared_ptr<const Narrowing> narrowed_to(const Graph& graph, const ChosenParts& chosen) {
  auto narrowing = std::make_shared<Narrowing>();
  narrowing->assignments.resize(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (const Assignment* one = chosen.op(graph.ops[o].name)) narrowing->assignments[o] = {*one};
  }
  return narrowing;
}

// With the pins of a template.
Result<SearchRequest> pinned_to(const SearchRequest& request, const Template* wanted) {
  if (wanted == nullptr) return request;
  return as_template(request, template_roles(request), *wanted);
}

// All choices but that one are forbidden, where it is one.
template <class Choices, class Choice>
void keep_only(ProblemNode& node, const Choices& choices, const Choice& choice) {
  std::vector<double> cost(node.cost.size(), kInfinity);
  bool is_one = false;
  for (std::size_t i = 0; i < cost.size(); ++i) {
    if (!(choices[i] == choice)) continue;
    cost[i] = node.cost[i];
    is_one = true;
  }
  if (is_one) node.cost = std::move(cost);
}

void keep_chosen(const Graph& graph, const ChosenParts& chosen, MeshProblem& problem) {
  std::vector<ProblemNode>& nodes = problem.problem.nodes;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    const Assignment* one = chosen.op(graph.ops[o].name);
    if (one == nullptr) continue;
    keep_only(nodes[static_cast<std::size_t>(problem.node_of_op[o])],
              problem.choices_of_op[o]->assignments, *one);
  }
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ChosenSpecs* specs = chosen.value(graph.values[v].name);
    if (specs == nullptr) continue;
    for (const auto& [node, spec] : {std::pair(problem.source_node[v], &specs->stored),
                                     std::pair(problem.hub_node[v], &specs->hub),
                                     std::pair(problem.output_node[v], &specs->output)}) {
      if (node < 0 || !*spec) continue;
      const auto n = static_cast<std::size_t>(node);
      keep_only(nodes[n], problem.specs_of_node[n], **spec);
    }
  }
}

}  // namespace

Result<PartsRequest> parts_request(std::unique_ptr<Inputs> inputs, const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common, const std::string& mesh) {
  PlanOptions own = options;
  own.meshes = {mesh};
  own.searcher = "dp";
  AUTOPAR_TRY(request, request_of(*inputs, pins, own, common));
  request.mesh = request.meshes.front();
  return PartsRequest{std::move(inputs), std::move(request)};
}

Result<PartsPlan> plan_of_parts(const PartsRequest& parts,
                                const std::optional<StreamTimes>& weights,
                                const ChosenParts& chosen, double effort, const Template* wanted,
                                const ChosenParts* again) {
  const SearchRequest& request = parts.request;
  AUTOPAR_TRY(asked, pinned_to(request, wanted));
  asked.weights = weights;
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, *request.mesh));
  SolveOptions solve = request.solve;
  solve.effort = effort;
  PartsPlan found;
  const auto plan = [&](const ChosenParts& kept) -> Status {
    asked.narrowing = narrowed_to(request.graph, kept);
    AUTOPAR_TRY(problem, build_problem(asked, *model));
    keep_chosen(request.graph, kept, problem);
    const Solution solution = solve_dp(problem.problem, solve);
    if (!solution.feasible) {
      if (!found.outcome) found.least_bytes = solution.least_peak_use;
      return Ok{};
    }
    SearchOutcome outcome;
    outcome.strategy = strategy_of(request.graph, problem, solution.choices);
    outcome.searcher = "dp";
    AUTOPAR_TRY(cost, evaluate(request, outcome.strategy, *model));
    outcome.cost = std::move(cost);
    if (found.outcome && outcome.cost.time() >= found.outcome->cost.time()) return Ok{};
    found.least_bytes = solution.peak_use;
    found.outcome = std::move(outcome);
    return Ok{};
  };
  AUTOPAR_RETURN_IF_ERROR(plan(chosen));
  if (again != nullptr && weights && found.outcome) {
    const StrategyCost& cost = found.outcome->cost;
    MeanPrices prices(*weights, request.graph.ops.size());
    prices.add(prices_by_path(request.graph, cost, *request.mesh, request.cluster, request.updates),
               pass_of(request.graph, cost.time()));
    asked.prices_of_ops = prices.mean(true);
    AUTOPAR_RETURN_IF_ERROR(plan(*again));
  }
  return found;
}

Result<Planned> planned_like(std::unique_ptr<Inputs> inputs, const Planned& like,
                             const PlanOptions& options, const std::optional<StrategyFile>& pins,
                             const CommonOptions& common) {
  if (!like.inputs->recompute.repeat_nothing()) {
    AUTOPAR_TRY(repeated, repeat_ops(*inputs, like.inputs->recompute));
    AUTOPAR_CHECK(repeated, "what is repeated in a chunk is in one like it");
  }
  AUTOPAR_TRY(request, request_of(*inputs, pins, options, common));
  const auto map = same_values(like.inputs->model.graph, request.graph);
  AUTOPAR_CHECK(map.has_value(), "chunks are alike as they are and not as they are planned");
  SearchOutcome outcome = like.outcome;
  for (std::size_t v = 0; v < map->size(); ++v) {
    if (!(*map)[v].valid()) continue;
    outcome.strategy.values[(*map)[v].index()] = like.outcome.strategy.values[v];
  }
  AUTOPAR_TRY(model, make_cost_model(request.cost_model, request.cluster, outcome.strategy.mesh));
  AUTOPAR_TRY(cost, evaluate(request, outcome.strategy, *model));
  outcome.cost = std::move(cost);
  return Planned{std::move(inputs), std::move(request), std::move(outcome)};
}

}  // namespace autopar
