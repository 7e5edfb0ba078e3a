// What no pipeline of a form is faster than, over all cuts at the places that balanced_cuts() looks
// at and all plans of what lies between them.
//
// The step is cut into units, at like places where no kernel is cut (like_cuts). Each unit, with
// the layouts of what it reads and hands on left open and all memory, is a search of its own, whose
// bound is one on the part that the unit has in any chunk: a chunk takes at least the sum of the
// units that it holds whole, and of the others at least their compute, evenly split. With w for a
// stage's forward and backward pass, M micro-batches and n forward passes before its first backward
// pass:
//
//   before a stage begins the first micro-batch passes the chunks before it; after its last
//   backward pass the gradient goes back through these;
//   its first backward pass ends when the first micro-batch has been through all chunks and back;
//   then (M - n) forward and (M - 1) backward passes are left, and the gradient's way back; or
//   what comes until its last forward pass, and then that micro-batch's way on and all the way
//   back.
//
// Where backward passes are in two parts, the stage before waits for the first of them alone.
//
// And so for all paths through the actions of a schedule (path_bound.hpp).
//
// The cuts with the least of the longest stage are found by dynamic programming, O(stages x
// places^2), also of stages with two chunks that are laid there and back (paired_cuts.hpp); where
// stages have several chunks otherwise, those with the least average over the stages.
//
// A stage also takes at least what a price on memory says of its usual units (unit_memory.hpp), for
// what it stores and keeps in flight. Messages are in no bound.
//
// Bounds of stages of unlike size may be asked for at the same time.
//
//   PipelineBounds bounds(search, step, seconds);
//   bounds.of_compute(schedule, stage, nullptr)   // at once
//   *bounds.of(schedule, stage, nullptr)          // no less, after searches of the units
#pragma once

#include <map>
#include <mutex>

#include "planning/pipelines/chunk_bound.hpp"
#include "planning/pipelines/chunk_cost.hpp"
#include "planning/pipelines/chunk_plans.hpp"
#include "planning/pipelines/cut_places.hpp"
#include "planning/pipelines/step_units.hpp"
#include "planning/pipelines/unit_paths.hpp"

namespace autopar {

// What is searched for a bound: the usual units alone, while all others count with their compute;
// or all, and what memory costs.
enum class BoundOf : std::uint8_t { kUsualUnits, kAllUnits };

class PipelineBounds {
 public:
  // `step`: with kernels; `seconds`: with inputs. Both must live as long.
  PipelineBounds(const ChunkSearch& search, const Graph& step, const OpSeconds& seconds);

  // Cuts that the bound is about, too: those that are given. Before any bound is asked for.
  void add_places(const std::vector<OpId>& cuts);
  // Where chunks of that schedule may begin; with these cuts, where some are given.
  const CutPlaces& places_of(const PipelineSchedule& schedule,
                             const std::vector<OpId>* cuts = nullptr) const;

  // What the bounds of the units say of ops on one device, if all of a stage's devices had their
  // part of it: compute, and the collectives that it waits for. Errors: of the searches.
  Result<OpSeconds> seconds_on(const Cluster& stage);
  // The same, of which no plan takes less: units of other kinds do not wait as the usual ones do.
  Result<OpSeconds> least_seconds_on(const Cluster& stage);

  // What plans of units that fit take more than their bounds in a pass of a chunk, on one device as
  // above; nothing: units say nothing. Errors: of the searches.
  // `of_cuts`: chunks that repeat from unit to unit keep less than their units by themselves, so
  // where these do not fit, memory says nothing about cuts.
  Result<ChunkSeconds> memory_seconds(const PipelineSchedule& schedule, const Cluster& stage,
                                      bool of_cuts, UnitEnds ends);

  // Of all pipelines of that schedule on stages of these devices; of those with these cuts, where
  // some are given. Errors: of the searches.
  Result<Seconds> of(const PipelineSchedule& schedule, const Cluster& stage,
                     const std::vector<OpId>* cuts, BoundOf of = BoundOf::kAllUnits);
  // The same of compute alone, without a search.
  Seconds of_compute(const PipelineSchedule& schedule, const Cluster& stage,
                     const std::vector<OpId>* cuts) const;
  // What it takes by compute alone where all chunks take alike long; 0: the schedule has too many
  // actions for that to be worth while.
  Seconds of_even_chunks(const PipelineSchedule& schedule, const Cluster& stage) const;
  // Of plans without stages.
  Result<Seconds> of_single(const Cluster& cluster, BoundOf of = BoundOf::kAllUnits);
  // How a chunk is planned first that begins behind so many units and has so many, with so much in
  // flight and that room.
  Result<ChunkHint> hint(const Cluster& stage, double first, double units, std::int64_t in_flight,
                         double room, UnitEnds ends);
  // The room of a device for each chunk, with so many units each, as the plans of these that are
  // known share it best; else even parts. Errors: as of of().
  Result<std::vector<double>> rooms(const PipelineSchedule& schedule, const Cluster& stage,
                                    const std::vector<double>& units, UnitEnds ends);
  // Cuts at like places, those of most of the given ones, by which each stage has as many layers:
  // even_cuts(). None: units say nothing.
  std::vector<std::vector<OpId>> cuts_alike(const PipelineSchedule& schedule,
                                            const std::vector<OpId>& cuts) const;
  // Whether plans of units differ by their ends.
  bool hands_on() const { return !units_.handed_on.empty(); }
  // Whether plans of units by both their ends may be asked for at the same time there.
  bool knows_paths(const Cluster& stage) const;
  // Units until the op, in parts where one is cut; 0: they say nothing.
  double units_until(OpId op) const;
  Seconds of_single_compute(const Cluster& cluster) const;
  // What a plan without stages takes by the plans of its units; 0: not known. Errors: as of of().
  Result<Seconds> estimate_of_single(const Cluster& cluster);

 private:
  // Weights of streams, and plans of units by them.
  struct Weighting {
    std::optional<StreamTimes> weights;
    std::vector<std::shared_ptr<UnitMemory>> memories;  // per kind
  };
  // The least of what lies between two places.
  struct Least {
    bool is_searched = false;
    ChunkSums sums;
    std::vector<double> usual;  // units of the usual kind
    Seconds usual_step = 0;     // what one of these adds to `sums.step`
    Seconds usual_pass = 0;     // the same of `pass`
    Seconds taken_off = 0;      // of its bound: what each unit counts and a chunk has once
    // Of the usual kind, by the weights of these sums, whatever a chunk repeats. Null: meshes are
    // given.
    std::shared_ptr<UnitBound> bound;
    Weighting alike, open;             // as units are planned, by their ends
    std::shared_ptr<UnitPaths> paths;  // of the usual kind, for both; null: none
    bool has_plans() const { return !alike.memories.empty(); }
    const Weighting& plans(UnitEnds ends) const { return ends == UnitEnds::kAlike ? alike : open; }
  };
  // What memory adds to a chunk of n usual units, at least. Where stages have one chunk each:
  // `of_units[n]`, the most that any price says. Else: n x per_unit - off, which may be less than
  // nothing; all chunks at one price.
  struct ChunkMemory {
    std::vector<Seconds> of_units;
    Seconds per_unit = 0, off = 0;
  };
  Result<const Least*> least_on(const Cluster& stage, BoundOf of = BoundOf::kAllUnits);
  OpSeconds seconds_of(const Least* units, const Cluster& stage, double usual) const;
  Result<Least> searched(const Cluster& stage, BoundOf of);
  // What no plan of a unit of a kind takes less than: in a step, by the weights, and in the passes
  // of it, without its update, by compute alone. 0: not looked for.
  struct LeastOfKind {
    LeastTime step;
    Seconds passes = 0;
  };
  Result<std::vector<LeastOfKind>> least_of_kinds(const ChunkPlans& plans,
                                                  const WeighedUnit& weighed, BoundOf of) const;
  Result<const WeighedUnit*> weighed_on(const Cluster& stage, const ChunkPlans& plans);
  // Of a pass of a unit of that kind, on one device: what it does alone, and what a chunk does once
  // for all of its units; of these also what is done in an update, such as the numbers that all
  // parameters are updated by.
  struct Compute {
    Seconds own = 0, shared = 0, shared_update = 0;
  };
  Compute compute_of(std::size_t kind) const;
  // How often a unit of that kind at most counts what an op takes that a chunk has once, or in
  // another way.
  double most_counted_beside(const Op& op, const Graph& graph, std::size_t kind) const;
  static std::vector<std::string> near_meshes(const LeastTime& least);
  std::shared_ptr<UnitPaths> paths_of(std::shared_ptr<const ChunkPlans> plans,
                                      const StreamTimes& weights, std::size_t kind,
                                      const LeastTime& least, const HandedOn& handed_on) const;
  // `paths`: null without weights.
  Result<std::shared_ptr<UnitMemory>> memory_of(std::shared_ptr<const ChunkPlans> plans,
                                                const std::optional<StreamTimes>& weights,
                                                std::size_t kind, const LeastTime& least,
                                                const HandedOn& handed_on,
                                                const std::shared_ptr<UnitPaths>& paths) const;
  Result<std::shared_ptr<UnitBound>> bound_on_memory(std::shared_ptr<const ChunkPlans> plans,
                                                     const std::optional<StreamTimes>& weights,
                                                     const LeastTime& least) const;
  std::shared_ptr<UnitMemory> memory_of_ways(UnitMemory::Problems problems, std::int64_t devices,
                                             std::size_t kind, std::vector<UnitWay> ways) const;
  // Whether some of so many units, behind the first ones, are not of the usual kind.
  bool has_other_kinds(double first, double units) const;
  // The plans of a chunk's units, the first of which is the `first` of the step.
  Result<HintedParts> parts_of(const Weighting& least, double first, const UnitMix& mix) const;
  std::optional<OpId> first_own_op(OpId from) const;
  // The plans of the usual units that are known, of those on a mesh where one is given; as many are
  // found as that takes.
  Result<std::vector<UnitPlan>> plans_of(const Weighting& weighting, const MixAsked& asked,
                                         const std::string& mesh) const;
  // Per chunk, as `unit` has the usual one; none: memory does not bind.
  Result<std::vector<ChunkMemory>> memory_of_chunks(const Least& units, PricedUnit& unit,
                                                    const PipelineSchedule& schedule) const;
  // Asks for the prices that chunks of one stage each need; those with `alike_part` of what another
  // one has in flight take its prices.
  static Status find_prices(PricedUnit& unit, double usual, const std::vector<std::int64_t>& flying,
                            double room, double alike_part);
  // The price for so many usual units; nothing: memory adds nothing worthwhile.
  static Result<std::optional<double>> price_for(PricedUnit& unit, std::int64_t in_flight,
                                                 double count, double room);
  // What memory adds to each chunk of n usual units, by plans of these, over `bound` for each:
  // where it has its stage for itself, and where others share the room, so that more units cost the
  // price of what they hold.
  std::vector<std::vector<Seconds>> more_alone(const std::vector<UnitPlan>& plans,
                                               const std::vector<std::int64_t>& flying,
                                               Seconds bound, double on_average,
                                               bool of_cuts) const;
  std::vector<std::vector<Seconds>> more_shared(const std::vector<UnitPlan>& plans,
                                                const PipelineSchedule& schedule, Seconds bound,
                                                double on_average, bool of_cuts) const;
  static std::vector<Seconds> most_of_units(const Least& units, const PricedUnit& unit,
                                            std::int64_t in_flight, double room);
  Seconds bound_of(const Least* units, const PipelineSchedule& schedule, const Cluster& stage,
                   const std::vector<OpId>* cuts, const std::vector<ChunkMemory>& memory) const;
  CutPlaces places_for(std::size_t chunks) const;
  // The same by paths through the schedule.
  Result<Seconds> bound_of_paths(const Least& units, const PipelineSchedule& schedule,
                                 const Cluster& stage, const std::vector<OpId>* cuts) const;

  const ChunkSearch& search_;
  const Graph& step_;
  const OpSeconds& seconds_;
  std::vector<OpId> unit_cuts_;
  const std::shared_ptr<const KernelsByOp> kernels_of_step_;
  const std::vector<OpId> decides_;  // deciding_ops()
  std::vector<OpId> always_;         // the ends of units, and cuts that are given
  CutPlaces narrow_;                 // those of one chunk
  mutable std::mutex places_mutex_;
  mutable std::map<std::size_t, CutPlaces> places_;  // by chunks, of those that were asked for
  std::mutex mutex_;         // for what is found when it is asked for: all from here on
  bool is_divided_ = false;  // into units
  StepUnits units_;
  Bytes room_ = 0;  // of a device
  // By devices of a stage; at the ends of units.
  std::map<std::pair<std::int64_t, BoundOf>, Least> least_;
  std::map<std::int64_t, std::optional<WeighedUnit>> weighed_;  // the usual one
};

}  // namespace autopar
