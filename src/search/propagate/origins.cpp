#include "search/propagate/origins.hpp"

#include "search/propagate/at.hpp"

namespace autopar {

Origins::Origins(const Graph& graph, const MeshProblem& problem, const Seeds& seeds)
    : graph_(graph),
      problem_(problem),
      seeds_(seeds),
      uses_(uses_of(graph)),
      choice_(graph.ops.size(), -1),
      origin_(graph.ops.size(), PropagationTrace::kFilled),
      first_at_(graph.values.size()) {
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    if (problem.source_node[v] >= 0) stored_at_[problem.source_node[v]] = id;
  }
  for (ValueId output : graph.outputs) {
    const ValueId updated = updated_by(output);
    const OpId producer = graph.value(output).producer;
    if (updated.valid() && producer.valid()) updater_[updated] = producer;
  }
}

// The first agreement wins; without one the first of all.
struct Origins::Vote {
  int agreed = PropagationTrace::kFilled;
  int first = PropagationTrace::kFilled;

  void cast(int origin, const Spec& own, const Spec& other) {
    if (origin < 0) return;
    if (first < 0) first = origin;
    if (agreed < 0 && own.dims == other.dims) agreed = origin;
  }
};

ValueId Origins::updated_by(ValueId output) const {
  const auto found = stored_at_.find(problem_.output_node[output.index()]);
  return found == stored_at_.end() ? ValueId() : found->second;
}

OpId Origins::updater_of(ValueId value) const {
  const auto found = updater_.find(value);
  return found == updater_.end() ? OpId() : found->second;
}

void Origins::vote_op(OpId id, ValueId value, bool reads, const Spec& spec, Vote& vote) const {
  if (!id.valid() || choice_[id.index()] < 0) return;
  const Op& op = graph_.op(id);
  const OpSpecs& specs = problem_.choices_of_op[id.index()]->specs[at(choice_[id.index()])];
  const auto& ports = reads ? op.inputs : op.outputs;
  for (std::size_t p = 0; p < ports.size(); ++p) {
    if (ports[p] != value) continue;
    vote.cast(origin_[id.index()], spec, reads ? specs.inputs[p] : specs.outputs[p]);
  }
}

void Origins::vote_stored(ValueId value, const Spec& spec, Vote& vote) const {
  const int seed = seeds_.of_source[value.index()];
  if (seed >= 0) {
    vote.cast(seed, spec, problem_.specs_of_node[at(problem_.source_node[value.index()])][0]);
  }
  const OpId first = first_at_[value.index()];
  vote_op(first, value, true, spec, vote);
  if (!first.valid()) return;
  for (ValueId output : graph_.op(first).outputs) {
    if (output.valid() && updated_by(output) == value) vote_op(first, output, false, spec, vote);
  }
}

// Where one op reads the value there is no node: that op needs it as it is pinned.
void Origins::vote_hub(ValueId value, const Spec& spec, Vote& vote) const {
  const int seed = seeds_.of_hub[value.index()];
  const int node = problem_.hub_node[value.index()];
  if (seed < 0) return;
  vote.cast(seed, spec, node < 0 ? spec : problem_.specs_of_node[at(node)][0]);
}

void Origins::vote_input(OpId id, std::size_t port, const Spec& spec, Vote& vote) const {
  const ValueId value = graph_.op(id).inputs[port];
  const Value& read = graph_.value(value);
  if (read.kind == ValueKind::kConstant) return;
  vote_op(read.producer, value, false, spec, vote);
  vote_hub(value, spec, vote);
  if (!read.producer.valid()) vote_stored(value, spec, vote);
}

void Origins::vote_output(OpId id, std::size_t port, const Spec& spec, Vote& vote) const {
  const ValueId value = graph_.op(id).outputs[port];
  for (const Use& use : uses_[value.index()]) vote_op(use.op, value, true, spec, vote);
  const auto vote_fixed = [&](int seed, int node) {
    if (seed >= 0) vote.cast(seed, spec, problem_.specs_of_node[at(node)][0]);
  };
  if (seeds_.of_made[value.index()] >= 0) vote.cast(seeds_.of_made[value.index()], spec, spec);
  vote_hub(value, spec, vote);
  vote_fixed(seeds_.of_output[value.index()], problem_.output_node[value.index()]);
  const ValueId updated = updated_by(value);
  if (updated.valid()) vote_stored(updated, spec, vote);
}

int Origins::follow(OpId id, int choice) const {
  if (seeds_.of_op[id.index()] >= 0) return seeds_.of_op[id.index()];
  const Op& op = graph_.op(id);
  const OpSpecs& own = problem_.choices_of_op[id.index()]->specs[at(choice)];
  Vote vote;
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.has_input(i)) vote_input(id, i, own.inputs[i], vote);
  }
  for (std::size_t j = 0; j < op.outputs.size(); ++j) {
    if (op.has_output(j)) vote_output(id, j, own.outputs[j], vote);
  }
  return vote.agreed >= 0 ? vote.agreed : vote.first;
}

void Origins::decide(OpId id, int choice, int origin) {
  choice_[id.index()] = choice;
  origin_[id.index()] = origin;
  const Op& op = graph_.op(id);
  const auto touch = [&](ValueId value) {
    if (value.valid() && !first_at_[value.index()].valid()) first_at_[value.index()] = id;
  };
  for (ValueId input : op.inputs) {
    if (input.valid() && problem_.source_node[input.index()] >= 0) touch(input);
  }
  for (ValueId output : op.outputs) {
    if (output.valid()) touch(updated_by(output));
  }
}

}  // namespace autopar
