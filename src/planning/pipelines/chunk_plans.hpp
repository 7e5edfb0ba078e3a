// The plans of a pipeline's chunks: each is searched on the devices of its stage, with the memory
// that the other chunks of the stage leave.
#pragma once

#include <map>

#include "planning/pipelines/chunk_of_parts.hpp"
#include "planning/pipelines/pipeline_plan.hpp"
#include "planning/pipelines/unit_bound.hpp"

namespace autopar {

// What was read, on the devices of a stage, without the step itself.
Inputs without_graph(const Inputs& whole, Cluster stage);

// What plans of chunks are made of.
struct ChunkSearch {
  const Inputs& whole;
  const PlanOptions& given;
  const PlanOptions& options;
  const std::optional<StrategyFile>& pins;
  const CommonOptions& common;
  std::chrono::steady_clock::time_point begin;
  PhaseClock& clock;
  std::shared_ptr<UnitShelf> shelf;  // of all that is searched together
  const Inputs bare = without_graph(whole, whole.cluster);
  // The time limit has come, or an interrupt.
  bool is_over() const;
};

// The first and the last forward op of a chunk, by name.
std::vector<std::string> first_and_last(const Graph& graph);

struct WeighedUnit {
  std::optional<StreamTimes> weights;
  LeastTime least;
};

// For stages of one size. Chunks that are the same but for names are searched once, also in several
// cuts.
class ChunkPlans {
 public:
  // `kernels_of_step`: as Inputs has them, for bounds.
  ChunkPlans(const ChunkSearch& search, Cluster stage,
             std::shared_ptr<const KernelsByOp> kernels_of_step = {});

  // Of one way to cut the step, in the order of the chunks; graphs with what is in flight of each.
  // Chunks of one stage have one mesh. `hints`: per chunk. `cutoff`: a chunk whose own step takes
  // longer is of no use. `may_join`: whether backward passes in two parts may be joined where what
  // these hand on does not fit, which is done in the schedule then. `may_gain`: whether any plans
  // of the chunks behind these are of use; null: they are. Errors: of the searches, with the chunk.
  using MayGain = std::function<Result<bool>(const std::vector<ChunkPlan>&)>;
  Result<std::vector<ChunkPlan>> of(std::vector<Chunk> chunks, PipelineSchedule& schedule,
                                    const std::vector<ChunkHint>& hints, Seconds cutoff,
                                    bool may_join, const MayGain& may_gain = {});

  // Of chunks that are known no more is kept than their layouts.
  void forget_plans();

  // The same plan of a chunk, of which these values are stored otherwise: as they come from other
  // chunks. Nothing: it does not fit. Errors: pins that want another layout there (kInput).
  Result<std::optional<ChunkPlan>> with_sources(const ChunkPlan& chunk,
                                                const std::map<ValueId, Spec>& sources) const;

  // The plan of a chunk that was made without pins of ops and values, with those that it has: ops
  // that are not near them keep their assignments. Nothing: it has none. Errors: the mesh cannot
  // keep them (kInput); what fits with them was not found (kInfeasible).
  Result<std::optional<ChunkPlan>> with_pins(const ChunkPlan& chunk) const;

  // Of a step without stages, made of plans of its units; nothing: there are none that fit. Errors:
  // of the searches.
  Result<std::optional<Planned>> of_units(std::shared_ptr<const Inputs> step,
                                          const ChunkHint& hint);

  // From now on plans leave so much of the room of a device. Precondition: none is planned yet.
  void leave(Bytes bytes) { left_ = bytes; }

  // From now on plans are looked for on these meshes, if there are any, all ops at once.
  // Precondition: none is planned yet.
  void plan_on(std::vector<std::string> meshes) { only_on_ = std::move(meshes); }

  // Whether nothing is said about meshes, and the ones that are tried then: of data and of tensor
  // parallelism.
  bool may_choose_meshes() const;
  // Those that are tried for a graph, also where pins may need others; as the options have it where
  // something is said.
  void set_meshes(PlanOptions& options) const;
  std::vector<std::string> meshes() const;

  // Weights of streams that suit the graph of a chunk, and its least time by them; none without a
  // profile. Errors: of the searches.
  Result<WeighedUnit> weights_of(const Graph& graph) const;
  // What no plan of the graph of a chunk is faster than, on any of the meshes that are tried, with
  // all memory. Errors: of the searches.
  Result<LeastTime> least_time(const Graph& graph, const std::optional<StreamTimes>& weights) const;
  // The search problem of the graph of a chunk, planned so; the graph becomes that of the problem.
  // Nothing: no op would be repeated, or the mesh cannot keep the pins.
  Result<std::optional<PricedProblem>> problem_of(Graph& graph, const UnitWay& way,
                                                  const std::optional<StreamTimes>& weights,
                                                  const OpPrices* prices_of_ops = nullptr,
                                                  const HandedOn& handed_on = {}) const;
  // Prices for plans of the graph of a unit, by what waits for what; nothing of it takes less than
  // `bound`, and a plan on another mesh takes `known`. Errors: as of problem_of().
  Result<PathPrices> prices_by_paths(const Graph& unit, const std::string& mesh,
                                     const StreamTimes& weights, const HandedOn& handed_on,
                                     Seconds bound, Seconds known) const;
  // What the graph of a unit may keep, and repeat up to that level in place of that, where its
  // products are priced by `weights`; not of values that are `shared` with other units.
  Result<UnitKeeping> keeping_of(const Graph& unit, Recompute most,
                                 const std::optional<StreamTimes>& weights,
                                 const std::set<std::string>& shared) const;
  // What --recompute or the pins say; nothing: any.
  Result<std::optional<Recompute>> asked_level() const;
  std::int64_t device_count() const { return stage_.cluster.device_count(); }
  // Bytes that plans of one device may take.
  Result<Bytes> room() const;

 private:
  struct Known {
    int cut = 0;            // the last one that had it,
    std::size_t chunk = 0;  // and where
    AskedChunk asked;
    std::shared_ptr<const Planned> planned;
    std::shared_ptr<KnownChunkBytes> bytes;  // as ChunkPlan has it
  };
  // Of a cut before.
  static void keep_layouts_alone(Known& known);
  // Whether the plan of one of them is that of the other but for names, on that mesh.
  bool are_alike(const AskedChunk& known, const std::string& mesh, const AskedChunk& asked) const;
  Status plan(AskedChunk asked, ChunkPlan& found);
  Result<std::shared_ptr<const Planned>> searched(AskedChunk& asked);
  bool has_given_meshes() const;
  // Whether it is made of plans of its units first.
  bool is_of_parts(const AskedChunk& asked) const;
  // And none like it is planned.
  bool is_new_of_parts(const AskedChunk& asked) const;
  // Sets AskedChunk::of_parts, of some chunks at the same time, none like another.
  Status plan_of_parts(const std::vector<AskedChunk*>& asked);
  Result<PartsPlan> of_these(const AskedChunk& asked, const HintedParts& parts,
                             PartsRequests& requests) const;
  Result<std::shared_ptr<const Planned>> searched_on(const AskedChunk& asked,
                                                     std::vector<std::string> meshes,
                                                     Seconds cutoff) const;
  Result<CommonOptions> options_of(const std::string& mesh, Bytes beside) const;
  Result<Inputs> inputs_of(Graph graph) const;
  std::optional<StrategyFile> pins_of(const Graph& graph) const;
  // The chunks of one stage, of all that there are, which share its room.
  struct StageChunks {
    const std::vector<std::size_t>& chunks;
    const PipelineSchedule& schedule;
    std::int64_t stage;
    const std::vector<std::shared_ptr<const Inputs>>& inputs;
    const std::vector<ChunkHint>& hints;
    std::vector<ChunkPlan>& plans;
    const StepLine& line() const { return schedule.lines[static_cast<std::size_t>(stage)]; }
  };
  // What they hold, and together.
  struct Held {
    std::vector<ChunkBytes> chunks;
    Bytes together = 0;
  };
  Result<Held> held_by(const StageChunks& of) const;
  Status share_memory(const StageChunks& of, Bytes room);
  Status leave_room(const StageChunks& of);
  Status join_what_does_not_fit(const StageChunks& of, PipelineSchedule& schedule);
  // What a plan takes that may hold so much with what is held ahead.
  Seconds seconds_within(const Planned& planned, Bytes limit) const;
  Result<Seconds> seconds_in_stage(const StageChunks& of, Bytes more) const;
  Status plan_within(const StageChunks& of, const std::vector<double>& shares);
  Status use_what_is_left(const StageChunks& of);
  static std::string mesh_of(const Planned& planned);
  // As of().
  Result<std::vector<ChunkPlan>> planned_once(std::vector<Chunk> chunks, PipelineSchedule& schedule,
                                              const std::vector<ChunkHint>& hints, bool may_join,
                                              const MayGain& may_gain);
  // Whether the last planning ended with pins that a chunk cannot keep on the mesh that another one
  // of its stage has, and which no planning before did.
  bool leaves_out_mesh();

  const ChunkSearch& search_;
  PlanOptions options_;
  Inputs stage_;            // what is read of a chunk but for its graph and rules
  bool is_pinned_ = false;  // an op or a value
  Bytes left_ = 0;          // of the room
  std::vector<std::string> only_on_;
  Seconds cutoff_ = kInfinity;
  int cut_ = 0;  // how many there were
  std::vector<Known> known_;
  int searched_ = 0;                      // chunks, on all meshes
  std::vector<std::string> best_meshes_;  // of the last of them
  UnitsInChunks units_;
  Seconds longest_ = 0;  // of the chunks that are planned of this cut
  // By stage the meshes on which its chunks cannot all keep their pins; of this cut.
  std::map<std::int64_t, std::set<std::string>> not_on_;
  std::optional<std::pair<std::int64_t, std::string>> refused_;
};

}  // namespace autopar
