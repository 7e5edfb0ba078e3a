// What a step takes as training programs would run it: the template that is nearest to a plan,
// priced as plans are.
#pragma once

#include "autopar/frameworks.hpp"
#include "cli/command.hpp"

namespace autopar::cli {

struct TemplatePrice {
  std::string name;  // "dp=8 tp=8 sp zero=1"
  Seconds seconds = 0;
  Bytes memory = 0;  // per device
  bool fits = true;
};

struct PricedFrom {
  std::string model;    // empty: train.onnx beside the plan, where that is the plan's own step
  std::string cluster;  // empty: the ready-made one that the plan is of
  std::string profile;
};

// Errors: where the model or the cluster is not there or another one than the plan's; of the
// searcher uniform, which has no templates with context or expert parallelism.
Result<TemplatePrice> price_template(const SaidPlan& plan, const ParallelForm& form,
                                     const PricedFrom& from, const CommonOptions& common);

}  // namespace autopar::cli
