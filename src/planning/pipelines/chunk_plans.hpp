// The plans of a pipeline's chunks: each is searched on the devices of its stage, with the memory
// that the other chunks of the stage leave.
#pragma once

#include <map>

#include "planning/pipelines/pipeline_plan.hpp"
#include "planning/pipelines/unit_bound.hpp"
#include "search/uniform/uniform.hpp"

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
  const Inputs bare = without_graph(whole, whole.cluster);
  // The time limit has come, or an interrupt.
  bool is_over() const;
};

// The first and the last forward op of a chunk, by name.
std::vector<std::string> first_and_last(const Graph& graph);

// How plans of units hand on what they make: as the next unit, which is planned alike, gets it; or
// in any layout, so that what lies between two units is not in their plans.
enum class UnitEnds : std::uint8_t { kAlike, kOpen };

// How a chunk is planned first, by what its units say. Without meshes: nothing is said.
struct HintedParts {
  Recompute recompute = Recompute::kNone;
  std::string mesh;
  std::optional<StreamTimes> weights;  // that they are priced by
  UnitMix mix;
  ChosenParts chosen;
  // The same of its usual units alone; nothing: there are no others.
  std::optional<ChosenParts> usual = {};
  std::optional<Template> wanted = {};  // that it is of
};
struct ChunkHint {
  double room = 0;                   // bytes of that of its stage, where units are known
  std::string mesh;                  // where something is likely to fit
  bool is_fastest = false;           // its units take the fastest plan that there is of them
  bool has_other_kinds = false;      // some of its units are not of the usual kind
  UnitEnds ends = UnitEnds::kAlike;  // of its units
  // Plans of its units, in the room that is asked for (units and micro-batches in flight are those
  // of the chunk); on a mesh, where one is given. Nothing: there are none.
  std::function<Result<std::optional<HintedParts>>(MixAsked asked, const std::string& mesh)> parts =
      {};
  // Plans of its units by one template, one after the other, each with less in memory than the one
  // before; nothing: there are no more. No other plan of the chunk is looked for.
  std::function<Result<std::optional<HintedParts>>(std::size_t which)> of_template = {};
};

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
  // longer is of no use. `may_gain`: whether any plans of the chunks behind these are of use; null:
  // they are.
  // Errors: of the searches, with the chunk.
  using MayGain = std::function<Result<bool>(const std::vector<ChunkPlan>&)>;
  Result<std::vector<ChunkPlan>> of(std::vector<Chunk> chunks, const PipelineSchedule& schedule,
                                    const std::vector<ChunkHint>& hints, Seconds cutoff,
                                    const MayGain& may_gain = {});

  // Whether nothing is said about meshes, and the ones that are tried then: of data and of tensor
  // parallelism.
  bool may_choose_meshes() const;
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
  // A chunk as it was cut, and on what it is planned.
  struct Asked {
    Inputs inputs;
    std::string mesh;  // empty: any
    Bytes beside = 0;  // that others of the stage take
    ChunkHint hint = {};
    std::size_t chunk = 0;
  };
  struct Known {
    int cut = 0;            // the last one that had it,
    std::size_t chunk = 0;  // and where
    Asked asked;
    std::shared_ptr<const Planned> planned;
  };
  Status plan(Asked asked, ChunkPlan& found);
  Result<std::shared_ptr<const Planned>> searched(const Asked& asked);
  // Null: no such plan was found, that fits.
  Result<std::shared_ptr<const Planned>> of_parts(const Asked& asked);
  // A chunk with so much repeated, on a mesh; null: no op would be.
  using Requests = std::map<std::pair<Recompute, std::string>, std::unique_ptr<PartsRequest>>;
  Result<PartsPlan> of_these(const Asked& asked, const HintedParts& parts,
                             Requests& requests) const;
  Result<std::shared_ptr<const Planned>> of_template(const Asked& asked) const;
  Result<std::shared_ptr<const Planned>> searched_on(const Asked& asked,
                                                     std::vector<std::string> meshes,
                                                     std::optional<Recompute> recompute = {}) const;
  Result<CommonOptions> options_of(const std::string& mesh, Bytes beside) const;
  Result<Inputs> inputs_of(Graph graph) const;
  std::optional<StrategyFile> pins_of(const Graph& graph) const;
  // The chunks of one stage, of all that there are, which share its room.
  struct StageChunks {
    const std::vector<std::size_t>& chunks;
    bool apart = false;  // backward passes have two parts
    const std::vector<Inputs>& inputs;
    const std::vector<ChunkHint>& hints;
    std::vector<ChunkPlan>& plans;
  };
  Status share_memory(const StageChunks& of);
  Status plan_within(const StageChunks& of, const std::vector<double>& shares);
  Status use_what_is_left(const StageChunks& of);
  static std::string mesh_of(const Planned& planned);

  const ChunkSearch& search_;
  PlanOptions options_;
  Inputs stage_;  // what is read of a chunk but for its graph and rules
  Seconds cutoff_ = kInfinity;
  int cut_ = 0;  // how many there were
  std::vector<Known> known_;
  int searched_ = 0;                      // chunks, on all meshes
  std::vector<std::string> best_meshes_;  // of the last of them
  // By ways of units: what the last chunk that was made of them held and took, as a part of what
  // these do by themselves; took: of chunks of usual units alone; held: also of each chunk.
  std::map<std::size_t, double> bytes_of_units_, slower_of_;
  std::map<std::size_t, std::map<std::size_t, double>> bytes_in_chunk_;
  Seconds longest_ = 0;  // of the chunks that are planned of this cut
};

}  // namespace autopar
