// The units that pipelines of templates are priced by: the step is cut at all places that are alike
// (between layers), and of each kind of unit a plan with the pins of a template is made on the
// devices of a stage.
//
//   AUTOPAR_TRY(units, TemplateUnits::of(step, options, common));
//   AUTOPAR_TRY(level, units->level(Recompute::kNone));
//   AUTOPAR_TRY(plans, TemplatePlans::of(*units, *level, stage, wanted, in_flight));
//   plans->at(0)    // the price of each kind; at(1): with less in memory; null: there is no other
#pragma once

#include <array>
#include <map>
#include <memory>

#include "autopar/stages.hpp"
#include "planning/parts_of_step.hpp"
#include "planning/pipelines/chunk_cost.hpp"
#include "planning/pipelines/unit_memory.hpp"
#include "search/uniform/uniform.hpp"

namespace autopar {

// A template of one stage, and what it repeats.
struct StageTemplate {
  Template parallel;
  Recompute recompute = Recompute::kNone;
};
std::string to_text(const StageTemplate& wanted);  // "dp=8 tp=8 sp zero=1 recompute=full"

struct UnitPrice {
  ChunkCost cost;
  LateSeconds late;
  double forward_bytes = 0, backward_bytes = 0;  // that a rank hands to other units
  Bytes stored = 0;                              // per device: weights, accumulators, states
  Bytes kept = 0;                                // by a micro-batch in flight
  Bytes beside = 0;                              // the most that there is beside these
  std::shared_ptr<const UnitParts> parts;
};

class TemplateUnits {
 public:
  // A kind of unit with what a level of recomputation repeats of it.
  struct Unit {
    Inputs inputs;
    std::optional<SearchRequest> request;  // of `inputs`
    TemplateRoles roles;
    PassSeconds compute;    // of a micro-batch on one device
    double kept_bytes = 0;  // by a micro-batch, of all devices together
    double stored_bytes(int zero, double parts_of_zero) const;
    double read = 0, states = 0, accumulators = 0;  // bytes
  };
  struct Level {
    std::vector<Unit> kinds;
    bool repeats = false;  // anything
  };

  // `step`: with kernels. It and the options must live as long. Errors (kInfeasible): it has no
  // places that are alike, or more kinds of units than are priced.
  static Result<std::unique_ptr<TemplateUnits>> of(const Inputs& step, const PlanOptions& options,
                                                   const CommonOptions& common);

  const StepUnits& units() const { return units_; }
  std::size_t count() const { return units_.kind_of.size(); }
  Result<const Level*> level(Recompute recompute);
  const PlanOptions& options() const { return options_; }

  // The request for a unit on the devices of a stage, which must live as long.
  Result<SearchRequest> on_stage(const Unit& unit, const Cluster& stage) const;

 private:
  TemplateUnits(const PlanOptions& options, const CommonOptions& common)
      : options_(options), common_(common) {}
  Result<Unit> prepared(const Graph& graph, Recompute recompute, bool& repeats) const;

  const PlanOptions& options_;
  const CommonOptions& common_;
  StepUnits units_;
  std::optional<Inputs> bare_;  // what is read of the step but for its graph and rules
  std::map<Recompute, Level> levels_;
};

// The plans of one template on the devices of a stage: without a price of memory, and at prices of
// it.
class TemplatePlans {
 public:
  // All that is given by reference must live as long. Errors (kInput): the cluster's tiers have no
  // such mesh.
  static Result<std::unique_ptr<TemplatePlans>> of(const TemplateUnits& units,
                                                   const TemplateUnits::Level& level,
                                                   const Cluster& stage, StageTemplate wanted,
                                                   std::int64_t in_flight);

  // Per kind; null: there is no other plan, with less in memory. Errors: the pins cannot be kept.
  Result<const std::vector<UnitPrice>*> at(std::size_t which);
  // All of the usual kind that were asked for.
  Result<std::vector<UnitPlan>> of_usual() { return memories_[units_.units().usual]->plans(); }
  // Per kind what is chosen at the price of one of these.
  Result<std::vector<std::shared_ptr<const UnitParts>>> like(const UnitPlan& plan);
  // Of one kind, without a price of memory.
  Result<UnitPrice> first_of(std::size_t kind) { return priced(kind, 0); }
  const Mesh& mesh() const { return *requests_.front().mesh; }
  const std::optional<StreamTimes>& weights() const { return requests_.front().weights; }

 private:
  TemplatePlans(const TemplateUnits& units, const TemplateUnits::Level& level, StageTemplate wanted,
                std::int64_t in_flight)
      : units_(units), level_(level), wanted_(std::move(wanted)), in_flight_(in_flight) {}
  Result<double> price_of_memory(std::size_t which);
  Result<UnitPrice> priced(std::size_t kind, double price);

  const TemplateUnits& units_;
  const TemplateUnits::Level& level_;
  const StageTemplate wanted_;
  const std::int64_t in_flight_;
  std::unique_ptr<CostModel> model_;
  std::vector<SearchRequest> requests_;                // per kind
  std::vector<std::unique_ptr<UnitMemory>> memories_;  // per kind
  std::vector<std::unique_ptr<std::vector<UnitPrice>>> prices_;
};

}  // namespace autopar
