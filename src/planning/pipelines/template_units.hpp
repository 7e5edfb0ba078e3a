// The units that pipelines of templates are priced by.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "autopar/stages.hpp"
#include "planning/forms.hpp"
#include "planning/pipelines/chunk_cost.hpp"

namespace autopar {

// A template of one stage, and what it repeats.
struct StageTemplate {
  std::int64_t data = 1, tensor = 1;
  int zero = 0;
  Recompute recompute = Recompute::kNone;
  auto operator<=>(const StageTemplate&) const = default;
};
std::string to_text(const StageTemplate& wanted);  // "dp=8 tp=8 sp zero=1"

struct UnitPrice {
  ChunkCost cost;    // with what it sends to the next unit
  Bytes stored = 0;  // per device: weights, accumulators, states
  Bytes kept = 0;    // by a micro-batch in flight
  Bytes beside = 0;  // the most that there is beside these
};
enum class UnitPlace : std::uint8_t { kFirst, kBetween, kLast };
using UnitPrices = std::array<UnitPrice, 3>;  // by UnitPlace

// The first unit of a step, one that is like most, and the last.
class TemplateUnits {
 public:
  // Errors (kInfeasible): the step has not as many places that are alike.
  static Result<TemplateUnits> of(const Inputs& step, const OpSeconds& seconds,
                                  const PlanOptions& options);

  std::size_t count() const { return count_; }
  // Seconds on one device, of one micro-batch: forward and backward pass of every unit.
  const std::vector<Seconds>& compute() const { return compute_; }
  // On the devices of a stage. `step`: without its graph and rules. Errors: of the search.
  Result<UnitPrices> priced(const Inputs& step, const Cluster& stage, const StageTemplate& wanted,
                            const PlanOptions& options, const CommonOptions& common) const;

 private:
  Result<UnitPrice> price_of(std::size_t place, const Inputs& step, const Cluster& stage,
                             const StageTemplate& wanted, const PlanOptions& options,
                             const CommonOptions& common) const;

  std::array<Graph, 3> graphs_;
  std::vector<std::string> handed_;  // values that the first one hands on in the forward pass
  std::vector<Seconds> compute_;
  std::size_t count_ = 0;
};

}  // namespace autopar
