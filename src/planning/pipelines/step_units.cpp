#include "planning/pipelines/step_units.hpp"

#include <algorithm>
#include <map>

#include "autopar/strategy.hpp"
#include "planning/pipelines/chunk_pins.hpp"

namespace autopar {

namespace {

// What a chunk's graph reads that stays from step to step: parameters, and what has a next value.
std::set<std::string> stored_names(const Graph& graph, const std::string& updates) {
  std::set<std::string> names;
  for (const Value& value : graph.values) {
    if (value.kind == ValueKind::kParameter || value.accumulates) names.insert(value.name);
  }
  for (const ValueId input : updated_inputs(graph, updates)) {
    if (input.valid()) names.insert(graph.value(input).name);
  }
  return names;
}

// Of a unit, which is like the one of its kind.
void add_names(const Graph& kind, const Graph& unit, std::size_t number, std::size_t place,
               StepUnits& units) {
  const auto add = [&](std::map<std::string, StepUnits::Place>& places, const std::string& name,
                       const std::string& of_kind) {
    const auto [found, is_new] = places.try_emplace(name, StepUnits::Place{number, of_kind, place});
    if (!is_new) found->second.kind = StepUnits::Place::kNone;
  };
  for (std::size_t o = 0; o < unit.ops.size(); ++o) {
    add(units.ops, unit.ops[o].name, kind.ops[o].name);
  }
  const auto values = same_values(kind, unit);
  for (std::size_t v = 0; values && v < values->size(); ++v) {
    if (!(*values)[v].valid()) continue;
    add(units.values, unit.value((*values)[v]).name, kind.values[v].name);
  }
}

// Between two units that are both like the one of their kind.
HandedOn handed_between(const Graph& kind, const Graph& unit, const Graph& next) {
  const auto in_unit = same_values(kind, unit), in_next = same_values(kind, next);
  HandedOn handed_on;
  if (!in_unit || !in_next) return handed_on;
  const auto add = [&](const Graph& from, const auto& of_from, const Graph& to, const auto& of_to) {
    std::map<std::string, std::string> leaving;
    for (const ValueId id : kind.outputs) {
      const ValueId value = of_from[id.index()];
      if (value.valid()) leaving[from.value(value).name] = kind.value(id).name;
    }
    for (const ValueId id : kind.inputs) {
      const ValueId value = of_to[id.index()];
      if (!value.valid()) continue;
      const auto found = leaving.find(to.value(value).name);
      if (found != leaving.end()) handed_on.emplace_back(found->second, kind.value(id).name);
    }
  };
  add(unit, *in_unit, next, *in_next);
  add(next, *in_next, unit, *in_unit);
  return handed_on;
}

}  // namespace

std::optional<StepUnits::Place> place_of(const std::map<std::string, StepUnits::Place>& places,
                                         const std::string& name) {
  for (std::size_t end = name.size(); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    const auto found = places.find(name.substr(0, end));
    if (found == places.end()) continue;
    if (found->second.kind == StepUnits::Place::kNone) return {};
    return StepUnits::Place{found->second.kind, found->second.name + name.substr(end),
                            found->second.unit};
  }
  return {};
}

Result<StepUnits> units_of(const Graph& step, const std::vector<OpId>& cuts,
                           const std::string& updates, std::size_t most_kinds,
                           const std::optional<StrategyFile>& pins) {
  StepUnits units;
  units.cuts = cuts;
  if (units.cuts.empty()) return units;
  AUTOPAR_TRY(chunks, chunks_of(step, units.cuts, updates));
  std::vector<std::size_t> first, count;  // per kind, ops of all its units
  for (std::size_t u = 0; u < chunks.chunks.size(); ++u) {
    const Graph& graph = chunks.chunks[u].graph;
    const auto same = std::find_if(first.begin(), first.end(), [&](std::size_t f) {
      const Graph& known = chunks.chunks[f].graph;
      const auto values = same_values(known, graph);
      return values && (!pins || are_pinned_alike(*pins, known, graph, *values));
    });
    const auto kind = static_cast<std::size_t>(same - first.begin());
    if (kind == first.size()) {
      first.push_back(u);
      count.push_back(0);
    }
    if (first.size() > most_kinds) return units;
    units.kind_of.push_back(kind);
    count[kind] += graph.ops.size();
  }
  for (std::size_t u = 0; u < chunks.chunks.size(); ++u) {
    add_names(chunks.chunks[first[units.kind_of[u]]].graph, chunks.chunks[u].graph,
              units.kind_of[u], u, units);
  }
  units.usual =
      static_cast<std::size_t>(std::max_element(count.begin(), count.end()) - count.begin());
  for (std::size_t u = 0; u + 1 < chunks.chunks.size() && units.handed_on.empty(); ++u) {
    if (units.kind_of[u] != units.usual || units.kind_of[u + 1] != units.usual) continue;
    units.handed_on = handed_between(chunks.chunks[first[units.usual]].graph,
                                     chunks.chunks[u].graph, chunks.chunks[u + 1].graph);
  }
  std::map<std::string, int> readers;
  for (const Chunk& chunk : chunks.chunks) {
    for (const std::string& name : stored_names(chunk.graph, updates)) ++readers[name];
  }
  for (const std::size_t f : first) units.kinds.push_back(std::move(chunks.chunks[f].graph));
  for (const std::string& name : stored_names(units.kinds[units.usual], updates)) {
    if (readers[name] == 1) units.own.insert(name);
  }
  const auto is_shared = [](const std::map<std::string, StepUnits::Place>& places,
                            const std::string& name) {
    const auto place = places.find(name);
    return place == places.end() || place->second.kind == StepUnits::Place::kNone;
  };
  for (const Graph& kind : units.kinds) {
    std::set<std::string>& ops = units.shared_ops.emplace_back();
    for (const Op& op : kind.ops) {
      if (is_shared(units.ops, op.name)) ops.insert(op.name);
    }
  }
  for (const Value& value : units.kinds[units.usual].values) {
    if (is_shared(units.values, value.name)) units.shared.insert(value.name);
  }
  return units;
}

}  // namespace autopar
