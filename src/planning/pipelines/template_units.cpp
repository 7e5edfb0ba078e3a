#include "planning/pipelines/template_units.hpp"

#include <numeric>

#include "autopar/report.hpp"
#include "autopar/strategy.hpp"
#include "planning/logging.hpp"
#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/pipeline_plan.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"
#include "planning/zero.hpp"
#include "recompute/of_unit.hpp"
#include "search/weighted.hpp"

namespace autopar {

namespace {

using namespace tuning::templates;

bool is_read_before(const Graph& graph, const Readers& readers) {
  return std::any_of(readers.uses.begin(), readers.uses.end(),
                     [&](const Use& use) { return graph.op(use.op).phase == Phase::kForward; });
}

// What a micro-batch leaves for its backward pass, of all devices together.
double kept_by(const Graph& graph) {
  const std::vector<Readers> readers = readers_of(graph);
  double bytes = 0;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const Value& value = graph.values[v];
    const OpId maker = value.producer;
    const bool is_made = maker.valid() && graph.op(maker).phase == Phase::kForward;
    if (graph.is_inside(id) || !(is_made || value.of_micro_batch)) continue;
    const bool is_read =
        std::any_of(readers[v].uses.begin(), readers[v].uses.end(),
                    [&](const Use& use) { return graph.op(use.op).phase == Phase::kBackward; });
    // What hands on another value, or a view of it, is no other memory.
    const bool is_own = is_made && !is_view(graph.op(maker));
    if (is_read && (is_own || is_read_before(graph, readers[v])))
      bytes += bytes_of(value.shape, value.dtype);
  }
  return bytes;
}

}  // namespace

std::string to_text(const StageTemplate& wanted) {
  std::string text = to_text(wanted.parallel);
  if (wanted.recompute != Recompute::kNone) {
    text += " recompute=" + std::string(name_of(wanted.recompute));
  }
  return text;
}

double TemplateUnits::Unit::stored_bytes(int zero, double parts_of_zero) const {
  return read / (zero >= 3 ? parts_of_zero : 1) + accumulators / (zero >= 2 ? parts_of_zero : 1) +
         states / (zero >= 1 ? parts_of_zero : 1);
}

Result<std::unique_ptr<TemplateUnits>> TemplateUnits::of(const Inputs& step,
                                                         const PlanOptions& options,
                                                         const CommonOptions& common) {
  std::unique_ptr<TemplateUnits> units(new TemplateUnits(options, common));
  const Graph& graph = step.model.graph;
  AUTOPAR_TRY(seconds, seconds_of_ops(step, graph, options.updates));
  AUTOPAR_TRY(found, units_of(graph, layer_cuts(graph, seconds, options.updates), options.updates,
                              tuning::templates::kMostKinds));
  units->units_ = std::move(found);
  if (units->units_.cuts.size() < 2) {
    return infeasible_error(
        "templates of pipelines are cut between layers that are alike, of which the step has none");
  }
  if (units->units_.kinds.empty()) {
    return infeasible_error("templates of pipelines are priced by what lies between " +
                            std::to_string(units->units_.cuts.size()) +
                            " places that are alike, which is of more than " +
                            std::to_string(tuning::templates::kMostKinds) + " kinds");
  }
  units->bare_.emplace(without_graph(step, step.cluster));
  return units;
}

Result<TemplateUnits::Unit> TemplateUnits::prepared(const Graph& graph, Recompute recompute,
                                                    bool& repeats) const {
  Unit unit{*bare_, {}, {}, {}, 0, 0, 0, 0};
  Inputs& inputs = unit.inputs;
  Recomputed again = recompute_unit(graph, recompute);
  repeats = repeats || again.repeated > 0;
  inputs.model.graph = std::move(again.graph);
  inputs.model.graph.in_flight = 1;
  AUTOPAR_TRY(rules, rules_of(inputs.model.graph, inputs.user_rules));
  inputs.rules = std::move(rules);
  PlanOptions own = options_;
  own.searcher = "dp";
  own.meshes.clear();
  CommonOptions any = common_;
  any.mesh.clear();
  AUTOPAR_TRY(request, request_of(inputs, {}, own, any));
  unit.roles = template_roles(request);
  const Graph& made = inputs.model.graph;
  AUTOPAR_TRY(seconds, seconds_of_ops(inputs, made, options_.updates));
  unit.compute.forward = std::accumulate(seconds.forward.begin(), seconds.forward.end(), 0.0);
  unit.compute.backward = std::accumulate(seconds.backward.begin(), seconds.backward.end(), 0.0);
  unit.compute.input_gradients = std::accumulate(seconds.inputs.begin(), seconds.inputs.end(), 0.0);
  unit.compute.weight_gradients =
      std::max(0.0, unit.compute.backward - unit.compute.input_gradients);
  unit.kept_bytes = kept_by(made);
  for (const TemplateStored& stored : unit.roles.stored) {
    using Kind = TemplateStored::Kind;
    (stored.kind == Kind::kRead    ? unit.read
     : stored.kind == Kind::kState ? unit.states
                                   : unit.accumulators) +=
        static_cast<double>(made.value(stored.value).bytes());
  }
  return unit;
}

Result<const TemplateUnits::Level*> TemplateUnits::level(Recompute recompute) {
  const auto known = levels_.find(recompute);
  if (known != levels_.end()) return &known->second;
  Level level;
  for (const Graph& kind : units_.kinds) {
    AUTOPAR_TRY(unit, prepared(kind, recompute, level.repeats));
    level.kinds.push_back(std::move(unit));
  }
  return &levels_.emplace(recompute, std::move(level)).first->second;
}

Result<SearchRequest> TemplateUnits::on_stage(const Unit& unit, const Cluster& stage) const {
  const Inputs& inputs = unit.inputs;
  SearchRequest request{inputs.model.graph, inputs.rules, stage};
  request.searcher = "dp";
  request.cost_model = options_.cost_model;
  request.updates = options_.updates;
  request.phases_apart = stage.device_count() != inputs.cluster.device_count();
  AUTOPAR_TRY(stored, stored_rules(*parse_zero(options_.zero), inputs.model));
  request.stored_rules = std::move(stored);
  request.zero = level_of(*parse_zero(options_.zero));
  if (!stage.profile.ideal()) request.weights = first_weights(stage);
  return request;
}

namespace {

Bytes stored_by(const TemplateUnits::Unit& unit) {
  return std::accumulate(unit.roles.stored.begin(), unit.roles.stored.end(), Bytes{0},
                         [&](Bytes sum, const TemplateStored& stored) {
                           return sum + unit.inputs.model.graph.value(stored.value).bytes();
                         });
}

}  // namespace

Result<std::unique_ptr<TemplatePlans>> TemplatePlans::of(const TemplateUnits& units,
                                                         const TemplateUnits::Level& level,
                                                         const Cluster& stage, StageTemplate wanted,
                                                         std::int64_t in_flight) {
  std::unique_ptr<TemplatePlans> plans(
      new TemplatePlans(units, level, std::move(wanted), in_flight));
  // All have the mesh of the one that stores most.
  const auto most =
      std::max_element(level.kinds.begin(), level.kinds.end(),
                       [](const TemplateUnits::Unit& a, const TemplateUnits::Unit& b) {
                         return stored_by(a) < stored_by(b);
                       });
  AUTOPAR_TRY(of_most, units.on_stage(*most, stage));
  AUTOPAR_TRY(meshed, as_template(of_most, most->roles, plans->wanted_.parallel));
  for (const TemplateUnits::Unit& unit : level.kinds) {
    AUTOPAR_TRY(request, units.on_stage(unit, stage));
    request.mesh = meshed.mesh;
    AUTOPAR_TRY(asked, as_template(request, unit.roles, plans->wanted_.parallel));
    asked.narrowing = narrowed_to(asked, unit.roles, plans->wanted_.parallel);
    plans->requests_.push_back(std::move(asked));
  }
  const SearchRequest& first = plans->requests_.front();
  AUTOPAR_TRY(model, make_cost_model(first.cost_model, stage, *first.mesh));
  plans->model_ = std::move(model);
  const std::string mesh = to_text(*first.mesh);
  const auto shelf = std::make_shared<UnitShelf>(tuning::units::kBytesAtHand);
  for (std::size_t k = 0; k < level.kinds.size(); ++k) {
    const TemplateUnits::Unit& unit = level.kinds[k];
    std::set<std::string> own;
    for (const TemplateStored& stored : unit.roles.stored) {
      own.insert(unit.inputs.model.graph.value(stored.value).name);
    }
    const auto problem = [its = plans.get(), k](
                             Graph& graph, const UnitWay&) -> Result<std::optional<PricedProblem>> {
      AUTOPAR_TRY(built, build_problem(its->requests_[k], *its->model_));
      std::size_t choices = 0;
      for (const ProblemNode& node : built.problem.nodes) choices += node.cost.size();
      logging::debug("unit {} by {}: {} nodes, {} choices", k, to_text(its->wanted_),
                     built.problem.nodes.size(), choices);
      graph = its->requests_[k].graph;
      PricedProblem priced{std::move(built), {}};
      priced.seconds = [its, k](const MeshProblem& of,
                                const std::vector<int>& chosen) -> Result<Seconds> {
        const SearchRequest& request = its->requests_[k];
        const Strategy strategy = strategy_of(request.graph, of, chosen);
        AUTOPAR_TRY(cost, evaluate(request, strategy, *its->model_));
        return cost.time();
      };
      return std::optional(std::move(priced));
    };
    plans->memories_.push_back(std::make_unique<UnitMemory>(
        unit.inputs.model.graph, std::move(own), units.units().shared,
        std::vector<UnitWay>{{plans->wanted_.recompute, mesh, 0}}, stage.device_count(), problem,
        [] { return interrupt_requested().load(); }, shelf));
  }
  return plans;
}

// 0, then such that the bytes of the usual unit cost as much as its time, then more.
Result<double> TemplatePlans::price_of_memory(std::size_t which) {
  if (which == 0) return 0.0;
  AUTOPAR_TRY(free, memories_[units_.units().usual]->least(in_flight_, 0));
  double price = free.bytes > 0 ? free.cost / free.bytes : 0;
  for (std::size_t i = 1; i < which; ++i) price *= tuning::templates::kDearer;
  return price;
}

Result<UnitPrice> TemplatePlans::priced(std::size_t kind, double price) {
  const SearchRequest& request = requests_[kind];
  AUTOPAR_TRY(strategy, memories_[kind]->strategy(0, in_flight_, price));
  if (!strategy) return infeasible_error("no plan has its pins");
  AUTOPAR_TRY(cost, evaluate(request, *strategy, *model_));
  Graph of_two = request.graph;
  of_two.in_flight = 2;
  AUTOPAR_TRY(twice, evaluate(of_two, request.rules, *strategy, *model_, request.updates));
  UnitPrice unit;
  unit.cost =
      chunk_cost(request, mesh(), cost, weight_part(request.graph, *strategy, request.updates));
  for (PassSeconds* pass : {&unit.cost.steady, &*unit.cost.first, &*unit.cost.last}) {
    const bool is_one = pass->input_gradients + pass->weight_gradients <= 0;
    if (is_one) pass->input_gradients = pass->backward;
  }
  unit.late = late_seconds(request, mesh(), cost);
  if (!cost.step) unit.late.rest = unit.cost.update;  // one after the other
  for (const TemplateStored& stored : level_.kinds[kind].roles.stored) {
    const Value& value = request.graph.value(stored.value);
    unit.stored +=
        local_bytes(strategy->values[stored.value.index()].spec, value.shape, value.dtype, mesh());
  }
  const Bytes once = cost.memory.total;
  unit.stored = std::min(once, unit.stored);
  unit.kept = std::max<Bytes>(0, twice.memory.total - once);
  unit.beside = std::max<Bytes>(0, once - unit.stored - unit.kept);
  const std::vector<ValueId> updated = updated_inputs(request.graph, request.updates);
  for (ValueId id : request.graph.outputs) {
    const Value& value = request.graph.value(id);
    if (updated[id.index()].valid() || !value.producer.valid()) continue;
    const Phase phase = request.graph.op(value.producer).phase;
    if (phase == Phase::kUpdate) continue;
    (phase == Phase::kForward ? unit.forward_bytes : unit.backward_bytes) += static_cast<double>(
        local_bytes(strategy->values[id.index()].output, value.shape, value.dtype, mesh()));
  }
  const auto of_links = [](const std::array<Seconds, kLinks>& links) {
    return format_seconds(std::accumulate(links.begin(), links.end(), Seconds{0}));
  };
  logging::debug(
      "unit {} by {}: forward {} (first {}), backward {} (last {}), gradients {}, weights {}, "
      "update "
      "{}; {} stored, {} kept, {} beside",
      kind, to_text(wanted_), format_seconds(unit.cost.steady.forward),
      format_seconds(unit.cost.first->forward), format_seconds(unit.cost.steady.backward),
      format_seconds(unit.cost.last->backward), of_links(unit.late.gradients),
      of_links(unit.late.weights), format_seconds(unit.cost.update),
      format_bytes(static_cast<double>(unit.stored)), format_bytes(static_cast<double>(unit.kept)),
      format_bytes(static_cast<double>(unit.beside)));
  AUTOPAR_TRY(parts, memories_[kind]->parts(wanted_.recompute, to_text(mesh()), in_flight_, price));
  unit.parts = std::move(parts);
  return unit;
}

Result<std::vector<std::shared_ptr<const UnitParts>>> TemplatePlans::like(const UnitPlan& plan) {
  const double price = memories_[units_.units().usual]->asked_of(plan).price;
  std::vector<std::shared_ptr<const UnitParts>> kinds;
  for (const auto& memory : memories_) {
    AUTOPAR_TRY(parts, memory->parts(wanted_.recompute, to_text(mesh()), in_flight_, price));
    kinds.push_back(std::move(parts));
  }
  return kinds;
}

Result<const std::vector<UnitPrice>*> TemplatePlans::at(std::size_t which) {
  const std::vector<UnitPrice>* none = nullptr;
  if (which > tuning::templates::kPrices) return none;
  for (std::size_t w = prices_.size(); w <= which; ++w) {
    AUTOPAR_TRY(price, price_of_memory(w));
    auto units = std::make_unique<std::vector<UnitPrice>>();
    for (std::size_t k = 0; k < requests_.size(); ++k) {
      AUTOPAR_TRY(unit, priced(k, price));
      units->push_back(std::move(unit));
    }
    prices_.push_back(std::move(units));
  }
  return static_cast<const std::vector<UnitPrice>*>(prices_[which].get());
}

}  // namespace autopar
