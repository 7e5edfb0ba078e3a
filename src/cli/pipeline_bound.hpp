// What no pipeline of a form is faster than, over all cuts at the places that are alike (between
// layers) and all plans of what lies between them.
//
// The step is cut at all those places. Each unit, with the layouts of what it reads and hands on
// left open and all memory, is a search of its own, whose bound is one on the part that the unit
// has in any chunk: a chunk takes at least the sum of its units. Chunks before a stage pass the
// first micro-batch on before it can begin, and take the last gradient back when it has ended: for
// that counts compute alone, evenly split. The cuts with the least of the longest stage are found
// by dynamic programming, O(stages x units^2). What memory costs is in no bound.
#pragma once

#include <map>

#include "cli/chunk_cost.hpp"
#include "cli/chunk_plans.hpp"

namespace autopar::cli {

class PipelineBounds {
 public:
  // `step`: with kernels; it must live as long.
  PipelineBounds(const ChunkSearch& search, const Graph& step, const OpSeconds& seconds);

  // Whether all cuts are at places that are alike; else the bound does not hold for them.
  bool covers(const std::vector<OpId>& cuts) const;

  // Of all pipelines of that schedule on stages of these devices; of those with these cuts, where
  // some are given. 0: not known, since the step has no places that are alike, or too many kinds of
  // units. Errors: of the searches.
  Result<Seconds> of(const PipelineSchedule& schedule, const Cluster& stage,
                     const std::vector<OpId>* cuts);
  // The same of compute alone, without a search. `anywhere`: whether the cuts may be at any places.
  Seconds of_compute(const PipelineSchedule& schedule, const Cluster& stage,
                     const std::vector<OpId>* cuts, bool anywhere) const;

 private:
  // Per unit, over all micro-batches.
  struct Least {
    std::vector<Seconds> step;    // with the update
    std::vector<Seconds> passes;  // without
  };
  Seconds bound_of(const Least& least, const PipelineSchedule& schedule, const Cluster& stage,
                   const std::vector<OpId>* cuts) const;
  Seconds of_cuts(const Least& least, const PipelineSchedule& schedule, const Cluster& stage,
                  const std::vector<std::size_t>& ends) const;
  Seconds of_best_cuts(const Least& least, const PipelineSchedule& schedule,
                       const Cluster& stage) const;
  Seconds on_average(const Least& least, const PipelineSchedule& schedule,
                     const Cluster& stage) const;
  Result<const Least*> least_on(const Cluster& stage);
  Result<Least> searched(const Cluster& stage) const;
  std::size_t unit_of(OpId op) const;

  const ChunkSearch& search_;
  const Graph& step_;
  std::vector<OpId> places_;                 // before each unit but the first
  std::vector<Seconds> forward_, backward_;  // per unit: compute on one device, of a micro-batch
  std::map<std::int64_t, Least> least_;      // by devices of a stage
};

}  // namespace autopar::cli
