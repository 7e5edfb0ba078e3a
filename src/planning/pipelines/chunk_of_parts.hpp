// A chunk that is made of plans of its units, with what lies between them searched.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "planning/parts_of_step.hpp"
#include "planning/pipelines/unit_mix.hpp"
#include "planning/pipelines/unit_room.hpp"
#include "search/uniform/uniform.hpp"

namespace autopar {

// How plans of units hand on what they make: as the next unit, which is planned alike, gets it; or
// in any layout, so that what lies between two units is not in their plans.
enum class UnitEnds : std::uint8_t { kAlike, kOpen };

// How a chunk is planned first, by what its units say. Without meshes: nothing is said.
struct HintedParts {
  NamedLevels recompute;
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
  // Of one template: no other plan of the chunk is looked for.
  bool is_template = false;
};

// A chunk as it was cut, and on what it is planned.
struct AskedChunk {
  std::shared_ptr<const Inputs> inputs;
  std::string mesh;  // empty: any but those of `not_on`
  Bytes beside = 0;  // that others of the stage take
  ChunkHint hint = {};
  std::size_t chunk = 0;
  // Made of plans of its units; null: no such plan fits; nothing: that was not tried yet.
  std::optional<std::shared_ptr<Planned>> of_parts = {};
  double slower = 1;               // so many times as long as these take by themselves
  double least_bytes = kInfinity;  // of those that were tried
  std::set<std::string> not_on = {};
};

// By ways of units: what the last chunk that was made of them held and took, as a part of what
// these do by themselves; took: of chunks of usual units alone; held: also of each chunk.
struct UnitsInChunks {
  std::map<std::size_t, double> bytes_of, slower_of;
  std::map<std::size_t, std::map<std::size_t, double>> bytes_in_chunk;
  std::map<TwoWays, double> bytes_of_two, slower_of_two;
};

// A chunk with so much repeated, on a mesh; null: no op would be.
using PartsRequests = std::map<std::pair<NamedLevels, std::string>, std::unique_ptr<PartsRequest>>;
std::shared_ptr<Planned> planned_of(PartsRequest& request, SearchOutcome outcome);

// In rounds: each asks for plans of units that leave room for what the chunk holds beside them
// (UnitRoom), as far as the rounds before have told. Of several chunks plan() may run at the same
// time, as it reads and writes nothing that they share; all else is called for one after the other,
// in their order.
class ChunkOfParts {
 public:
  using Plans = std::function<Result<PartsPlan>(const HintedParts& parts, PartsRequests& requests)>;

  // In `room` bytes. Chunks that are planned take `longest`: what takes no longer is good enough.
  // `asked` and `known` must live as long.
  ChunkOfParts(const AskedChunk& asked, double room, Seconds longest, UnitsInChunks& known,
               Plans plans);

  // Whether there is another round. Errors: of plans of units.
  Result<bool> ask();
  // Errors: of the search.
  Status plan();
  void take();
  bool has_plan() const { return best_.has_value(); }
  // The fastest that fits; null: there is none.
  std::shared_ptr<Planned> best();
  double least_bytes() const { return least_bytes_; }
  // So many times as long as its units take by themselves.
  double slower() const { return slower_; }

 private:
  void forget_mixed_levels();
  void learn_time(const UnitMix& mix, double slower);
  void learn_room(const UnitMix& mix, double bytes);

  const AskedChunk& asked_;
  const Seconds longest_;
  UnitsInChunks& known_;
  const Plans plans_;
  MixAsked mixed_;
  UnitRoom left_;
  PartsRequests requests_;
  std::optional<HintedParts> parts_;  // of this round
  std::optional<PartsPlan> found_;
  std::optional<UnitMix> before_;
  int rounds_ = 0;  // with a plan
  bool is_done_ = false;
  PartsRequest* best_request_ = nullptr;
  std::optional<SearchOutcome> best_;
  double slower_ = 1;  // of the best
  double least_bytes_ = kInfinity;
};

}  // namespace autopar
