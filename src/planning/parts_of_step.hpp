// Searches of a part of a step, such as a unit or a chunk of a pipeline, and plans of it that are
// made of others.
#pragma once

#include <functional>
#include <map>

#include "planning/forms.hpp"

namespace autopar {

struct Template;

// What no plan of a model is faster than, with all memory and nothing repeated, and how long the
// streams of the best plan that was found are busy (with a profile). `weights`: those of the
// streams (see SearchRequest); none without a profile, or to try several. Errors: of the search.
struct LeastTime {
  Seconds bound = 0;
  std::optional<StreamTimes> busy;
  std::vector<std::pair<std::string, Seconds>> of_meshes = {};  // their own bounds
};
Result<LeastTime> least_time(Inputs& inputs, const PlanOptions& options,
                             const std::optional<StrategyFile>& pins, const CommonOptions& common,
                             const std::optional<StreamTimes>& weights);

// What each op pays for streams, by name. An op that has no prices has those of the one before it.
using OpPrices = std::map<std::string, StreamPrices>;
// Names of outputs, each with that of the input that it is of a part of the step that follows and
// is planned alike: it leaves as that comes.
using HandedOn = std::vector<std::pair<std::string, std::string>>;

// Prices for plans of a model on one mesh: busy times do not say what waits for what. The step of a
// plan is simulated, and what is on its path (prices_by_path) has the weight in the next search, in
// equal parts with the paths of the plans before it and with `weights`; the prices of the plan that
// takes least are taken, where that gains enough. None: that is the plan that `weights` find. They
// say nothing about bounds. Precondition: a profile. Errors: of building the problems.
struct PathSearch {
  int rounds = 0;      // at most; one that finds the plan of the round before is the last
  double effort = 0;   // of a search
  Seconds enough = 0;  // no plan is looked for that takes less
  double gain = 0;     // over the plan by `weights`, at least, as a part of its time
  Seconds far = 0;     // where the plan by `weights` takes so much, no other is looked for
};
struct PathPrices {
  OpPrices of_ops;
  Seconds first = 0;  // the plan by `weights`
  Seconds least = 0;  // that a plan took
};
Result<PathPrices> prices_by_paths(Inputs& inputs, const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common, const std::string& mesh,
                                   const StreamTimes& weights, const HandedOn& handed_on,
                                   const PathSearch& search);

// The search problem of a model on one mesh, with what is in use of memory, and what a step takes
// by its choices. `weights`: as above; `prices_of_ops`: null, all have these. Errors:
// of building it, kInput where the mesh cannot keep the pins.
struct PricedProblem {
  MeshProblem built;
  std::function<Result<Seconds>(const MeshProblem& built, const std::vector<int>& choices)> seconds;
};
Result<PricedProblem> problem_on(const std::shared_ptr<Inputs>& inputs, const PlanOptions& options,
                                 const std::optional<StrategyFile>& pins,
                                 const CommonOptions& common, const std::string& mesh,
                                 const std::optional<StreamTimes>& weights,
                                 const OpPrices* prices_of_ops = nullptr,
                                 const HandedOn& handed_on = {});

// What is chosen of ops and values, by name; null: that is left open.
struct ChosenSpecs {
  std::optional<Spec> stored, hub, output;
};
struct ChosenParts {
  std::function<const Assignment*(const std::string&)> op;
  std::function<const ChosenSpecs*(const std::string&)> value;
};
// A model as it is now, on one mesh. Errors: as of request_of().
struct PartsRequest {
  std::unique_ptr<Inputs> inputs;
  SearchRequest request;
};
Result<PartsRequest> parts_request(std::unique_ptr<Inputs> inputs, const PlanOptions& options,
                                   const std::optional<StrategyFile>& pins,
                                   const CommonOptions& common, const std::string& mesh);
// The best plan that takes what is chosen, and what it leaves open is searched with so much effort;
// or the least memory that was found. `wanted`: the template that it is of; null: none.
struct PartsPlan {
  std::optional<SearchOutcome> outcome;
  double least_bytes = 0;
};
Result<PartsPlan> plan_of_parts(const PartsRequest& parts,
                                const std::optional<StreamTimes>& weights,
                                const ChosenParts& chosen, double effort,
                                const Template* wanted = nullptr,
                                const ChosenParts* again = nullptr);

// The plan of a model that is another one but for names: of what was read of it.
Result<Planned> planned_like(std::unique_ptr<Inputs> inputs, const Planned& like,
                             const PlanOptions& options, const std::optional<StrategyFile>& pins,
                             const CommonOptions& common);

}  // namespace autopar
