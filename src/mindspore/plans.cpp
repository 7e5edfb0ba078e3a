// Which plans MindSpore's searches look at, and which of them they prefer.
#include <cmath>

#include "autopar/mindspore.hpp"
#include "mindspore/ops.hpp"
#include "mindspore/strategies.hpp"

namespace autopar {

namespace {

// Layouts of a value, beyond which those of ops and common ones have to do: of an input that
// several ops read, and of others. Assumed: as many as a search of a small model takes in no time;
// three axes give a tensor of four dimensions 125, six 15,625.
constexpr double kMostLayouts = 4096;
constexpr double kMostNoCheaper = 256;

}  // namespace

std::vector<Assignment> MindsporeModel::choices(const Op& op, const Rule& rule) const {
  return mindspore::strategies(op, rule, mesh_, weights_);
}

std::vector<Assignment> MindsporeModel::choices_of_pin(const Op& op, const Rule& rule) const {
  return mindspore::configurable_strategies(op, rule, mesh_, weights_);
}

bool MindsporeModel::leaves_out(const Rule& rule) const {
  return mindspore::too_many_on_any_axes(rule, mesh_);
}

// The hub is where a value lies, and what its readers need is redistributed for each. A parameter
// of several readers lies alike for all of them.
bool MindsporeModel::may_reshard(const Graph& graph, const Value& value, Leg leg) const {
  if (leg == Leg::kToHub) return false;
  if (value.kind == ValueKind::kParameter) return leg == Leg::kToOnlyReader;
  return !weights_.elementwise_follow || !value.producer.valid() ||
         !mindspore::is_elementwise(graph.op(value.producer));
}

// Meshes of prime axes have many layouts, and each is one more beside all those in which ops read
// it. Where one op reads it, or all alike, none costs less than as that is read; it may need less
// memory.
bool MindsporeModel::has_free_boundary(const Value& value, bool shared) const {
  const bool may_cost_less = shared && value.kind == ValueKind::kInput;
  const double layouts = std::pow(static_cast<double>(value.shape.size()) + 1, mesh_.rank());
  return layouts <= (may_cost_less ? kMostLayouts : kMostNoCheaper);
}

// The bytes that the op has to reduce: so an op that follows one other is not split over axes that
// the other leaves alone.
std::vector<double> MindsporeModel::follower_prices(const Graph& graph, const Op& op,
                                                    const std::vector<OpSpecs>& specs) const {
  std::vector<double> bytes;
  for (const OpSpecs& candidate : specs) {
    bytes.push_back(0);
    for (std::size_t j = 0; j < op.outputs.size(); ++j) {
      if (!op.has_output(j) || candidate.outputs[j].partial.empty()) continue;
      const Value& value = graph.value(op.outputs[j]);
      bytes.back() +=
          static_cast<double>(local_bytes(candidate.outputs[j], value.shape, value.dtype, mesh_));
    }
  }
  return bytes;
}

TieBreak MindsporeModel::break_ties(const Problem& problem, const std::vector<int>& nodes,
                                    Solution best, const SolveOptions& options) const {
  std::optional<Solution> first = first_of_equals(problem, nodes, best, options);
  if (first) return {std::move(*first), {}};
  return {std::move(best),
          "of the plans that cost the same, this one need not be the one whose ops have the first "
          "choices: finding it takes more than 500 searches"};
}

}  // namespace autopar
