// A step in units: what lies between places that are like each other, such as its layers.
//
//   AUTOPAR_TRY(units, units_of(step, like_cuts(step), "new.*", 6));
//   units.kinds[units.kind_of[3]]   // the graph of a unit that the fourth is like, but for names
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "autopar/stages.hpp"
#include "planning/parts_of_step.hpp"

namespace autopar {

struct StepUnits {
  std::vector<OpId> cuts;            // where units begin, but the first
  std::vector<Graph> kinds;          // of each kind its first unit
  std::vector<std::size_t> kind_of;  // per unit
  std::size_t usual = 0;             // the kind that most ops are of
  // Stored values of the usual kind that no other unit reads, by the names of its graph.
  std::set<std::string> own;
  // What other units have as well, by the names of its graph: a chunk has that once. Values of the
  // usual kind, and ops per kind.
  std::set<std::string> shared;
  std::vector<std::set<std::string>> shared_ops;
  // What a unit of the usual kind hands to another one that follows, or gets back from it, by the
  // names of its graph: as it leaves, and as it comes.
  HandedOn handed_on;
  // Ops and values of the step by name: their kind, and their name in the graph of it. Those that
  // several units have, such as values that are handed on, have no kind.
  struct Place {
    static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
    std::size_t kind = kNone;
    std::string name;
    std::size_t unit = 0;
  };
  std::map<std::string, Place> ops, values;
};

// Where a name stands in the units; also one that is made of a known name and endings that begin
// with a dot ("fc1.again"). Nothing: in no unit alone.
std::optional<StepUnits::Place> place_of(const std::map<std::string, StepUnits::Place>& places,
                                         const std::string& name);

// `cuts`: where no kernel has ops on both sides (like_cuts). Without kinds: there are no cuts, or
// more kinds than `most_kinds`. `step`: with kernels. `pins`: what they ask of two units of a kind
// is the same. Errors: of cutting it.
Result<StepUnits> units_of(const Graph& step, const std::vector<OpId>& cuts,
                           const std::string& updates, std::size_t most_kinds,
                           const std::optional<StrategyFile>& pins = {});

}  // namespace autopar
