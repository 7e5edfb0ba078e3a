// What propagation has to say about its plan: which reshards it had to insert between whom.
#include <algorithm>
#include <map>

#include "search/propagate/at.hpp"
#include "search/propagate/origins.hpp"
#include "search/propagate/propagate.hpp"

namespace autopar {

namespace {

// Whether the only difference is that partial sums were reduced, maybe into slices.
bool only_reduces(const Spec& from, const Spec& to) {
  Spec kept = to;
  for (auto& axes : kept.dims) {
    AxisList others;
    for (int axis : axes) {
      const bool reduced =
          std::find(from.partial.begin(), from.partial.end(), axis) != from.partial.end();
      if (!reduced) others.push_back(axis);
    }
    axes = others;
  }
  return kept.dims == from.dims;
}

// All terms of one reshard.
struct Inserted {
  ValueId value;
  OpId reader;  // of a hub: the first one; invalid: the graph output
  bool to_hub = false;
  Conflict conflict;
};

std::vector<Inserted> inserted_reshards(const StrategyCost& cost, const Mesh& mesh) {
  std::vector<Inserted> all;
  std::map<std::tuple<ValueId, OpId, bool>, std::size_t> index;
  for (const CostTerm& term : cost.terms) {
    if (!term.value.valid()) continue;
    const auto [it, is_new] = index.try_emplace({term.value, term.op, term.to_hub}, all.size());
    if (is_new) all.push_back({term.value, term.op, term.to_hub, {}});
    Conflict& conflict = all[it->second].conflict;
    conflict.steps.push_back(to_text(term.collective, mesh));
    conflict.seconds += term.seconds;
    conflict.sent_bytes += term.sent_bytes;
  }
  return all;
}

class Explainer {
 public:
  Explainer(const SearchRequest& request, const MeshProblem& problem, const Seeds& seeds,
            const PropagationTrace& trace, const SearchOutcome& outcome,
            const std::vector<OpSpecs>& specs)
      : graph_(request.graph),
        problem_(problem),
        seeds_(seeds),
        trace_(trace),
        outcome_(outcome),
        specs_(specs),
        uses_(uses_of(request.graph)),
        readers_(readers_of(request.graph)),
        origins_(request.graph, problem, seeds) {}

  std::vector<Conflict> conflicts() const {
    std::vector<Conflict> found;
    for (Inserted& inserted : inserted_reshards(outcome_.cost, outcome_.strategy.mesh)) {
      if (describe(inserted)) found.push_back(std::move(inserted.conflict));
    }
    std::stable_sort(found.begin(), found.end(), [](const Conflict& a, const Conflict& b) {
      return a.kind != b.kind ? a.kind < b.kind : a.seconds > b.seconds;
    });
    return found;
  }

 private:
  // Who wants a tensor to lie in a way.
  struct End {
    OpId op;        // invalid: the tensor itself
    int seed = -1;  // that it is or follows
    bool is_seed = false;
    const Spec* wish = nullptr;  // what it wants, where nobody wants what lies between the ends
  };

  bool describe(Inserted& inserted) const {
    const ValueSpecs& specs = outcome_.strategy.values[inserted.value.index()];
    const bool has_hub = readers_[inserted.value.index()].count() > 1;
    const Spec& from = inserted.to_hub || !has_hub ? specs.spec : specs.hub;
    const Spec& to = inserted.to_hub ? specs.hub : target(inserted, from);
    if (only_reduces(from, to)) return false;
    const End here = inserted.to_hub || !has_hub ? supplier(inserted.value, from, to)
                                                 : hub_end(inserted.value, from, to);
    const End there = inserted.to_hub ? reader_with(inserted.value, to, op_end(inserted.reader))
                                      : reader_end(inserted);
    const Value& value = graph_.value(inserted.value);
    inserted.conflict.tensor = value.name;
    inserted.conflict.from = text_of(here, value, here.wish != nullptr ? *here.wish : from);
    inserted.conflict.to = text_of(there, value, to);
    if (here.wish != nullptr) {
      inserted.conflict.via = to_text(from, outcome_.strategy.mesh);
    }
    const bool one_seed = here.seed == there.seed && all_follow(inserted.value, there.seed);
    inserted.conflict.kind = here.is_seed && there.is_seed ? Conflict::Kind::kPins
                             : one_seed                    ? Conflict::Kind::kRule
                                                           : Conflict::Kind::kMeeting;
    return true;
  }

  // Whether the producer and all readers of a tensor follow one seed.
  bool all_follow(ValueId id, int seed) const {
    const OpId producer = graph_.value(id).producer;
    if (producer.valid() && trace_.origin[producer.index()] != seed) return false;
    const auto& uses = uses_[id.index()];
    return std::all_of(uses.begin(), uses.end(),
                       [&](const Use& use) { return trace_.origin[use.op.index()] == seed; });
  }

  // What a reader needs, where it is not the hub.
  const Spec& target(const Inserted& inserted, const Spec& from) const {
    if (!inserted.reader.valid()) {
      return outcome_.strategy.values[inserted.value.index()].output;
    }
    const Op& op = graph_.op(inserted.reader);
    const OpSpecs& specs = specs_[inserted.reader.index()];
    const Spec* first = nullptr;
    for (std::size_t i = 0; i < op.inputs.size(); ++i) {
      if (op.inputs[i] != inserted.value) continue;
      if (first == nullptr || *first == from) first = &specs.inputs[i];
    }
    return *first;
  }

  End op_end(OpId op) const {
    if (!op.valid()) return {};
    return {op, trace_.origin[op.index()], seeds_.of_op[op.index()] >= 0};
  }
  static End seed_end(int seed) { return {{}, seed, true}; }

  // Who says how a tensor is supplied: its producer, what fixes an input, or the first decided
  // reader that wants it so; where there is none, the first one that does not want `to`.
  End supplier(ValueId id, const Spec& spec, const Spec& to) const {
    const Value& value = graph_.value(id);
    if (value.producer.valid()) return op_end(value.producer);
    if (seeds_.of_source[id.index()] >= 0) return seed_end(seeds_.of_source[id.index()]);
    return reader_with(id, spec, other_reader(id, to));
  }

  // Whose layout the hub has: the supplier's where it is the same, else that of a reader.
  End hub_end(ValueId id, const Spec& hub, const Spec& to) const {
    if (seeds_.of_hub[id.index()] >= 0) return seed_end(seeds_.of_hub[id.index()]);
    const Spec& spec = outcome_.strategy.values[id.index()].spec;
    if (graph_.value(id).producer.valid() && only_reduces(spec, hub)) {
      return op_end(graph_.value(id).producer);
    }
    if (seeds_.of_source[id.index()] >= 0 && spec == hub) {
      return seed_end(seeds_.of_source[id.index()]);
    }
    return reader_with(id, hub, other_reader(id, to));
  }

  // The first decided reader with this property; invalid: none.
  template <class Wanted>
  Use first_reader(ValueId id, Wanted wanted) const {
    Use best;
    for (const Use& use : uses_[id.index()]) {
      if (!wanted(specs_[use.op.index()].inputs[at(use.port)])) continue;
      if (!best.op.valid() || trace_.place[use.op.index()] < trace_.place[best.op.index()]) {
        best = use;
      }
    }
    return best;
  }

  // The first decided reader that needs `spec`, else who makes the next value of the input.
  End reader_with(ValueId id, const Spec& spec, const End& otherwise) const {
    if (seeds_.of_hub[id.index()] >= 0) return seed_end(seeds_.of_hub[id.index()]);
    const Use reader = first_reader(id, [&](const Spec& s) { return s.dims == spec.dims; });
    if (reader.op.valid()) return op_end(reader.op);
    const OpId updater = origins_.updater_of(id);
    return updater.valid() ? op_end(updater) : otherwise;
  }

  End other_reader(ValueId id, const Spec& to) const {
    const Use reader = first_reader(id, [&](const Spec& s) { return s.dims != to.dims; });
    if (!reader.op.valid()) return {};
    End end = op_end(reader.op);
    end.wish = &specs_[reader.op.index()].inputs[at(reader.port)];
    return end;
  }

  End reader_end(const Inserted& inserted) const {
    if (inserted.reader.valid()) return op_end(inserted.reader);
    const int output = seeds_.of_output[inserted.value.index()];
    if (output >= 0) return seed_end(output);
    // The next value of an input lies as the readers of that input say.
    const int node = problem_.output_node[inserted.value.index()];
    for (ValueId input : graph_.inputs) {
      if (problem_.source_node[input.index()] != node) continue;
      if (seeds_.of_source[input.index()] >= 0) return seed_end(seeds_.of_source[input.index()]);
      return reader_with(input, outcome_.strategy.values[input.index()].spec, End{});
    }
    return {};
  }

  ConflictEnd text_of(const End& end, const Value& value, const Spec& spec) const {
    ConflictEnd text;
    text.spec = to_text(spec, outcome_.strategy.mesh);
    if (end.op.valid()) {
      text.where = graph_.op(end.op).name;
      text.because = end.is_seed     ? "pinned"
                     : end.seed >= 0 ? "follows " + seeds_.seeds[at(end.seed)].text
                                     : "unreached";
      return text;
    }
    text.where = end.seed >= 0 ? seeds_.seeds[at(end.seed)].text : "tensor '" + value.name + "'";
    text.because = end.seed < 0 ? "free" : seeds_.seeds[at(end.seed)].layout ? "layout" : "pinned";
    return text;
  }

  const Graph& graph_;
  const MeshProblem& problem_;
  const Seeds& seeds_;
  const PropagationTrace& trace_;
  const SearchOutcome& outcome_;
  const std::vector<OpSpecs>& specs_;
  std::vector<std::vector<Use>> uses_;
  std::vector<Readers> readers_;
  Origins origins_;
};

Redistribution redistribution_of(const StrategyCost& cost, const Mesh& mesh) {
  Redistribution sum;
  for (const Inserted& inserted : inserted_reshards(cost, mesh)) {
    sum.seconds += inserted.conflict.seconds;
    sum.sent_bytes += inserted.conflict.sent_bytes;
    ++sum.reshards;
  }
  return sum;
}

}  // namespace

const char* name_of(Conflict::Kind kind) {
  switch (kind) {
    case Conflict::Kind::kPins:
      return "pins";
    case Conflict::Kind::kMeeting:
      return "meeting";
    case Conflict::Kind::kRule:
      return "rule";
  }
  return "";
}

Status explain_propagation(const SearchRequest& request, const MeshProblem& problem,
                           const Solution& solution, CostModel& model, SearchOutcome& outcome) {
  const Seeds seeds = seeds_of(request, problem);
  PropagationTrace trace = propagate_breadth_first(request, problem, seeds);
  AUTOPAR_TRY(specs, op_specs_of(request.graph, request.rules, outcome.strategy));
  Propagation propagation;
  for (const Seeds::Seed& seed : seeds.seeds) propagation.seeds.push_back(seed.text);
  propagation.unreached = static_cast<std::size_t>(trace.filled);
  propagation.reached = request.graph.ops.size() - propagation.unreached;
  propagation.breadth_first = redistribution_of(outcome.cost, outcome.strategy.mesh);
  if (request.propagate_exact) {
    propagation.exact = propagation.breadth_first;
    propagation.exact_gap = solution.redistribution_gap;
    const Strategy plain = strategy_of(request.graph, problem, trace.choices);
    AUTOPAR_TRY(cost, evaluate(request, plain, model));
    propagation.breadth_first = redistribution_of(cost, plain.mesh);
  }
  for (int node : problem.node_of_op) {
    const auto n = static_cast<std::size_t>(node);
    if (solution.choices[n] == trace.choices[n]) continue;
    trace.origin = origins_by_agreement(request.graph, problem, seeds, trace, specs);
    break;
  }
  propagation.conflicts = Explainer(request, problem, seeds, trace, outcome, specs).conflicts();
  outcome.propagation = std::move(propagation);
  return Ok{};
}

}  // namespace autopar
