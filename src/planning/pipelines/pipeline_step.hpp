// A training step of one number of micro-batches, of which pipelines are searched: what is known of
// its forms before they are planned, and their plans.
#pragma once

#include "planning/pipelines/pipeline_bound.hpp"
#include "planning/pipelines/pipeline_tuning.hpp"

namespace autopar {

// A form before it is planned.
struct FormCandidate {
  PipelineForm form;
  Cluster stage;
  PipelineSchedule schedule;
  std::vector<OpId> pinned;  // cuts
  bool is_pinned = false;
  Seconds bound = 0;          // no plan of this form is faster
  bool is_begun = false;      // that bound, by the usual units
  bool is_searched = false;   // and by all
  bool is_estimated = false;  // as far as it can be
  Seconds estimate = 0;       // by units, with balanced cuts; 0: not known
  Seconds guess = 0;          // by estimates of others, until there is one; 0: not far from these
  bool has_no_units = false;  // of one pass, of which no chunks are cut: looked at last
  double slower = 1;          // than its units say, by what plans of others tell
  double waits = 1;           // how much above its bound it is where chunks take alike long
  Seconds likely() const {
    return std::max(bound, is_estimated ? estimate * slower : std::max(guess, bound * waits));
  }
  bool is_ready() const { return is_searched && is_estimated; }  // to be planned
};

class PipelineStep {
 public:
  // All that is given by reference must live as long. Errors: of pricing the ops.
  static Result<std::unique_ptr<PipelineStep>> open(StagedStep asked,
                                                    const std::optional<StrategyFile>& pins,
                                                    const CommonOptions& common,
                                                    std::chrono::steady_clock::time_point begin,
                                                    PhaseClock& clock,
                                                    std::shared_ptr<UnitShelf> shelf);

  const StagedStep& asked() const { return asked_; }
  bool is_over() const { return search_.is_over(); }
  bool is_small() const { return step_.ops.size() <= kSmallStep; }
  // With a bound only where it has one stage. Errors: of the schedule, and of cuts that are given.
  Result<FormCandidate> candidate_of(const PipelineForm& form);
  // The bound of compute alone, of several stages. Of several forms at the same time.
  void bound_by_compute(FormCandidate& candidate) const;
  // A better bound by searches of units. Errors: of the searches.
  Status search_units(FormCandidate& candidate);
  // What it takes by plans of units; more than `far`: roughly. Errors: of the searches.
  Status estimate(FormCandidate& candidate, Seconds far);
  // Keeps no more of plans of chunks than what tells which others are like them.
  void forget_plans();
  // The best that is found; what takes longer than `cutoff` is of no use. Errors: of cutting the
  // step, and of the searches.
  Result<PipelinePlan> plan(const FormCandidate& candidate, Seconds cutoff);
  // Moves the cuts of a plan of the form, one by one, as long as that is faster and holds no more
  // than `room`. Each is planned, so this is for small steps. Errors: of the searches; the plan is
  // then the best so far.
  Status move_cuts(const FormCandidate& candidate, Bytes room, PipelinePlan& best);
  // What the compute of a step takes at least, on all devices and whatever the meshes.
  Seconds least_compute() const { return bounds_.of_single_compute(search_.whole.cluster); }
  // Plans that again on meshes that divide those of its chunks further, unless others are asked
  // for; what is faster is then the best. Errors: as of move_cuts().
  Status plan_on_finer_meshes(const FormCandidate& candidate, Bytes room, PipelinePlan& best);
  // Of the form of one stage; `finer`: on the meshes of a search without stages, unless others are
  // asked for (kInfeasible). Errors: of the search.
  Result<Planned> plan_single(Seconds cutoff, bool finer);

  // That plan, or one that is made of plans of units, whose layers may repeat differently, where
  // that is faster. Errors: of the searches.
  Result<Planned> better_of_units(Planned best);

 private:
  PipelineStep(StagedStep asked, Graph step, OpSeconds seconds,
               const std::optional<StrategyFile>& pins, const CommonOptions& common,
               std::chrono::steady_clock::time_point begin, PhaseClock& clock,
               std::shared_ptr<UnitShelf> shelf)
      : asked_(std::move(asked)),
        step_(std::move(step)),
        seconds_(std::move(seconds)),
        search_{*asked_.inputs, asked_.given, asked_.options, pins,
                common,         begin,        clock,          std::move(shelf)},
        bounds_(search_, step_, seconds_) {}

  Result<Seconds> estimated(const FormCandidate& candidate, UnitEnds ends, Seconds far);
  // That plan, or the one whose chunks read values as they were made, where that is faster.
  Result<PipelinePlan> read_better(PipelinePlan plan) const;
  Result<PipelinePlan> plan_by_cuts(const FormCandidate& candidate, Seconds cutoff);
  Result<PipelinePlan> plan_by_ends(const FormCandidate& candidate, Seconds cutoff);
  static bool promises(const FormCandidate& candidate, Seconds cutoff);
  Result<PipelinePlan> plan_without_memory(const FormCandidate& candidate, Seconds cutoff);
  Result<PipelinePlan> plan_by_units(const FormCandidate& candidate, Seconds cutoff, UnitEnds ends);
  // Cuts by what ops take and memory adds.
  struct Cut {
    std::vector<OpId> cuts;
    OpSeconds seconds;
    ChunkSeconds memory;
  };
  Result<PipelinePlan> plan_from(Cut cut, const FormCandidate& candidate, Seconds cutoff,
                                 UnitEnds ends);
  Result<PipelinePlan> planned(const FormCandidate& candidate, const std::vector<OpId>& cuts,
                               Seconds cutoff, UnitEnds ends,
                               const std::vector<std::string>& meshes = {});
  // The same of chunks that leave so much of a device's room.
  Result<PipelinePlan> planned_leaving(const FormCandidate& candidate,
                                       const std::vector<OpId>& cuts, Seconds cutoff, UnitEnds ends,
                                       Bytes left, const std::vector<std::string>& meshes);
  static Result<bool> may_gain(const FormCandidate& candidate, const std::vector<ChunkCost>& costs,
                               std::size_t planned, Seconds cutoff);
  Result<std::vector<OpId>> cut_by(const FormCandidate& candidate, const OpSeconds& seconds,
                                   const ChunkSeconds& memory) const;
  Result<std::vector<OpId>> balanced_by(const FormCandidate& candidate, const OpSeconds& seconds,
                                        const ChunkSeconds& memory) const;
  Result<std::vector<OpId>> balanced_by_memory(const FormCandidate& candidate) const;
  Result<std::vector<OpId>> moved_by(const FormCandidate& candidate, std::vector<OpId> cuts,
                                     const OpSeconds& seconds, const ChunkSeconds& memory) const;
  std::vector<OpId> cuts_of_plan(const PipelinePlan& plan) const;
  // Whether the plan with these cuts is better, which is then the best.
  Result<bool> takes_cuts(const FormCandidate& candidate, const std::vector<OpId>& cuts, Bytes room,
                          PipelinePlan& best, const std::vector<std::string>& meshes = {});
  double sent_per_s(const FormCandidate& candidate) const;
  std::vector<std::size_t> chunks_by(const std::vector<OpId>& cuts) const;
  std::vector<ChunkCost> sums_of(const OpSeconds& seconds, const std::vector<OpId>& cuts,
                                 const ChunkSeconds& memory) const;
  void scale(OpSeconds& seconds, const PipelinePlan& plan, const std::vector<OpId>& cuts,
             const ChunkSeconds& memory) const;
  Result<Seconds> time_by(const PipelinePlan& plan, const std::vector<OpId>& cuts,
                          const OpSeconds& seconds, const ChunkSeconds& memory) const;
  Result<std::optional<std::vector<OpId>>> given_cuts(const PipelineForm& form,
                                                      std::size_t chunks) const;
  Result<std::vector<OpId>> pinned_cuts(const PipelineForm& form) const;
  Result<std::vector<ChunkHint>> hints_of(const FormCandidate& candidate,
                                          const std::vector<OpId>& cuts, const InFlight& flying,
                                          UnitEnds ends);

  const StagedStep asked_;
  const Graph step_;  // with kernels
  const OpSeconds seconds_;
  const ChunkSearch search_;
  PipelineBounds bounds_;
  std::map<std::int64_t, ChunkPlans> plans_;  // by the number of stages
};

}  // namespace autopar
