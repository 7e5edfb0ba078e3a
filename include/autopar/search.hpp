// From a graph and a cluster to the best strategy: the Problem over one mesh, the table of
// searchers, and the outer loop over meshes.
//
//   SearchRequest request{.graph = graph, .cluster = cluster};
//   Result<SearchOutcome> outcome = search(request);
//   outcome->strategy, outcome->cost.time(), outcome->lower_bound
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autopar/cost_models.hpp"
#include "autopar/problem.hpp"

namespace autopar {

// Layout of graph inputs (or outputs) that the caller insists on.
struct BoundaryLayout {
  enum class Kind { kFree, kFull, kDataParallel, kGiven };
  Kind kind = Kind::kFree;
  std::map<std::string, std::string> spec_of;  // kGiven: value name -> spec text
  std::string file = {};                       // kGiven: where they are from, for messages
  // kFull, kDataParallel: inputs that are parameters lie so too, not only data.
  bool parameters_too = false;
};

// What the user fixed for one op: mesh axis name -> factor name, or split counts.
struct OpPin {
  std::optional<std::map<std::string, std::string>> assignment;
  std::optional<std::vector<std::vector<std::int64_t>>> in_strategy;
  std::optional<std::vector<std::vector<std::int64_t>>> out_strategy;
  bool operator==(const OpPin&) const = default;
};
// How a tensor lies; what is empty is free.
struct ValuePin {
  std::string spec;      // as it is produced; an input or parameter: as it is stored
  std::string hub_spec;  // as its readers get it; beside a kept_spec: the forward pass
  std::string output_spec;
  // `spec` once more, or in its place, in MindSpore's notation, which does not tell whether a
  // tensor is a partial sum: see src/layout/tensor_map.hpp.
  std::vector<std::int64_t> device_matrix = {};
  std::vector<std::vector<int>> tensor_map = {};
  // Of what several passes of a training step read (phase_ops.hpp): its hub, in which it waits from
  // one pass to the next, and how a later pass gets it.
  std::string kept_spec = {};
  std::string backward_hub_spec = {};
  std::string update_hub_spec = {};
  bool operator==(const ValuePin&) const = default;
};
struct Pins {
  std::map<std::string, OpPin> ops;        // by op name
  std::map<std::string, ValuePin> values;  // by value name
};

// Errors (kInput): a pin that names no op or value of the graph, with the nearest name.
Status check_names(const Pins& pins, const Graph& graph);

// What is said of how an input or parameter is stored; a pin or layout of its own comes before it.
struct StoredRule {
  enum class Kind : std::uint8_t {
    kAsRead,  // as the passes read it: nothing that is made of it alone is resharded in them
    kSplit,   // in as many parts as its shape and the mesh allow
    kLike,    // cut like another input or parameter
  };
  Kind kind = Kind::kSplit;
  ValueId like = {};
};

// What ops get that no pin names.
enum class Fill { kSearch, kDataParallel, kReplicate };

// What a searcher that proposes plans leaves of the candidates on one mesh.
struct Narrowing {
  std::vector<std::vector<Assignment>> assignments;  // per op: valid on the mesh; empty: all
  std::map<ValueId, Spec> stored = {};  // inputs and parameters that no pin or layout fixes
  // Whether inputs and parameters may lie in any way, or only as a reader needs them, or whole.
  bool all_stored_specs = true;
};

// Axes of the meshes that are tried where nothing is said about it; rec tries 4.
inline constexpr int kDefaultAxes = 3;

struct MeshTrial;
struct SearchFindings;

// No plan on that mesh takes less.
struct KnownBound {
  Mesh mesh;
  Seconds seconds = 0;
};

struct SearchRequest {
  const Graph& graph;
  const GraphRules& rules;
  const Cluster& cluster;
  std::string searcher = "dp";
  std::string cost_model = "roofline";  // a row of cost_models()
  std::optional<Mesh> mesh = {};        // fixed; else one of these,
  std::vector<Mesh> meshes = {};        // and where there are none those of src/search/meshes.hpp
  int max_axes = 0;                     // 0: the default of the searcher
  Bytes memory_limit = 0;               // 0: the device's memory
  bool limit_memory = true;
  // Plans leave room for what the runtime takes beside them, by the profile; false: they fit if
  // that is nothing.
  bool fits_surely = true;
  BoundaryLayout inputs = {};
  BoundaryLayout outputs = {};
  std::string updates = kNextPattern;  // outputs so named hold the next value of input `*`
  // The forward and the backward phase are programs of their own, as those of pipelines: what one
  // hands to the other is no partial sum.
  bool phases_apart = false;
  Pins pins = {};
  std::map<ValueId, StoredRule> stored_rules = {};
  std::optional<int> zero = {};  // the level that these are of
  // Outputs that leave as an input comes, as those of `updates` do: the model is one of several
  // that follow each other and are planned alike.
  std::map<ValueId, ValueId> leaves_as = {};
  Fill fill = Fill::kSearch;
  // Whether also assignments with parts that move between the ranks during an op, and then perhaps
  // only meshes on which there are some. Without a memory limit they gain nothing: to gather those
  // parts before the op takes no longer.
  enum class Moving { kNo, kAlso, kOnly };
  Moving moving = Moving::kNo;
  // Sharding propagation: what ops get that no pin reaches, and whether the redistribution is
  // minimised exactly instead of breadth first.
  Fill unreached = Fill::kDataParallel;
  bool propagate_exact = false;
  SolveOptions solve = {};
  std::shared_ptr<const Narrowing> narrowing = {};  // with `mesh`
  // What is minimised: busy times of streams, so weighted, in place of the sum of all prices. With
  // a profile only; search() tries several where none are given.
  std::optional<StreamTimes> weights = {};
  // Per op, in place of these; null: they are the same for all. What is minimised is then no bound.
  std::shared_ptr<const std::vector<StreamPrices>> prices_of_ops = {};
  // Gets what a search finds out, also one that ends without a plan. The caller has others to turn
  // to: a search that is stopped without a plan then asks no baseline for one.
  SearchFindings* findings = nullptr;
  // Meshes on which nothing is below `solve.cutoff` by these are not looked at.
  std::vector<KnownBound> known_bounds = {};
  // Called with what became of each mesh, whenever meshes were searched together.
  std::function<void(const std::vector<MeshTrial>&)> tell = {};

  // What is minimised, of a plan.
  Seconds objective(const StrategyCost& cost) const;
};
// Whether some op has such assignments on some mesh.
bool has_moving(const SearchRequest& request);
// Per device: what the request says, else what the cluster's device has.
Bytes memory_limit(const SearchRequest& request);
// What a plan may hold of it.
Bytes plan_limit(const SearchRequest& request);
// What a strategy costs there, with this limit for what is held ahead. Errors: of evaluate().
Result<StrategyCost> evaluate(const SearchRequest& request, const Strategy& strategy,
                              CostModel& model);

// A list of specs that many nodes share.
class SharedSpecs {
 public:
  SharedSpecs() : specs_(empty_list()) {}
  SharedSpecs(std::shared_ptr<const std::vector<Spec>> specs)  // NOLINT
      : specs_(std::move(specs)) {}
  operator const std::vector<Spec>&() const { return *specs_; }  // NOLINT
  const Spec& operator[](std::size_t i) const { return (*specs_)[i]; }
  std::size_t size() const { return specs_->size(); }
  bool empty() const { return specs_->empty(); }
  auto begin() const { return specs_->begin(); }
  auto end() const { return specs_->end(); }

 private:
  static const std::shared_ptr<const std::vector<Spec>>& empty_list() {
    static const auto list = std::make_shared<const std::vector<Spec>>();
    return list;
  }
  std::shared_ptr<const std::vector<Spec>> specs_;
};

// The Problem of one mesh and how its nodes and choices map to the graph.
struct MeshProblem {
  bool whole = true;  // false: the allowance was over before it was built; the rest is worthless
  Mesh mesh;
  Problem problem;
  std::vector<OpId> op_of_node;  // invalid: a value's node
  // Per op: its node and its candidates with their specs.
  std::vector<int> node_of_op;
  struct OpChoices {
    std::vector<Assignment> assignments;
    std::vector<OpSpecs> specs;
    std::vector<double> follower_prices = {};  // see CostModel; mostly empty
  };
  std::vector<std::shared_ptr<const OpChoices>> choices_of_op;
  // Per value: nodes of the stored spec, the hub, the output; -1: no such decision.
  std::vector<int> source_node, hub_node, output_node;
  std::vector<SharedSpecs> specs_of_node;  // per node; empty for ops
};
Result<MeshProblem> build_problem(const SearchRequest& request, CostModel& model,
                                  Allowance* allowance = nullptr);
// The same with the request's own cost model of that mesh: what search() solves for it.
Result<MeshProblem> build_problem(const SearchRequest& request, const Mesh& mesh);
// Choices (one per node) to the strategy that they stand for.
Strategy strategy_of(const Graph& graph, const MeshProblem& problem,
                     const std::vector<int>& choices);

// How the search on one mesh ended.
enum class TrialEnd {
  kPlan,         // with a plan
  kPruned,       // its bound is no better than the plan of another mesh; whether any plan fits was
                 // not asked
  kNothingFits,  // proven that no plan fits into the memory
  kNothingFound,
  kPinsNotKept,  // the pins or the given layouts are not possible on it
  kLookedAt,     // bounded, and not searched: the time was up, or the search interrupted
  kTooLarge,     // its problem would take more than a search may; nothing is said about its plans
  kNotTried,     // the time was up, or the search interrupted
};
const char* name_of(TrialEnd end);  // "plan", "pruned", "nothing fits", ...

struct MeshTrial {
  Mesh mesh;
  TrialEnd end = TrialEnd::kNotTried;
  bool stopped = false;      // early, by the time limit or an interrupt
  std::string undone;        // see TieBreak: of the plan
  std::string why;           // kPinsNotKept: which, and why not; kTooLarge: of what
  Seconds cost = kInfinity;  // the time of its best plan
  Seconds lower_bound = 0, unlimited_lower_bound = 0;
  std::size_t nodes = 0, edges = 0, candidates = 0;
  Seconds build_seconds = 0, solve_seconds = 0, evaluate_seconds = 0;  // wall
  std::vector<StageReport> stages = {};    // of the exact search, in their order
  SolveEnd solve_end = SolveEnd::kEffort;  // with them
};

struct SearchFindings {
  std::vector<MeshTrial> trials;
  Seconds lower_bound = 0;  // over the meshes that were tried
  Seconds unlimited_lower_bound = 0;
};

// What `auto` ran, or the templates of `uniform`, and whose plan it took.
struct SearcherTrial {
  std::string searcher;
  bool found = false;
  Seconds cost = 0;   // not found, and not 0: its plans are no cheaper than this
  std::string error;  // why nothing was found, or looked for
  Bytes memory = 0;   // per device; 0: not known
};
struct Picked {
  std::string searcher;  // empty: the searcher was neither `auto` nor `uniform`
  std::string why;
  std::vector<SearcherTrial> tried;
};
// The reshards of a plan (reductions of partial sums among them), without what ops exchange inside.
struct Redistribution {
  Seconds seconds = 0;
  double sent_bytes = 0;  // by one device
  int reshards = 0;
};
// One end of a reshard: an op, or a graph input or output whose layout is fixed.
struct ConflictEnd {
  std::string where;    // "fc1", "input 'X'"
  std::string spec;     // how the tensor lies there
  std::string because;  // "pinned", "layout", "follows op 'fc1'", "unreached"
};
// A reshard that propagation had to insert, other than reducing partial sums in place.
struct Conflict {
  enum class Kind {
    kPins,     // both ends are pinned
    kMeeting,  // the ends follow different pins
    kRule,     // the ends follow one pin: no split of the op keeps the layout
  };
  Kind kind = Kind::kRule;
  std::string tensor;
  ConflictEnd from, to;
  std::string via;  // how the tensor lies between them, where neither end wants it so
  std::vector<std::string> steps;
  Seconds seconds = 0;
  double sent_bytes = 0;
};
const char* name_of(Conflict::Kind kind);  // "pins", "meeting", "rule"
// What sharding propagation did.
struct Propagation {
  std::vector<std::string> seeds;  // "op 'fc1'"
  std::size_t reached = 0;         // ops, the pinned ones among them
  std::size_t unreached = 0;
  Redistribution breadth_first;
  // With --propagate-exact: of the plan, and how far it is at most from the least.
  std::optional<Redistribution> exact;
  double exact_gap = 0;
  std::vector<Conflict> conflicts;  // of the plan, costliest first
};

struct SearchOutcome {
  Strategy strategy;
  StrategyCost cost;        // as evaluate() finds it
  Seconds lower_bound = 0;  // on the time of a plan, over the meshes that were tried
  Seconds unlimited_lower_bound = 0;
  // What was minimised first, of the best plan by that, and its bounds: without a profile the same.
  struct Minimised {
    Seconds best = 0, lower_bound = 0, unlimited_lower_bound = 0;
  };
  Minimised minimised = {};
  double gap() const { return cost.time() > 0 ? (cost.time() - lower_bound) / cost.time() : 0; }
  // Whether the bound is one for the plan's own mesh as well: another searcher, or a baseline in
  // place of a plan, may have found it where the exact search did not look.
  bool bounds_own_mesh() const;
  bool interrupted = false;
  std::string searcher;
  Picked picked;
  std::vector<MeshTrial> trials;
  std::vector<std::string> notes;  // what was left undone that the cost model or a pin asks for
  std::vector<std::pair<std::string, Seconds>> phases;  // wall time, for benches
  std::optional<Propagation> propagation;
};
// Errors: kInfeasible naming the tightest constraint; kUsage/kInput for pins and layouts that
// cannot be kept, saying why; kUsage for an unknown searcher with the nearest name.
//
// `request.solve` holds for all meshes together: the time limit is shared out among those that are
// left, an interrupt ends all of them, and with a gap a mesh is pruned when it cannot be better by
// more than that. With a profile plans are compared by their simulated time; what is minimised, and
// bounds it, are weighted busy times (streams.hpp). Where it is interrupted before there is any
// plan, the baselines are asked for one.
Result<SearchOutcome> search(const SearchRequest& request);

// One row of the searchers' table.
struct Searcher {
  const char* name;
  const char* long_name;
  const char* what;
  Result<Solution> (*solve)(const SearchRequest& request, const MeshProblem& problem,
                            const SolveOptions& options);
  bool proves_bound;  // its lower bound holds for the whole problem
  Fill fill;          // what it leaves of the candidates of an op
  // Searchers that choose meshes themselves; null: `solve` on every mesh.
  Result<SearchOutcome> (*search)(const SearchRequest& request) = nullptr;
  // Adds to the outcome how the searcher came to the plan in it; nullptr: nothing to add.
  Status (*explain)(const SearchRequest& request, const MeshProblem& problem,
                    const Solution& solution, CostModel& model, SearchOutcome& outcome) = nullptr;
  // `solve` in two parts, so that all meshes can be looked at before one is searched; may be null.
  BegunSolve (*begin)(const Problem& problem, const SolveOptions& options,
                      const LearntOfProblem& learnt) = nullptr;
};
const std::vector<Searcher>& searchers();
// As the table has it, where a searcher is asked for by its long name, with what follows it
// ("uniform:dp=8"); unknown ones as they are.
std::string short_searcher_name(const std::string& asked);
// Whether `asked`, as `--searcher` has it, is `uniform`, perhaps with a template behind its name.
bool is_templates(const std::string& asked);

// Data parallelism: per op the factor that runs along the batch (dimension `dim` of the data
// inputs, followed through the graph), -1 where there is none.
std::vector<int> batch_factors(const Graph& graph, const GraphRules& rules, int dim = 0);
// Of the inputs whose next value is an output by `updates` (see updated_inputs), those whose next
// value runs along the batch: the caches of a decoding step are data, a training step's weights and
// optimizer states are not.
std::vector<ValueId> carried_data(const Graph& graph, const GraphRules& rules,
                                  const std::string& updates);

}  // namespace autopar
