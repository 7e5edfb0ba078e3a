#include <algorithm>
#include <map>

#include "autopar/report.hpp"
#include "report/contradiction.hpp"
#include "search/bound_beside.hpp"

namespace autopar {

namespace {

std::string axes_text(const std::vector<int>& axes, const Mesh& mesh) {
  std::string text;
  for (int axis : axes) {
    text += (text.empty() ? "" : ",") + mesh.axes[static_cast<std::size_t>(axis)].name;
  }
  return text;
}

void add_collectives(const SearchOutcome& outcome, Report& report) {
  std::map<std::pair<std::string, std::vector<int>>, CollectiveSummary> sums;
  const auto& step = outcome.cost.step;
  for (std::size_t t = 0; t < outcome.cost.terms.size(); ++t) {
    const CostTerm& term = outcome.cost.terms[t];
    if (term.kind != CostTerm::Kind::kCollective) continue;
    auto& sum = sums[{name_of(term.collective.kind), term.collective.axes}];
    ++sum.count;
    if (step) sum.exposed += step->exposed[t];
    sum.seconds += term.seconds;
    sum.sent_bytes += term.sent_bytes;
  }
  for (auto& [key, sum] : sums) {
    sum.kind = key.first;
    sum.axes = axes_text(key.second, outcome.strategy.mesh);
    report.collectives.push_back(sum);
  }
  std::stable_sort(report.collectives.begin(), report.collectives.end(),
                   [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
}

void add_ops(const SearchRequest& request, const SearchOutcome& outcome, Report& report) {
  const Graph& graph = request.graph;
  auto specs = op_specs_of(graph, request.rules, outcome.strategy);
  AUTOPAR_CHECK(specs.ok(), "a found strategy is not valid");
  report.op_costs.resize(graph.ops.size());
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    OpSummary& op = report.op_costs[o];
    op.name = graph.ops[o].name;
    op.type = graph.ops[o].type;
    op.assignment =
        to_text(outcome.strategy.assignments[o], request.rules.rules[o], outcome.strategy.mesh);
    op.in_strategy = counts_text(strategy_of((*specs)[o].inputs, outcome.strategy.mesh));
  }
  for (const CostTerm& term : outcome.cost.terms) {
    if (!term.op.valid()) continue;
    OpSummary& op = report.op_costs[term.op.index()];
    (term.kind == CostTerm::Kind::kCompute ? op.compute : op.communication) += term.seconds;
  }
  std::stable_sort(report.op_costs.begin(), report.op_costs.end(),
                   [](const OpSummary& a, const OpSummary& b) {
                     return a.compute + a.communication > b.compute + b.communication;
                   });
}

void add_reshards(const SearchRequest& request, const SearchOutcome& outcome, Report& report) {
  const Graph& graph = request.graph;
  const Strategy& strategy = outcome.strategy;
  auto specs = op_specs_of(graph, request.rules, strategy);
  const std::vector<Readers> readers = readers_of(graph);
  std::map<std::tuple<ValueId, OpId, bool>, std::size_t> index;
  for (const CostTerm& term : outcome.cost.terms) {
    if (!term.value.valid()) continue;
    const auto [it, inserted] =
        index.try_emplace({term.value, term.op, term.to_hub}, report.reshards.size());
    if (inserted) {
      const ValueSpecs& v = strategy.values[term.value.index()];
      const bool has_hub = readers[term.value.index()].count() > 1;
      ReshardSummary reshard;
      reshard.tensor = graph.value(term.value).name;
      reshard.from = to_text(term.to_hub || !has_hub ? v.spec : v.hub, strategy.mesh);
      if (term.to_hub) {
        reshard.reader = "(hub)";
        reshard.to = to_text(v.hub, strategy.mesh);
      } else if (!term.op.valid()) {
        reshard.reader = "(output)";
        reshard.to = to_text(v.output, strategy.mesh);
      } else {
        const Op& op = graph.op(term.op);
        reshard.reader = op.name;
        for (std::size_t i = 0; i < op.inputs.size(); ++i) {
          const Spec& need = (*specs)[term.op.index()].inputs[i];
          if (op.inputs[i] == term.value && reshard.to.empty()) {
            reshard.to = to_text(need, strategy.mesh);
          }
        }
      }
      report.reshards.push_back(std::move(reshard));
    }
    ReshardSummary& reshard = report.reshards[it->second];
    // Of a value inside a kernel: what it takes that the kernel becomes two.
    const bool communicates = term.kind == CostTerm::Kind::kCollective;
    reshard.steps.push_back(communicates ? to_text(term.collective, strategy.mesh)
                                         : "broken kernel");
    reshard.seconds += term.seconds;
    reshard.sent_bytes += term.sent_bytes;
  }
  std::stable_sort(
      report.reshards.begin(), report.reshards.end(),
      [](const ReshardSummary& a, const ReshardSummary& b) { return a.seconds > b.seconds; });
}

}  // namespace

namespace {

std::string end_of_search(const SearchRequest& request, const Report& report) {
  const SolveOptions& asked = request.solve;
  if (report.proven) return "proof";
  if (asked.gap > 0 && report.gap <= asked.gap && report.meshes_not_tried == 0) return "gap";
  const bool is_cut_off = report.meshes_not_tried > 0 && asked.time_limit < kInfinity;
  if (!report.interrupted && !is_cut_off) return "effort";
  return asked.stop != nullptr && asked.stop->load() ? "interrupt" : "time limit";
}

}  // namespace

std::string counts_text(const std::vector<std::vector<std::int64_t>>& counts) {
  std::string text = "[";
  for (std::size_t i = 0; i < counts.size(); ++i) text += (i ? "," : "") + to_text(counts[i]);
  return text + "]";
}

std::string contradiction(double bound, double plan, const std::string& cost_model) {
  if (!contradicts(bound, plan)) return "";
  return "no plan is said to cost less than " + format_price(bound, cost_model) +
         ", and this one costs " + format_price(plan, cost_model) +
         ": the bound is wrong, or the price. Please report it, with the model, the cluster "
         "and the options";
}

Report build_report(const SearchRequest& request, const SearchOutcome& outcome) {
  Report report;
  report.ops = request.graph.ops.size();
  for (const Value& value : request.graph.values) {
    if (value.kind != ValueKind::kParameter) continue;
    report.parameter_count += static_cast<double>(element_count(value.shape));
    report.parameter_bytes += value.bytes();
  }
  report.cluster = request.cluster.name;
  report.devices = request.cluster.device_count();
  if (!request.cluster.profile.ideal()) report.profile = request.cluster.profile.name;
  report.searcher = outcome.searcher;
  report.picked = outcome.picked;
  report.cost_model = request.cost_model;
  report.mesh = outcome.strategy.mesh;
  report.seconds = outcome.cost.time();
  report.step = outcome.cost.step;
  const std::vector<Tier>& tiers = request.cluster.tiers;
  for (std::size_t l = 0; report.step && l < std::min<std::size_t>(tiers.size(), kLinks); ++l) {
    report.links.emplace_back(tiers[l].name, report.step->busy.links[l]);
  }
  report.compute = outcome.cost.compute();
  report.communication = outcome.cost.communication();
  report.lower_bound = outcome.lower_bound;
  report.unlimited_lower_bound = std::min(outcome.unlimited_lower_bound, outcome.lower_bound);
  report.gap = outcome.gap();
  const auto left = std::count_if(outcome.trials.begin(), outcome.trials.end(),
                                  [](const auto& t) { return t.end == TrialEnd::kNotTried; });
  report.meshes_not_tried = static_cast<std::size_t>(left);
  const auto out = std::count_if(outcome.trials.begin(), outcome.trials.end(),
                                 [](const auto& t) { return t.end == TrialEnd::kTooLarge; });
  report.meshes_left_out = static_cast<std::size_t>(out);
  report.bounds_own_mesh = outcome.bounds_own_mesh();
  const std::string wrong = contradiction(report.lower_bound, report.seconds, report.cost_model);
  if (!wrong.empty()) report.warnings.push_back(wrong);
  report.proven = report.gap == 0 && left == 0;
  report.interrupted = outcome.interrupted;
  for (const Searcher& s : searchers()) {
    if (outcome.searcher == s.name) report.bounded = s.proves_bound;
  }
  if (report.lower_bound <= 0 && report.seconds > 0) report.bounded = false;
  if (report.bounded || report.interrupted) report.ended_by = end_of_search(request, report);
  report.memory = outcome.cost.memory;
  const auto peak = static_cast<std::size_t>(report.memory.time);
  if (peak < request.graph.ops.size()) report.memory_op = request.graph.ops[peak].name;
  if (request.limit_memory) report.memory_limit = memory_limit(request);
  report.upper_memory = request.cluster.profile.upper_memory(report.memory.total);
  add_collectives(outcome, report);
  add_ops(request, outcome, report);
  add_reshards(request, outcome, report);
  report.trials = outcome.trials;
  report.propagation = outcome.propagation;
  return report;
}

std::vector<Baseline> run_baselines(const SearchRequest& request, const SearchOutcome& outcome) {
  std::vector<Baseline> baselines;
  for (const char* name : {"data_parallel", "replicate"}) {
    if (outcome.searcher == name) continue;
    Baseline baseline;
    baseline.name = name;
    SearchRequest plain{request.graph, request.rules, request.cluster};
    plain.searcher = name;
    plain.limit_memory = false;
    plain.inputs = request.inputs;
    plain.outputs = request.outputs;
    plain.updates = request.updates;
    plain.stored_rules = request.stored_rules;
    plain.leaves_as = request.leaves_as;
    plain.cost_model = request.cost_model;
    // Splitting one factor over all devices does not depend on how the mesh cuts them.
    plain.mesh = outcome.strategy.mesh;
    const auto found = search(plain);
    if (found) {
      baseline.found = true;
      baseline.mesh = to_text(found->strategy.mesh);
      baseline.seconds = found->cost.time();
      baseline.memory_bytes = found->cost.memory.total;
      baseline.fits = !request.limit_memory || baseline.memory_bytes <= plan_limit(request);
    }
    baselines.push_back(std::move(baseline));
  }
  return baselines;
}

}  // namespace autopar
